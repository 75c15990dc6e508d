"""What every joint node of the tree has: a pose, velocity fields and an acceleration.

`topology` says which nodes there are, `sweep` fills their arrays. A node's fields are spatial
vectors at its origin in world axes: `vel` of the velocity qvel, `acc` of (qvel, qacc) without
gravity, and `fields`, the velocity fields V(x) of the frozen generalised velocities x in `coords`
(`Velocities` numbers them).
"""

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE, HINGE, NONE, SLIDE
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import mul, rotate, unit_at, vec_at
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import SpatialVector, struct


@struct
class Tree:
  """The topology, shared by all worlds."""

  parent: wp.array[int]
  placed: wp.array[int]  # the body whose offset the node applies, or -1
  mocap: wp.array[int]  # the mocap body that the node is, or -1
  jnt: wp.array[int]  # or -1
  kind: wp.array[int]  # type of the joint, or -1
  qposadr: wp.array[int]
  dofadr: wp.array[int]
  of_body: wp.array[int]  # the node of each body
  free_root: wp.array[int]  # of each body: the node of the free rigid body that it is part of; -1
  world_fastest: bool  # see `Tape`


@struct
class Frames:
  """Offsets of bodies and joints: model fields, of one row or one a world."""

  body_pos: wp.array2d[wp.vec3]
  body_quat: wp.array2d[wp.quat]
  jnt_pos: wp.array2d[wp.vec3]
  jnt_axis: wp.array2d[wp.vec3]
  qpos0: wp.array2d[float]


@struct
class State:
  """Inputs of the step, and the acceleration that it solved for."""

  qpos: wp.array2d[float]
  qvel: wp.array2d[float]
  qacc: wp.array2d[float]
  mocap_pos: wp.array2d[wp.vec3]
  mocap_quat: wp.array2d[wp.quat]


@struct
class Nodes:
  """What the sweep writes, (nworld, nnode)."""

  xpos: wp.array2d[wp.vec3]
  xquat: wp.array2d[wp.quat]
  vel: wp.array2d[SpatialVector]
  acc: wp.array2d[SpatialVector]
  fields: wp.array3d[SpatialVector]  # (nfield, nworld, nnode)
  # the derivative of `acc` by the velocity along qacc - z, of the implicit integrator
  polar: wp.array2d[SpatialVector]


@wp.func
def twist(
  kind: int, axis: wp.vec3, q: wp.quat, x: wp.array2d[float], world: int, d: int
) -> wp.spatial_vector:
  """The velocity that a joint adds: the angular one, and the linear one of a translation."""
  ang = wp.vec3(0.0)
  lin = wp.vec3(0.0)
  if kind == FREE:
    lin = vec_at(x, world, d)
    ang = rotate(q, vec_at(x, world, d + 3))
  elif kind == BALL:
    ang = rotate(q, vec_at(x, world, d))
  elif kind == SLIDE:
    lin = axis * x[world, d]
  elif kind == HINGE:
    ang = axis * x[world, d]
  return wp.spatial_vector(ang, lin)


@wp.func
def placed(tree: Tree, frames: Frames, state: State, world: int, n: int, xk: wp.vec3, qk: wp.quat):
  """The pose of a node from its parent's."""
  kind = tree.kind[n]
  j = tree.jnt[n]
  i = tree.qposadr[n]
  b = tree.placed[n]
  x = xk
  q = qk
  if tree.mocap[n] >= 0:
    x = state.mocap_pos[world, tree.mocap[n]]
    q = state.mocap_quat[world, tree.mocap[n]]
  elif b >= 0:
    x = x + rotate(q, of_world(frames.body_pos, world, b))
    q = mul(q, of_world(frames.body_quat, world, b))
  if kind == FREE:
    x = vec_at(state.qpos, world, i)
    q = unit_at(state.qpos, world, i + 3)
  elif kind != NONE:
    local = of_world(frames.jnt_axis, world, j)
    offset = of_world(frames.jnt_pos, world, j)
    if kind == SLIDE:
      shift = state.qpos[world, i] - of_world(frames.qpos0, world, i)
      x = x + rotate(q, local) * shift
    else:
      x = x + rotate(q, offset)
      if kind == BALL:
        q = mul(q, unit_at(state.qpos, world, i))
      else:
        half = 0.5 * (state.qpos[world, i] - of_world(frames.qpos0, world, i))
        u = wp.sin(half) * local
        q = mul(q, wp.quat(wp.cos(half), u[0], u[1], u[2]))
      x = x - rotate(q, offset)
  return x, wp.normalize(q)


@wp.func
def joint_frame(tree: Tree, frames: Frames, world: int, n: int, q: wp.quat):
  """The axis of a node's joint in world axes, and the node's origin from the joint's anchor."""
  kind = tree.kind[n]
  j = tree.jnt[n]
  axis = wp.vec3(0.0)
  arm = wp.vec3(0.0)
  if kind == SLIDE or kind == HINGE:
    axis = rotate(q, of_world(frames.jnt_axis, world, j))
  if kind == BALL or kind == HINGE:
    arm = -rotate(q, of_world(frames.jnt_pos, world, j))
  return axis, arm
