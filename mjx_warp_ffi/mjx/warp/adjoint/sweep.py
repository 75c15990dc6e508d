"""Fills the arrays of the nodes: poses, velocity fields and accelerations.

The velocity of a node is the sum of the velocities that the joints on its path to the root add, if
all are spatial vectors at one point: here the origin of the tree's root. So is its acceleration,
where a joint adds S qacc + V x (S qvel), V the velocity of its parent (Featherstone, Rigid Body
Dynamics Algorithms, 2008, section 2.11 and 5.3). No thread waits for another, forwards or
backwards: the adjoint of a sum over the path to the root is the sum over the subtree, and what
pulls and turns the nodes of a subtree pulls and turns its first node, since the joint above moves
the subtree as one rigid body.
"""

import functools

import mujoco
import mujoco_warp as mjw
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.nodes import (
  Carried,
  Fields,
  Frames,
  Nodes,
  State,
  Tree,
  joint_frame,
  placed,
  twist,
)
from mjx_warp_ffi.mjx.warp.adjoint.spatial import conj, imag, mul, pure, vec_at
from mjx_warp_ffi.mjx.warp.adjoint.tape import Tape, alias, world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.topology import FREE, topology


@wp.struct
class Paths:
  """Where the nodes stand in the tree, and the points at which spatial vectors are added."""

  body: wp.array[int]  # that the node is part of
  above: wp.array[int]  # the parent of that body
  first: wp.array[int]  # the first node of that body
  root: wp.array[int]  # the first node on the path from the world
  end: wp.array[int]  # of the nodes of the subtree
  points: wp.array2d[wp.vec3]  # origins of nodes, as constants
  turns: wp.array2d[wp.quat]  # orientations of nodes, as constants
  world_fastest: bool  # see `Tape`


@wp.kernel(enable_backward=False)
def _poses(
  tree: Tree,
  paths: Paths,
  frames: Frames,
  state: State,
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
):
  """The poses of nodes from those of bodies, a thread per world and node."""
  i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  b = paths.body[n]
  if tree.of_body[b] == n:
    paths.points[world, n] = xpos[world, b]
    paths.turns[world, n] = xquat[world, b]
    return
  x = xpos[world, paths.above[n]]
  q = xquat[world, paths.above[n]]
  for k in range(paths.first[n], n + 1):
    x, q = placed(tree, frames, state, world, k, x, q)
  paths.points[world, n] = x
  paths.turns[world, n] = q


