"""Cotangents of the motion axes of the dofs, their rates, and inertias, about the tree's centre."""

import warp as wp
from mujoco_warp._src.types import JointType, vec10

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Frames, Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import matrix, point_velocity, rotate, vec_at
from mjx_warp_ffi.mjx.warp.adjoint.outputs import subtrees
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

NAMES = ("cdof", "cdof_dot", "cinert")


@struct
class Axes:
  """The dofs, and the nodes of their joints."""

  node: wp.array[int]
  root: wp.array[int]  # of each dof: the body at the root of its tree
  dof_jntid: wp.array[int]
  jnt_type: wp.array[int]
  jnt_dofadr: wp.array[int]
  body_rootid: wp.array[int]


@wp.func
def _axis(
  axes: Axes, frames: Frames, nodes: Nodes, com: wp.array2d[wp.vec3], world: int, d: int
) -> wp.spatial_vector:
  """The velocity that a dof gives to its body, where the tree's centre of mass is."""
  j = axes.dof_jntid[d]
  n = axes.node[j]
  kind = axes.jnt_type[j]
  k = d - axes.jnt_dofadr[j]
  q = nodes.xquat[world, n]
  unit = wp.vec3(1.0, 0.0, 0.0)
  if k % 3 == 1:
    unit = wp.vec3(0.0, 1.0, 0.0)
  elif k % 3 == 2:
    unit = wp.vec3(0.0, 0.0, 1.0)
  r = com[world, axes.root[d]] - nodes.xpos[world, n]
  ang = wp.vec3(0.0)
  lin = wp.vec3(0.0)
  if kind == JointType.FREE and k < 3:
    lin = unit
  elif kind == JointType.FREE:
    ang = rotate(q, unit)
    lin = wp.cross(ang, r)
  elif kind == JointType.SLIDE:
    lin = rotate(q, of_world(frames.jnt_axis, world, j))
  else:
    local = of_world(frames.jnt_axis, world, j)
    if kind == JointType.BALL:
      local = unit
    ang = rotate(q, local)
    arm = rotate(q, of_world(frames.jnt_pos, world, j))
    lin = wp.cross(ang, r - arm)
  return wp.spatial_vector(ang, lin)


@wp.kernel(module="unique")
def _motion_axis(
  # In:
  axes: Axes,
  frames: Frames,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  # Data out:
  cdof: wp.array2d[wp.spatial_vector],
):
  """The axes of the dofs, a thread per world and dof."""
  world, d = wp.tid()
  cdof[world, d] = _axis(axes, frames, nodes, com, world, d)


@wp.kernel(module="unique")
def _axis_rate(
  # In:
  axes: Axes,
  frames: Frames,
  tree: Tree,
  nodes: Nodes,
  # Data in:
  qvel: wp.array2d[float],
  # In:
  com: wp.array2d[wp.vec3],
  # Data out:
  cdof_dot: wp.array2d[wp.spatial_vector],
):
  """The rate at which an axis turns with all before its joint, a thread per world and dof."""
  world, d = wp.tid()
  j = axes.dof_jntid[d]
  k = tree.parent[axes.node[j]]
  f = nodes.vel[world, k]
  om = wp.spatial_top(f)
  v = point_velocity(f, com[world, axes.root[d]] - nodes.xpos[world, k])
  first = axes.jnt_dofadr[j]
  turns = wp.bool(True)
  if axes.jnt_type[j] == JointType.FREE:
    v = v + vec_at(qvel, world, first)  # the translation comes before the rotation
    turns = d >= first + 3
  rate = wp.spatial_vector()
  if turns:
    c = _axis(axes, frames, nodes, com, world, d)
    ang = wp.spatial_top(c)
    rate = wp.spatial_vector(
      wp.cross(om, ang), wp.cross(om, wp.spatial_bottom(c)) + wp.cross(v, ang)
    )
  cdof_dot[world, d] = rate


@wp.kernel(module="unique")
def _central_inertia(
  # In:
  axes: Axes,
  tree: Tree,
  nodes: Nodes,
  # Model:
  inertia: Inertia,
  # In:
  com: wp.array2d[wp.vec3],
  # Data out:
  cinert: wp.array2d[vec10],
):
  """The inertia of a body about the tree's centre of mass, a thread per world and body."""
  world, b = wp.tid()
  mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  r = nodes.xpos[world, tree.of_body[b]] + c - com[world, axes.body_rootid[b]]
  turn = matrix(qi)
  i = turn @ wp.diag(moments) @ wp.transpose(turn)
  i = i + mass * (wp.dot(r, r) * wp.identity(n=3, dtype=float) - wp.outer(r, r))
  cinert[world, b] = vec10(
    i[0, 0],
    i[1, 1],
    i[2, 2],
    i[0, 1],
    i[0, 2],
    i[1, 2],
    mass * r[0],
    mass * r[1],
    mass * r[2],
    mass,
  )


def record(rec: Recording, ev: Evaluated) -> None:
  """Records the axes and inertias that have a cotangent."""
  cdof, cdof_dot, cinert = (rec.reports((name,)) for name in NAMES)
  if not (cdof or cdof_dot or cinert):
    return
  tape, kin, inertia = rec.tape, ev.kin, ev.mech.inertia
  axes = tape.struct(
    Axes,
    node=rec.constant((kin.topology.arrays["jnt"] >= 0).nonzero()[0]),
    root=rec.constant(rec.mjm.body_rootid[rec.mjm.dof_bodyid]),
    **rec.fixed("dof_jntid", "jnt_type", "jnt_dofadr", "body_rootid"),
  )
  com, _ = subtrees.record_centres(rec, kin, inertia)
  if cdof:
    tape.output(_motion_axis, inputs=[axes, kin.frames, kin.nodes, com], outputs=cdof)
  if cdof_dot:
    inputs = [axes, kin.frames, kin.tree, kin.nodes, rec.inputs["qvel"], com]
    tape.output(_axis_rate, inputs=inputs, outputs=cdof_dot)
  if cinert:
    inputs = [axes, kin.tree, kin.nodes, inertia, com]
    tape.output(_central_inertia, inputs=inputs, outputs=cinert)


OUTPUT = Output(parameters=subtrees.LEAVES, reports=NAMES, record=record)
