"""Cotangents of what a step reports besides its state: poses, velocities, momenta, lengths.

The reports are functions of the nodes at the state before the step. Each kernel is that function
for a group of them; only its adjoint runs, seeded by the cotangents.
"""

import warp as wp
from mujoco_warp._src.types import JointType

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, inertia_of
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
from mjx_warp_ffi.mjx.warp.adjoint.outputs import subtrees
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.outputs.subtrees import SUBTREES
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

BODIES = ("xpos", "xquat", "xmat", "xipos", "ximat")
JOINTS = ("xanchor", "xaxis")
GEOMS = ("geom_xpos", "geom_xmat")
SITES = ("site_xpos", "site_xmat")
TENDONS = ("ten_length", "ten_velocity")
ACTUATORS = ("actuator_length", "actuator_velocity")


@struct
class JointNodes:
  """The joints and their nodes."""

  node: wp.array[int]
  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]


@wp.kernel(module="unique")
def body_pose(
  # In:
  tree: Tree,
  nodes: Nodes,
  # Model:
  inertia: Inertia,
  # Data out:
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
  # In:
  joints: JointNodes,
  nodes: Nodes,
  frames: Frames,
  state: State,
  # Data out:
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
  if kind != JointType.FREE:
    x = x + rotate(q, of_world(frames.jnt_pos, world, j))
    if kind == JointType.BALL:
      q = mul(q, conj(unit_at(state.qpos, world, i)))
    axis = rotate(q, axis)
    if kind == JointType.SLIDE:
      x = x - axis * (state.qpos[world, i] - of_world(frames.qpos0, world, i))
  xanchor[world, j] = x
  xaxis[world, j] = axis


@wp.kernel(module="unique")
def site_pose(
  # In:
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  # Data out:
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


def _seed(rec: Recording, name: str, *, array: wp.array) -> None:
  """Adds the cotangent of a report to the gradient of the array that holds it."""
  cotangent = rec.cotangent(name)
  if cotangent is not None:
    dim = array.shape

    def backward() -> None:
      wp.launch(add_seed, dim, inputs=[cotangent], outputs=[array.grad])

    rec.tape.call(backward=backward)


def record(rec: Recording, ev: Evaluated) -> None:
  """Records the reports that have a cotangent."""
  tape, kin, inertia = rec.tape, ev.kin, ev.mech.inertia
  nodes = [kin.tree, kin.nodes]
  if rec.reports(BODIES):
    tape.output(body_pose, inputs=[*nodes, inertia], outputs=rec.reports(BODIES))
  if rec.reports(JOINTS):
    order = rec.constant((kin.topology.arrays["jnt"] >= 0).nonzero()[0])
    joints = tape.struct(JointNodes, node=order, **rec.fixed("jnt_type", "jnt_qposadr"))
    inputs = [joints, kin.nodes, kin.frames, kin.state]
    tape.output(joint_pose, inputs=inputs, outputs=rec.reports(JOINTS))
  if rec.reports(GEOMS):
    dim = tape.dim(rec.m.ngeom)
    tape.output(geom_pose, inputs=[*nodes, kin.geoms], outputs=rec.reports(GEOMS), dim=dim)
  if rec.reports(SITES):
    tape.output(site_pose, inputs=[*nodes, kin.sites], outputs=rec.reports(SITES))
  _record_subtrees(rec, ev)
  for names, rates in ((TENDONS, ev.lengths.tendons), (ACTUATORS, ev.lengths.actuators)):
    if rates is not None:
      for name, field in zip(names, ("length", "velocity"), strict=True):
        _seed(rec, name, array=tape.field(rates, field))


def _record_subtrees(rec: Recording, ev: Evaluated) -> None:
  """Records what has a cotangent of the centres of mass, velocities and momenta of subtrees."""
  if not rec.reports(SUBTREES):
    return
  com, inputs = subtrees.record_centres(rec, ev.kin, ev.mech.inertia)
  rest = rec.reports(SUBTREES[1:])
  if rest:
    rec.tape.output(subtrees.subtree_velocity, inputs=[*inputs, com], outputs=rest)
  cotangent = rec.cotangent("subtree_com")
  if cotangent is not None:
    # the first to run backwards: the velocities add to it
    rec.tape.call(backward=lambda: wp.copy(com.grad, cotangent))


OUTPUT = Output(
  parameters=subtrees.LEAVES,
  reports=(*BODIES, *JOINTS, *GEOMS, *SITES, *SUBTREES, *TENDONS, *ACTUATORS),
  record=record,
)
