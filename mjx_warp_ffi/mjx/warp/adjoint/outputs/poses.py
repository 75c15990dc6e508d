"""Cotangents of what a step reports besides its state: poses, velocities, momenta, lengths.

The reports are functions of the nodes at the state before the step. Each kernel is that function
for a group of them; only its adjoint runs, seeded by the cotangents.
"""

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE, SLIDE
from mjx_warp_ffi.mjx.warp.adjoint.forces.bodies import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import (
  Sites,
  geom_pose,
  site_frame,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Frames, Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  matrix,
  mul,
  rotate,
  unit_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.outputs.subtrees import (
  SUBTREES,
  record_centres,
  subtree_velocity,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world

BODIES = ("xpos", "xquat", "xmat", "xipos", "ximat")
JOINTS = ("xanchor", "xaxis")
GEOMS = ("geom_xpos", "geom_xmat")
SITES = ("site_xpos", "site_xmat")
TENDONS = ("ten_length", "ten_velocity")
ACTUATORS = ("actuator_length", "actuator_velocity")


@wp.struct
class Joints:
  """The joints and their nodes."""

  node: wp.array[int]
  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]


@wp.kernel(module="unique")
def body_pose(
  tree: Tree,
  nodes: Nodes,
  inertia: Inertia,
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
  xmat: wp.array2d[wp.mat33],
  xipos: wp.array2d[wp.vec3],
  ximat: wp.array2d[wp.mat33],
):
  """The poses of the bodies and of their inertial frames."""
  world, b = wp.tid()
  n = tree.of_body[b]
  x = nodes.xpos[world, n]
  q = nodes.xquat[world, n]
  xpos[world, b] = x
  xquat[world, b] = q
  xmat[world, b] = matrix(q)
  _mass, _moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  xipos[world, b] = x + c
  ximat[world, b] = matrix(qi)


@wp.kernel(module="unique")
def joint_pose(
  joints: Joints,
  nodes: Nodes,
  frames: Frames,
  state: State,
  xanchor: wp.array2d[wp.vec3],
  xaxis: wp.array2d[wp.vec3],
):
  """Anchors and axes of the joints, as they are before the joint moves its body."""
  world, j = wp.tid()
  n = joints.node[j]
  x = nodes.xpos[world, n]
  q = nodes.xquat[world, n]
  kind = joints.jnt_type[j]
  i = joints.jnt_qposadr[j]
  axis = of_world(frames.jnt_axis, world, j)
  if kind != FREE:
    x = x + rotate(q, of_world(frames.jnt_pos, world, j))
    if kind == BALL:
      q = mul(q, conj(unit_at(state.qpos, world, i)))
    axis = rotate(q, axis)
    if kind == SLIDE:
      x = x - axis * (state.qpos[world, i] - of_world(frames.qpos0, world, i))
  xanchor[world, j] = x
  xaxis[world, j] = axis


@wp.kernel(module="unique")
def site_pose(
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
):
  """The poses of the sites."""
  world, s = wp.tid()
  n, arm, axes = site_frame(sites, tree, nodes, world, s)
  xpos[world, s] = nodes.xpos[world, n] + arm
  xmat[world, s] = matrix(axes)


@wp.kernel(enable_backward=False)
def add_seed(cotangent: wp.array2d[float], gradient: wp.array2d[float]):
  """Adds a cotangent to a gradient."""
  world, i = wp.tid()
  gradient[world, i] = gradient[world, i] + cotangent[world, i]


def seed(step, name: str, *, array: wp.array) -> None:
  """Adds the cotangent of a report to the gradient of the array that holds it."""
  cotangent = step.cotangents.get(name)
  if cotangent is not None:
    dim = array.shape

    def backward():
      wp.launch(add_seed, dim, inputs=[cotangent], outputs=[array.grad])

    step.tape.call(backward=backward)


def record(step) -> None:
  """Records the reports of a `StageAdjoint` that have a cotangent."""
  tape, m, sweep = step.tape, step.m, step.sweep
  nodes = [sweep.tree, sweep.nodes]
  if step.reports(BODIES):
    tape.output(body_pose, inputs=[*nodes, step.inertia], outputs=step.reports(BODIES))
  if step.reports(JOINTS):
    kinds = {f: getattr(m, f) for f in ("jnt_type", "jnt_qposadr")}
    jnt = sweep.topology.arrays["jnt"]
    order = step.constant((jnt >= 0).nonzero()[0])
    joints = tape.struct(Joints, node=order, **kinds)
    inputs = [joints, sweep.nodes, step.frames, step.state]
    tape.output(joint_pose, inputs=inputs, outputs=step.reports(JOINTS))
  if step.reports(GEOMS):
    dim = tape.dim(m.ngeom)
    tape.output(geom_pose, inputs=[*nodes, step.geoms], outputs=step.reports(GEOMS), dim=dim)
  if step.reports(SITES):
    tape.output(site_pose, inputs=[*nodes, step.sites], outputs=step.reports(SITES))
  if step.reports(SUBTREES):
    com, inputs = record_centres(step)
    rest = step.reports(SUBTREES[1:])
    if rest:
      tape.output(subtree_velocity, inputs=[*inputs, com], outputs=rest)
    if "subtree_com" in step.cotangents:
      # the first to run backwards: the velocities add to it
      cotangent = step.cotangents["subtree_com"]
      tape.call(backward=lambda: wp.copy(com.grad, cotangent))
  for names, rates in ((TENDONS, step.tendon_rates), (ACTUATORS, step.actuator_rates)):
    if rates is not None:
      for name, field in zip(names, ("length", "velocity"), strict=True):
        seed(step, name, array=tape.field(rates, field))
