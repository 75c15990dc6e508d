"""Cotangents of the motion axes of the dofs, their rates, and inertias, about the tree's centre."""

import warp as wp
from mujoco_warp._src.types import vec10

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE, SLIDE
from mjx_warp_ffi.mjx.warp.adjoint.forces.bodies import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Frames, Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import matrix, point_velocity, rotate, vec_at
from mjx_warp_ffi.mjx.warp.adjoint.outputs.subtrees import record_centres
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world

NAMES = ("cdof", "cdof_dot", "cinert")


@wp.struct
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
  if kind == FREE and k < 3:
    lin = unit
  elif kind == FREE:
    ang = rotate(q, unit)
    lin = wp.cross(ang, r)
  elif kind == SLIDE:
    lin = rotate(q, of_world(frames.jnt_axis, world, j))
  else:
    local = of_world(frames.jnt_axis, world, j)
    if kind == BALL:
      local = unit
    ang = rotate(q, local)
    arm = rotate(q, of_world(frames.jnt_pos, world, j))
    lin = wp.cross(ang, r - arm)
  return wp.spatial_vector(ang, lin)


@wp.kernel(module="unique")
def _motion_axis(
  axes: Axes,
  frames: Frames,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  cdof: wp.array2d[wp.spatial_vector],
):
  """The axes of the dofs, a thread per world and dof."""
  world, d = wp.tid()
  cdof[world, d] = _axis(axes, frames, nodes, com, world, d)


@wp.kernel(module="unique")
def _axis_rate(
  axes: Axes,
  frames: Frames,
  tree: Tree,
  nodes: Nodes,
  qvel: wp.array2d[float],
  com: wp.array2d[wp.vec3],
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
  if axes.jnt_type[j] == FREE:
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
  axes: Axes,
  tree: Tree,
  nodes: Nodes,
  inertia: Inertia,
  com: wp.array2d[wp.vec3],
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


def record(step) -> None:
  """Records the axes and inertias of a `StageAdjoint` that have a cotangent."""
  cdof, cdof_dot, cinert = (step.reports((name,)) for name in NAMES)
  if not (cdof or cdof_dot or cinert):
    return
  tape, m, sweep = step.tape, step.m, step.sweep
  jnt = sweep.topology.arrays["jnt"]
  root = step.mjm.body_rootid[step.mjm.dof_bodyid]
  fixed = {f: getattr(m, f) for f in ("dof_jntid", "jnt_type", "jnt_dofadr", "body_rootid")}
  axes = tape.struct(
    Axes, node=step.constant((jnt >= 0).nonzero()[0]), root=step.constant(root), **fixed
  )
  com, _ = record_centres(step)
  if cdof:
    tape.output(_motion_axis, inputs=[axes, step.frames, sweep.nodes, com], outputs=cdof)
  if cdof_dot:
    inputs = [axes, step.frames, sweep.tree, sweep.nodes, step.inputs["qvel"], com]
    tape.output(_axis_rate, inputs=inputs, outputs=cdof_dot)
  if cinert:
    inputs = [axes, sweep.tree, sweep.nodes, step.inertia, com]
    tape.output(_central_inertia, inputs=inputs, outputs=cinert)
