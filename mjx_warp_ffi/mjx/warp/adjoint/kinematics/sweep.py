"""Fills the arrays of the nodes: poses, velocity fields and accelerations.

The velocity of a node is the sum of the velocities that the joints on its path to the root add, if
all are spatial vectors at one point: here the origin of the tree's root. So is its acceleration,
where a joint adds S qacc + V x (S qvel), V the velocity of its parent (Featherstone, Rigid Body
Dynamics Algorithms, 2008, section 2.11 and 5.3). No thread waits for another, forwards or
backwards: the adjoint of a sum over the path to the root is the sum over the subtree, and what
pulls and turns the nodes of a subtree pulls and turns its first node, since the joint above moves
the subtree as one rigid body.
"""

import mujoco
import mujoco_warp as mjw
import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import topology
from mjx_warp_ffi.mjx.warp.adjoint.kinematics import motions
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Frames, Nodes, State, Tree, placed
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.path_sums import Paths, PathSums, sum_subtree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import mul, pure
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried, Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape, alias, world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Bodies:
  """Which bodies the nodes are part of."""

  body: wp.array[int]  # that the node is part of
  above: wp.array[int]  # the parent of that body
  first: wp.array[int]  # the first node of that body


@wp.kernel(enable_backward=False)
def _poses(
  # Model:
  tree: Tree,
  bodies: Bodies,
  paths: Paths,
  frames: Frames,
  # Data in:
  state: State,
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
):
  """The poses of nodes from those of bodies, a thread per world and node."""
  i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  b = bodies.body[n]
  if tree.of_body[b] == n:
    paths.points[world, n] = xpos[world, b]
    paths.turns[world, n] = xquat[world, b]
    return
  x = xpos[world, bodies.above[n]]
  q = xquat[world, bodies.above[n]]
  for k in range(bodies.first[n], n + 1):
    x, q = placed(tree, frames, state, world, k, x, q)
  paths.points[world, n] = x
  paths.turns[world, n] = q


@wp.kernel(module="unique")
def _placement(
  # Model:
  tree: Tree,
  paths: Paths,
  frames: Frames,
  # Data in:
  state: State,
  # Out:
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
):
  """The pose of a node, its parent's held fixed, a thread per world and node."""
  i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  k = tree.parent[n]
  x, q = placed(tree, frames, state, world, n, paths.points[world, k], paths.turns[world, k])
  xpos[world, n] = x
  xquat[world, n] = q


@wp.kernel(enable_backward=False)
def _pull_subtrees(
  # Model:
  paths: Paths,
  # In:
  wrenches: wp.array3d[wp.spatial_vector],
  summed: bool,
  # Out:
  force: wp.array2d[wp.vec3],
  turn: wp.array2d[wp.quat],
):
  """The cotangents of a node's pose from the wrenches on its subtree, a thread per node.

  The wrenches may be summed over subtrees already.
  """
  i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  total = wrenches[0, world, n]
  if not summed:
    total = sum_subtree(paths, wrenches, 0, world, n)
  r = paths.points[world, n] - paths.points[world, paths.root[n]]
  torque = wp.spatial_top(total) - wp.cross(r, wp.spatial_bottom(total))
  force[world, n] = wp.spatial_bottom(total)
  turn[world, n] = mul(pure(2.0 * torque), paths.turns[world, n])