@wp.kernel(module="unique")
def _placement(
  tree: Tree,
  paths: Paths,
  frames: Frames,
  state: State,
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
def _subtree_wrenches(
  paths: Paths,
  cot_xpos: wp.array2d[wp.vec3],
  cot_xquat: wp.array2d[wp.quat],
  force: wp.array2d[wp.vec3],
  turn: wp.array2d[wp.quat],
):
  """Cotangents of the nodes of a subtree as those of its first, a thread per world and node."""
  i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  x = paths.points[world, n]
  total = wp.vec3(0.0)
  torque = wp.vec3(0.0)
  for k in range(n, paths.end[n]):
    pull = cot_xpos[world, k]
    total += pull
    torque += wp.cross(paths.points[world, k] - x, pull)
    # a rotation by r turns q by (0, r / 2) q
    torque += 0.5 * imag(mul(cot_xquat[world, k], conj(paths.turns[world, k])))
  force[world, n] = total
  turn[world, n] = mul(pure(2.0 * torque), paths.turns[world, n])


@wp.func
def _moved(t: wp.spatial_vector, r: wp.vec3) -> wp.spatial_vector:
  """A velocity field at the point r from the one where it is given."""
  return wp.spatial_vector(wp.spatial_top(t), wp.spatial_bottom(t) + wp.cross(wp.spatial_top(t), r))


@wp.func
def _crossed(a: wp.spatial_vector, b: wp.spatial_vector) -> wp.spatial_vector:
  """The rate of the spatial velocity b, which a moves."""
  u = wp.spatial_top(a)
  v = wp.spatial_top(b)
  return wp.spatial_vector(
    wp.cross(u, v), wp.cross(u, wp.spatial_bottom(b)) + wp.cross(wp.spatial_bottom(a), v)
  )


@wp.kernel(module="unique")
def _joint_velocities(
  tree: Tree,
  paths: Paths,
  frames: Frames,
  state: State,
  coords: wp.array3d[float],
  nodes: Nodes,
  joint: wp.array3d[wp.spatial_vector],
):
  """What each joint adds to the velocity, row 0, and to the fields, a thread per row and node."""
  row, i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n = n + 1
  q = nodes.xquat[world, n]
  axis, arm = joint_frame(tree, frames, world, n, q)
  kind = tree.kind[n]
  d = tree.dofadr[n]
  t = wp.spatial_vector()
  if row == 0:
    t = twist(kind, axis, q, state.qvel, world, d)
  else:
    t = twist(kind, axis, q, coords[row - 1], world, d)
  joint[row, world, n] = _moved(t, arm + paths.points[world, paths.root[n]] - nodes.xpos[world, n])


@functools.cache
def _acceleration_kernel(fields: Fields, *, polar: bool) -> wp.Kernel:
  @wp.kernel(module="unique")
  def joint_accelerations(
    tree: Tree,
    paths: Paths,
    frames: Frames,
    state: State,
    coords: wp.array3d[float],
    nodes: Nodes,
    joint: wp.array3d[wp.spatial_vector],
    whole: wp.array3d[wp.spatial_vector],
    out: wp.array3d[wp.spatial_vector],
  ):
    """What each joint adds to the acceleration, and to its derivative, a thread per node."""
    i, j = wp.tid()
    world, n = world_and_item(i, j, paths.world_fastest)
    n = n + 1
    k = tree.parent[n]
    kind = tree.kind[n]
    d = tree.dofadr[n]
    q = nodes.xquat[world, n]
    axis, arm = joint_frame(tree, frames, world, n, q)
    r = arm + paths.points[world, paths.root[n]] - nodes.xpos[world, n]
    tv = joint[0, world, n]
    fv = whole[0, world, k]
    a = _moved(twist(kind, axis, q, state.qacc, world, d), r) + _crossed(fv, tv)
    if kind == FREE:  # the axes of its rotations move with its translation
      lin = vec_at(state.qvel, world, d)
      a = a + wp.spatial_vector(wp.vec3(0.0), wp.cross(lin, wp.spatial_top(tv)))
    out[0, world, n] = a
    if wp.static(polar):
      tu = joint[wp.static(1 + fields.a), world, n] - joint[wp.static(1 + fields.z), world, n]
      fu = whole[wp.static(1 + fields.a), world, k] - whole[wp.static(1 + fields.z), world, k]
      p = _crossed(fv, tu) + _crossed(fu, tv)
      if kind == FREE:
        along = vec_at(coords[wp.static(fields.a)], world, d)
        along = along - vec_at(coords[wp.static(fields.z)], world, d)
        turn = wp.cross(along, wp.spatial_top(tv)) + wp.cross(
          vec_at(state.qvel, world, d), wp.spatial_top(tu)
        )
        p = p + wp.spatial_vector(wp.vec3(0.0), turn)
      out[1, world, n] = p

  return joint_accelerations


@functools.cache
def _motion_kernel(fields: Fields, *, polar: bool) -> wp.Kernel:
  rows = 1 + fields.count

  @wp.kernel(module="unique")
  def node_motions(
    paths: Paths,
    whole: wp.array3d[wp.spatial_vector],
    rates: wp.array3d[wp.spatial_vector],
    out: Nodes,
  ):
    """Velocities, fields and accelerations at the nodes' origins, a thread per row and node."""
    row, i, j = wp.tid()
    world, n = world_and_item(i, j, paths.world_fastest)
    n = n + 1
    r = out.xpos[world, n] - paths.points[world, paths.root[n]]
    if row < wp.static(rows):
      f = _moved(whole[row, world, n], r)
      if row == 0:
        out.vel[world, n] = f
      else:
        out.fields[row - 1, world, n] = f
    else:
      v = _moved(whole[0, world, n], r)
      om = wp.spatial_top(v)
      a = _moved(rates[row - wp.static(rows), world, n], r)
      if row == wp.static(rows):
        lin = wp.spatial_bottom(a) + wp.cross(om, wp.spatial_bottom(v))
        out.acc[world, n] = wp.spatial_vector(wp.spatial_top(a), lin)
      elif wp.static(polar):
        u = whole[wp.static(1 + fields.a), world, n] - whole[wp.static(1 + fields.z), world, n]
        u = _moved(u, r)
        lin = wp.spatial_bottom(a) + wp.cross(wp.spatial_top(u), wp.spatial_bottom(v))
        lin = lin + wp.cross(om, wp.spatial_bottom(u))
        out.polar[world, n] = wp.spatial_vector(wp.spatial_top(a), lin)

  return node_motions


@wp.kernel(enable_backward=False)
def _sum_paths(
  tree: Tree,
  paths: Paths,
  terms: wp.array3d[wp.spatial_vector],
  sums: wp.array3d[wp.spatial_vector],
):
  """The sum of the terms of a node and of those above it, a thread per row and node."""
  row, i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  total = terms[row, world, n]
  k = tree.parent[n]
  while k > 0:
    total += terms[row, world, k]
    k = tree.parent[k]
  sums[row, world, n] = total


@wp.kernel(enable_backward=False)
def _sum_subtrees(
  paths: Paths,
  cotangents: wp.array3d[wp.spatial_vector],
  gradients: wp.array3d[wp.spatial_vector],
):
  """The adjoint of `_sum_paths`: adds the sum over a node's subtree."""
  row, i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  total = gradients[row, world, n]
  for k in range(n, paths.end[n]):
    total += cotangents[row, world, k]
  gradients[row, world, n] = total


class Sweep:
  """The node arrays of a workspace and the launches that fill them.

  The poses of the bodies have to be in the workspace.

  Args:
    mjm: the model.
    tape: records the launches.
    d: the workspace.
    frames: the `Frames` of the model.
    state: the `State` of the workspace.
    fields: which frozen velocities are carried.
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
    fields: Fields,
    track: bool = False,
    polar: bool = False,
  ):
    """See the class."""
    self.topology = top = topology(mjm)
    self.fields = fields
    ints = {k: wp.array(x, dtype=int, device=tape.device) for k, x in top.arrays.items()}
    self.tree = tape.struct(Tree, **ints)
    shape = (fields.count, tape.nworld, mjm.nv)
    self.coords = wp.zeros(shape, dtype=float, device=tape.device)
    if track:
      tape.track(self.coords)
    self.slices = [self.coords[i] for i in range(fields.count)]
    self.arrays = dict(
      xpos=tape.array(top.count, dtype=wp.vec3),
      xquat=tape.array(top.count, dtype=wp.quat),
      vel=tape.array(top.count, dtype=wp.spatial_vector),
      acc=tape.array(top.count, dtype=wp.spatial_vector),
      fields=tape.stack(fields.count, top.count, dtype=wp.spatial_vector),
      polar=tape.array(top.count if polar else 1, dtype=wp.spatial_vector),
    )
    identity = wp.quat(1.0, 0.0, 0.0, 0.0)  # of the world, which no launch writes
    self.arrays["xquat"].fill_(identity)
    self.nodes = tape.struct(Nodes, **self.arrays)
    self.carried = Carried(self.nodes, self.coords, fields.count)
    ints = {k: wp.array(x, dtype=int, device=tape.device) for k, x in top.paths.items()}
    self._paths = tape.struct(
      Paths,
      points=alias(self.arrays["xpos"]),
      turns=alias(self.arrays["xquat"]),
      world_fastest=tape.world_fastest,
      **ints,
    )
    self._record_poses(tape, d, frames=frames, state=state)
    self._record_motions(tape, frames, state=state, polar=polar)

  def _record_poses(self, tape: Tape, d: mjw.Data, *, frames: Frames, state: State) -> None:
    """The poses come from the workspace; backwards, each is a function of its parent's."""
    tree, paths, arrays = self.tree, self._paths, self.arrays
    names, dim = ("xpos", "xquat"), tape.dim(self.topology.count - 1)
    found = [alias(arrays[name]) for name in names]
    cotangents = [tape.array(self.topology.count, dtype=x.dtype, gradient=False) for x in found]

    def poses() -> None:
      wp.launch(_poses, dim, inputs=[tree, paths, frames, state, d.xpos, d.xquat])

    def wrenches() -> None:
      given = [arrays[name].grad for name in names]
      wp.launch(_subtree_wrenches, dim, inputs=[paths, *given], outputs=cotangents)

    outputs = list(zip(found, cotangents, strict=True))
    tape.output(_placement, inputs=[tree, paths, frames, state], outputs=outputs, dim=dim)
    tape.call(forward=poses, backward=wrenches)

  def _record_motions(self, tape: Tape, frames: Frames, *, state: State, polar: bool) -> None:
    count, rows, rates = self.topology.count, 1 + self.fields.count, 2 if polar else 1
    joint, whole = (tape.stack(rows, count, dtype=wp.spatial_vector) for _ in range(2))
    joint_rates, whole_rates = (tape.stack(rates, count, dtype=wp.spatial_vector) for _ in range(2))
    dim = tape.dim(count - 1)
    inputs = [self.tree, self._paths, frames, state, self.coords, self.nodes]
    tape.launch(_joint_velocities, (rows, *dim), inputs=inputs, outputs=[joint])
    self._record_sum(tape, joint, whole)
    kernel = _acceleration_kernel(self.fields, polar=polar)
    tape.launch(kernel, dim, inputs=[*inputs, joint, whole], outputs=[joint_rates])
    self._record_sum(tape, joint_rates, whole_rates)
    kernel = _motion_kernel(self.fields, polar=polar)
    inputs = [self._paths, whole, whole_rates, self.nodes]
    tape.launch(kernel, (rows + rates, *dim), inputs=inputs, outputs=[])

  def _record_sum(self, tape: Tape, terms: wp.array, sums: wp.array) -> None:
    dim = (terms.shape[0], *tape.dim(self.topology.count - 1))

    def forward() -> None:
      wp.launch(_sum_paths, dim, inputs=[self.tree, self._paths, terms], outputs=[sums])

    def backward() -> None:
      wp.launch(_sum_subtrees, dim, inputs=[self._paths, sums.grad], outputs=[terms.grad])

    tape.call(forward=forward, backward=backward)
