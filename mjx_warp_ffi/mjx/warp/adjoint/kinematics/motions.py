"""Velocity fields and accelerations of the nodes, from what the joints add, and their adjoints.

All are spatial vectors at one point of each tree, `Paths.points` of its root, which is held fixed;
`node_motions` takes them to the origins of the nodes. The adjoints of the two kernels with the most
numbers are written out: an element then has one writer, and needs no atomic addition.
"""

import functools

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE, HINGE, SLIDE
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import (
  Frames,
  Nodes,
  State,
  Tree,
  joint_frame,
  twist,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.path_sums import Paths
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import conj, imag, mul, unrotate, vec_at
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel, struct


@struct
class Gradients:
  """Where the adjoint of `joint_velocities` adds; empty where none is wanted."""

  qvel: wp.array2d[float]
  coords: wp.array3d[float]
  jnt_axis: wp.array2d[wp.vec3]
  jnt_pos: wp.array2d[wp.vec3]


@wp.func
def moved(t: wp.spatial_vector, r: wp.vec3) -> wp.spatial_vector:
  """A velocity field at the point r from the one where it is given."""
  return wp.spatial_vector(wp.spatial_top(t), wp.spatial_bottom(t) + wp.cross(wp.spatial_top(t), r))


@wp.func
def _moved_adjoint(c: wp.spatial_vector, r: wp.vec3) -> wp.spatial_vector:
  """The adjoint of `moved` by the field; that by r is the cross product of c's linear part."""
  return wp.spatial_vector(
    wp.spatial_top(c) + wp.cross(r, wp.spatial_bottom(c)), wp.spatial_bottom(c)
  )


@wp.func
def _crossed(a: wp.spatial_vector, b: wp.spatial_vector) -> wp.spatial_vector:
  """The rate of the spatial velocity b, which a moves."""
  u = wp.spatial_top(a)
  v = wp.spatial_top(b)
  return wp.spatial_vector(
    wp.cross(u, v), wp.cross(u, wp.spatial_bottom(b)) + wp.cross(wp.spatial_bottom(a), v)
  )


@wp.kernel(enable_backward=False)
def joint_velocities(
  # Model:
  tree: Tree,
  paths: Paths,
  frames: Frames,
  # Data in:
  state: State,
  # In:
  coords: wp.array3d[float],
  nodes: Nodes,
  # Out:
  joint: wp.array3d[wp.spatial_vector],
):
  """What each joint adds to the velocity, row 0, and to the fields, a thread per node."""
  i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  q = nodes.xquat[world, n]
  axis, arm = joint_frame(tree, frames, world, n, q)
  kind = tree.kind[n]
  d = tree.dofadr[n]
  r = arm + paths.points[world, paths.root[n]] - nodes.xpos[world, n]
  joint[0, world, n] = moved(twist(kind, axis, q, state.qvel, world, d), r)
  for f in range(coords.shape[0]):
    joint[1 + f, world, n] = moved(twist(kind, axis, q, coords[f], world, d), r)


@wp.func
def _rate(
  qvel: wp.array2d[float], coords: wp.array3d[float], row: int, world: int, d: int
) -> float:
  """The rate of a joint with one, along qvel, row 0, or along a field."""
  x = qvel[world, d]
  if row > 0:
    x = coords[row - 1, world, d]
  return x


@wp.func
def _row_twist(
  kind: int,
  axis: wp.vec3,
  q: wp.quat,
  qvel: wp.array2d[float],
  coords: wp.array3d[float],
  row: int,
  world: int,
  d: int,
) -> wp.spatial_vector:
  """What a joint adds to the velocity, row 0, or to a field."""
  t = wp.spatial_vector()
  if row == 0:
    t = twist(kind, axis, q, qvel, world, d)
  else:
    t = twist(kind, axis, q, coords[row - 1], world, d)
  return t


@wp.func
def _add_rates(
  kind: int,
  axis: wp.vec3,
  q: wp.quat,
  c: wp.spatial_vector,
  grad: wp.array2d[float],
  world: int,
  d: int,
):
  """Adds the adjoint of `twist` by the rates of a joint, to which no other thread adds."""
  if kind == SLIDE:
    grad[world, d] = grad[world, d] + wp.dot(axis, wp.spatial_bottom(c))
  elif kind == HINGE:
    grad[world, d] = grad[world, d] + wp.dot(axis, wp.spatial_top(c))
  else:
    a = d
    if kind == FREE:
      for k in range(3):
        grad[world, d + k] = grad[world, d + k] + c[3 + k]
      a += 3
    turn = unrotate(q, wp.spatial_top(c))
    for k in range(3):
      grad[world, a + k] = grad[world, a + k] + turn[k]


@wp.kernel(enable_backward=False)
def joint_velocities_adjoint(
  # Model:
  tree: Tree,
  paths: Paths,
  frames: Frames,
  # Data in:
  state: State,
  # In:
  coords: wp.array3d[float],
  nodes: Nodes,
  cotangents: wp.array3d[wp.spatial_vector],
  cot_xpos: wp.array2d[wp.vec3],
  cot_xquat: wp.array2d[wp.quat],
  # Out:
  gradients: Gradients,
  wrenches: wp.array2d[wp.spatial_vector],
):
  """The adjoint of `joint_velocities`, a thread per node.

  As the last to add to the cotangents of the nodes' poses, it turns them into wrenches, torques
  first, at the points of the trees.
  """
  i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  q = nodes.xquat[world, n]
  axis, arm = joint_frame(tree, frames, world, n, q)
  kind = tree.kind[n]
  d = tree.dofadr[n]
  r = nodes.xpos[world, n] - paths.points[world, paths.root[n]]
  by_axis = wp.vec3(0.0)
  by_arm = wp.vec3(0.0)
  torque = wp.vec3(0.0)
  if kind >= 0:
    for row in range(cotangents.shape[0]):
      t = _row_twist(kind, axis, q, state.qvel, coords, row, world, d)
      c = _moved_adjoint(cotangents[row, world, n], arm - r)
      by_arm += wp.cross(wp.spatial_bottom(c), wp.spatial_top(t))
      if kind == SLIDE:
        by_axis += wp.spatial_bottom(c) * _rate(state.qvel, coords, row, world, d)
      elif kind == HINGE:
        by_axis += wp.spatial_top(c) * _rate(state.qvel, coords, row, world, d)
      else:
        torque += wp.cross(wp.spatial_top(t), wp.spatial_top(c))
      if row == 0:
        _add_rates(kind, axis, q, c, gradients.qvel, world, d)
      elif gradients.coords.shape[0] > 0:
        _add_rates(kind, axis, q, c, gradients.coords[row - 1], world, d)
    torque += wp.cross(axis, by_axis) + wp.cross(arm, by_arm)  # both turn with the node
    k = tree.jnt[n]
    if gradients.jnt_axis.shape[0] > 0 and (kind == SLIDE or kind == HINGE):
      wp.atomic_add(
        gradients.jnt_axis, world % gradients.jnt_axis.shape[0], k, unrotate(q, by_axis)
      )
    if gradients.jnt_pos.shape[0] > 0 and (kind == BALL or kind == HINGE):
      wp.atomic_add(gradients.jnt_pos, world % gradients.jnt_pos.shape[0], k, unrotate(q, -by_arm))
  force = cot_xpos[world, n] - by_arm
  # a rotation by w turns q by (0, w / 2) q
  torque += 0.5 * imag(mul(cot_xquat[world, n], conj(q))) + wp.cross(r, force)
  wrenches[world, n] = wp.spatial_vector(torque, force)


@functools.cache
def acceleration_kernel(velocities: Velocities, *, polar: bool) -> Kernel:
  """What each joint adds to the acceleration, and to its derivative, a thread per node."""

  @wp.kernel(module="unique")
  def joint_accelerations(
    # Model:
    tree: Tree,
    paths: Paths,
    frames: Frames,
    # Data in:
    state: State,
    # In:
    coords: wp.array3d[float],
    nodes: Nodes,
    joint: wp.array3d[wp.spatial_vector],
    whole: wp.array3d[wp.spatial_vector],
    # Out:
    out: wp.array3d[wp.spatial_vector],
  ):
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
    a = moved(twist(kind, axis, q, state.qacc, world, d), r) + _crossed(fv, tv)
    if kind == FREE:  # the axes of its rotations move with its translation
      lin = vec_at(state.qvel, world, d)
      a = a + wp.spatial_vector(wp.vec3(0.0), wp.cross(lin, wp.spatial_top(tv)))
    out[0, world, n] = a
    if wp.static(polar):
      tu = (
        joint[wp.static(1 + velocities.acceleration), world, n]
        - joint[wp.static(1 + velocities.implicit_right), world, n]
      )
      fu = (
        whole[wp.static(1 + velocities.acceleration), world, k]
        - whole[wp.static(1 + velocities.implicit_right), world, k]
      )
      p = _crossed(fv, tu) + _crossed(fu, tv)
      if kind == FREE:
        along = vec_at(coords[wp.static(velocities.acceleration)], world, d)
        along = along - vec_at(coords[wp.static(velocities.implicit_right)], world, d)
        turn = wp.cross(along, wp.spatial_top(tv)) + wp.cross(
          vec_at(state.qvel, world, d), wp.spatial_top(tu)
        )
        p = p + wp.spatial_vector(wp.vec3(0.0), turn)
      out[1, world, n] = p

  return joint_accelerations


@functools.cache
def motion_kernel(velocities: Velocities, *, polar: bool) -> Kernel:
  """Velocities, fields and accelerations at the nodes' origins, a thread per node."""

  @wp.kernel(enable_backward=False, module="unique")
  def node_motions(
    paths: Paths,
    whole: wp.array3d[wp.spatial_vector],
    rates: wp.array3d[wp.spatial_vector],
    out: Nodes,
  ):
    i, j = wp.tid()
    world, n = world_and_item(i, j, paths.world_fastest)
    n += 1
    r = out.xpos[world, n] - paths.points[world, paths.root[n]]
    v = moved(whole[0, world, n], r)
    om = wp.spatial_top(v)
    out.vel[world, n] = v
    a = moved(rates[0, world, n], r)
    lin = wp.spatial_bottom(a) + wp.cross(om, wp.spatial_bottom(v))
    out.acc[world, n] = wp.spatial_vector(wp.spatial_top(a), lin)
    for f in range(wp.static(velocities.count)):
      out.fields[f, world, n] = moved(whole[1 + f, world, n], r)
    if wp.static(polar):
      u = (
        out.fields[wp.static(velocities.acceleration), world, n]
        - out.fields[wp.static(velocities.implicit_right), world, n]
      )
      p = moved(rates[1, world, n], r)
      lin = wp.spatial_bottom(p) + wp.cross(wp.spatial_top(u), wp.spatial_bottom(v))
      lin = lin + wp.cross(om, wp.spatial_bottom(u))
      out.polar[world, n] = wp.spatial_vector(wp.spatial_top(p), lin)

  return node_motions


@functools.cache
def motion_adjoint_kernel(velocities: Velocities, *, polar: bool) -> Kernel:
  """The adjoint of `motion_kernel`, a thread per node; the cotangents are those in `given`."""

  @wp.kernel(enable_backward=False, module="unique")
  def node_motions_adjoint(
    # Model:
    paths: Paths,
    # In:
    whole: wp.array3d[wp.spatial_vector],
    rates: wp.array3d[wp.spatial_vector],
    out: Nodes,
    given: Nodes,
    # Out:
    grad_whole: wp.array3d[wp.spatial_vector],
    grad_rates: wp.array3d[wp.spatial_vector],
  ):
    i, j = wp.tid()
    world, n = world_and_item(i, j, paths.world_fastest)
    n += 1
    r = out.xpos[world, n] - paths.points[world, paths.root[n]]
    f = out.vel[world, n]
    om = wp.spatial_top(f)
    v = wp.spatial_bottom(f)
    c = given.acc[world, n]
    lin = wp.spatial_bottom(c)
    grad_rates[0, world, n] = _moved_adjoint(c, r)
    total = wp.cross(lin, wp.spatial_top(rates[0, world, n]))
    c = given.vel[world, n] + wp.spatial_vector(wp.cross(v, lin), wp.cross(lin, om))
    along = wp.spatial_vector()
    if wp.static(polar):
      p = given.polar[world, n]
      lin = wp.spatial_bottom(p)
      grad_rates[1, world, n] = _moved_adjoint(p, r)
      total += wp.cross(lin, wp.spatial_top(rates[1, world, n]))
      u = (
        out.fields[wp.static(velocities.acceleration), world, n]
        - out.fields[wp.static(velocities.implicit_right), world, n]
      )
      along = wp.spatial_vector(wp.cross(v, lin), wp.cross(lin, om))
      c += wp.spatial_vector(wp.cross(wp.spatial_bottom(u), lin), wp.cross(lin, wp.spatial_top(u)))
    grad_whole[0, world, n] = _moved_adjoint(c, r)
    total += wp.cross(wp.spatial_bottom(c), om)
    for row in range(wp.static(velocities.count)):
      c = given.fields[row, world, n]
      if wp.static(polar):
        if row == wp.static(velocities.acceleration):
          c += along
        elif row == wp.static(velocities.implicit_right):
          c -= along
      grad_whole[1 + row, world, n] = _moved_adjoint(c, r)
      total += wp.cross(wp.spatial_bottom(c), wp.spatial_top(out.fields[row, world, n]))
    given.xpos[world, n] = given.xpos[world, n] + total

  return node_motions_adjoint