class Sweep:
  """The node arrays of a workspace and the launches that fill them.

  The poses of the bodies have to be in the workspace.

  Args:
    mjm: the model.
    tape: records the launches.
    d: the workspace.
    frames: the `Frames` of the model.
    state: the `State` of the workspace.
    velocities: which frozen velocities are carried.
    track: whether these get a gradient.
    polar: whether the derivative of the acceleration by the velocity is carried.
  """

  def __init__(
    self,
    mjm: mujoco.MjModel,
    tape: Tape,
    *,
    d: mjw.Data,
    frames: Frames,
    state: State,
    velocities: Velocities,
    track: bool = False,
    polar: bool = False,
  ):
    """See the class."""
    self.topology = top = topology(mjm)
    self.velocities = velocities
    ints = {k: wp.array(x, dtype=int, device=tape.device) for k, x in top.arrays.items()}
    self.tree = tape.struct(Tree, world_fastest=tape.world_fastest, **ints)
    shape = (velocities.count, tape.nworld, mjm.nv)
    self.coords = wp.zeros(shape, dtype=float, device=tape.device)
    if track:
      tape.track(self.coords)
    self.slices: list[wp.array] = [self.coords[i] for i in range(velocities.count)]
    self.arrays = dict(
      xpos=tape.array(top.count, dtype=wp.vec3),
      xquat=tape.array(top.count, dtype=wp.quat),
      vel=tape.array(top.count, dtype=wp.spatial_vector),
      acc=tape.array(top.count, dtype=wp.spatial_vector),
      fields=tape.stack(velocities.count, top.count, dtype=wp.spatial_vector),
      polar=tape.array(top.count if polar else 1, dtype=wp.spatial_vector),
    )
    identity = wp.quat(1.0, 0.0, 0.0, 0.0)  # of the world, which no launch writes
    self.arrays["xquat"].fill_(identity)
    self.nodes = tape.struct(Nodes, **self.arrays)
    self.carried = Carried(self.nodes, self.coords, velocities.count)
    points, turns = alias(self.arrays["xpos"]), alias(self.arrays["xquat"])
    self._sums = PathSums(top, tape, points=points, turns=turns)
    self._record_poses(tape, d, frames=frames, state=state)
    self._record_motions(tape, frames, state=state, polar=polar)

  def _record_poses(self, tape: Tape, d: mjw.Data, *, frames: Frames, state: State) -> None:
    """The poses come from the workspace; backwards, each is a function of its parent's."""
    tree, sums, count = self.tree, self._sums, self.topology.count
    dim = tape.dim(count - 1)
    ints = {k: wp.array(x, dtype=int, device=tape.device) for k, x in self.topology.bodies.items()}
    bodies = tape.struct(Bodies, **ints)
    self._wrenches = tape.stack(1, count, dtype=wp.spatial_vector, gradient=False)
    totals = wp.zeros_like(self._wrenches) if sums.walks else self._wrenches
    found = [alias(self.arrays[name]) for name in ("xpos", "xquat")]
    cotangents = [tape.array(count, dtype=x.dtype, gradient=False) for x in found]

    def poses() -> None:
      wp.launch(_poses, dim, inputs=[tree, bodies, sums.paths, frames, state, d.xpos, d.xquat])

    def pull() -> None:
      if sums.walks:
        totals.zero_()
        sums.add_subtrees(self._wrenches, totals)
      inputs = [sums.paths, totals, sums.walks]
      wp.launch(_pull_subtrees, dim, inputs=inputs, outputs=cotangents)

    inputs, outputs = [tree, sums.paths, frames, state], zip(found, cotangents, strict=True)
    tape.output(_placement, inputs=inputs, outputs=list(outputs), dim=dim)
    tape.call(forward=poses, backward=pull)

  def _record_motions(self, tape: Tape, frames: Frames, *, state: State, polar: bool) -> None:
    count, rows, rates = self.topology.count, 1 + self.velocities.count, 2 if polar else 1
    joint, whole, joint_rates, whole_rates = (
      tape.stack(n, count, dtype=wp.spatial_vector) for n in (rows, rows, rates, rates)
    )
    dim = tape.dim(count - 1)
    inputs = [self.tree, self._sums.paths, frames, state, self.coords, self.nodes]
    self._record_velocities(tape, joint, inputs=inputs)
    self._record_sum(tape, joint, whole)
    kernel = motions.acceleration_kernel(self.velocities, polar=polar)
    tape.launch(kernel, dim, inputs=[*inputs, joint, whole], outputs=[joint_rates])
    self._record_sum(tape, joint_rates, whole_rates)
    kernel = motions.motion_kernel(self.velocities, polar=polar)
    adjoint = motions.motion_adjoint_kernel(self.velocities, polar=polar)
    read = [self._sums.paths, whole, whole_rates, self.nodes]

    def forward() -> None:
      wp.launch(kernel, dim, inputs=read)

    def backward() -> None:
      given = Nodes()
      for name, array in self.arrays.items():
        setattr(given, name, array.grad)
      wp.launch(adjoint, dim, inputs=[*read, given], outputs=[whole.grad, whole_rates.grad])

    tape.call(forward=forward, backward=backward)

  def _record_velocities(self, tape: Tape, joint: wp.array, *, inputs: list) -> None:
    _tree, _paths, frames, state, coords, _nodes = inputs
    dim = tape.dim(self.topology.count - 1)

    def forward() -> None:
      wp.launch(motions.joint_velocities, dim, inputs=inputs, outputs=[joint])

    def backward() -> None:
      gradients = motions.Gradients()
      gradients.qvel = tape.field(state, "qvel").grad
      gradients.coords = coords.grad
      gradients.jnt_axis = tape.field(frames, "jnt_axis").grad
      gradients.jnt_pos = tape.field(frames, "jnt_pos").grad
      cotangents = [joint.grad, self.arrays["xpos"].grad, self.arrays["xquat"].grad]
      outputs = [gradients, self._wrenches[0]]
      wp.launch(
        motions.joint_velocities_adjoint, dim, inputs=[*inputs, *cotangents], outputs=outputs
      )

    tape.call(forward=forward, backward=backward)

  def _record_sum(self, tape: Tape, terms: wp.array, sums: wp.array) -> None:
    tape.call(
      forward=lambda: self._sums.sum_paths(terms, sums),
      backward=lambda: self._sums.add_subtrees(sums.grad, terms.grad),
    )
