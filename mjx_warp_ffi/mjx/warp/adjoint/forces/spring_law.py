"""The law of the springs of joints: how far one is displaced, and how stiff it is there."""

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import graded
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  mul,
  quat_at,
  rotation_vector,
  safe_length,
  unit_at,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Springs:
  """Springs of the joints: model fields."""

  timestep: wp.array[float]
  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]
  jnt_dofadr: wp.array[int]
  jnt_stiffness: wp.array2d[float]
  jnt_stiffnesspoly: wp.array2d[wp.vec2]
  qpos_spring: wp.array2d[float]


@wp.func
def spring_stiffness(springs: Springs, world: int, j: int, x: float):
  """The stiffness of a joint's spring at the displacement x, and the derivative of its force."""
  poly = of_world(springs.jnt_stiffnesspoly, world, j)
  k = of_world(springs.jnt_stiffness, world, j)
  return graded(k, poly, x)


@wp.func
def spring_translation(springs: Springs, qpos: wp.array2d[float], world: int, i: int) -> wp.vec3:
  """The displacement of the spring of a free joint whose position starts at i in qpos."""
  return vec_at(qpos, world, i) - vec_at(
    springs.qpos_spring, world % springs.qpos_spring.shape[0], i
  )


@wp.func
def spring_rotation(springs: Springs, qpos: wp.array2d[float], world: int, i: int) -> wp.vec3:
  """The displacement of a spring of rotation whose quaternion starts at i in qpos."""
  rest = quat_at(springs.qpos_spring, world % springs.qpos_spring.shape[0], i)
  return rotation_vector(mul(conj(rest), unit_at(qpos, world, i)))


@wp.func
def spring_slope(springs: Springs, qpos: wp.array2d[float], world: int, j: int, dof: int) -> float:
  """The derivative of the force of a joint's spring by its displacement along one of its dofs."""
  i = springs.jnt_qposadr[j]
  x = wp.float32(0.0)
  if springs.jnt_type[j] == FREE:
    if dof < 3:
      x = safe_length(spring_translation(springs, qpos, world, i))
    else:
      x = safe_length(spring_rotation(springs, qpos, world, i + 3))
  elif springs.jnt_type[j] == BALL:
    x = safe_length(spring_rotation(springs, qpos, world, i))
  else:
    x = qpos[world, i] - of_world(springs.qpos_spring, world, i)
  k, slope = spring_stiffness(springs, world, j, x)
  return slope


def make_springs(rec: Recording) -> Springs:
  """The springs of the joints, for kernels."""
  return rec.tape.struct(
    Springs,
    **rec.leaves("jnt_stiffness", "jnt_stiffnesspoly", "qpos_spring", "opt.timestep"),
    **rec.fixed("jnt_type", "jnt_qposadr", "jnt_dofadr"),
  )
