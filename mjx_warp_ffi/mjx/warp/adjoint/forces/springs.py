"""The power of the springs of joints."""

import functools

import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import graded
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import State
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  mul,
  quat_at,
  rotation_vector,
  safe_length,
  unit_at,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Fields
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world


@wp.struct
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
def _spring(springs: Springs, world: int, j: int, x: float):
  """The stiffness of a joint's spring at the displacement x, and the derivative of its force."""
  poly = of_world(springs.jnt_stiffnesspoly, world, j)
  k = of_world(springs.jnt_stiffness, world, j)
  return graded(k, poly, x)


@wp.func
def _translation(springs: Springs, qpos: wp.array2d[float], world: int, i: int) -> wp.vec3:
  """The displacement of the spring of a free joint."""
  return vec_at(qpos, world, i) - vec_at(
    springs.qpos_spring, world % springs.qpos_spring.shape[0], i
  )


@wp.func
def _rotation(springs: Springs, qpos: wp.array2d[float], world: int, i: int) -> wp.vec3:
  """The displacement of a spring of rotation."""
  rest = quat_at(springs.qpos_spring, world % springs.qpos_spring.shape[0], i)
  return rotation_vector(mul(conj(rest), unit_at(qpos, world, i)))


@wp.func
def spring_slope(springs: Springs, qpos: wp.array2d[float], world: int, j: int, dof: int) -> float:
  """The derivative of the force of a joint's spring by its displacement along one of its dofs."""
  i = springs.jnt_qposadr[j]
  x = wp.float32(0.0)
  if springs.jnt_type[j] == FREE:
    if dof < 3:
      x = safe_length(_translation(springs, qpos, world, i))
    else:
      x = safe_length(_rotation(springs, qpos, world, i + 3))
  elif springs.jnt_type[j] == BALL:
    x = safe_length(_rotation(springs, qpos, world, i))
  else:
    x = qpos[world, i] - of_world(springs.qpos_spring, world, i)
  k, slope = _spring(springs, world, j, x)
  return slope


@functools.cache
def spring_kernel(fields: Fields, *, discrete: bool) -> wp.Kernel:
  """Springs of the joints, a thread per world and joint.

  The discrete step has beside the force -x k its change with the displacement h (v + h a).
  """

  @wp.func
  def change(
    springs: Springs, state: State, coords: wp.array3d[float], world: int, j: int, d: int, num: int
  ) -> float:
    """The power of the change of the force on the dofs from d, which have the same stiffness."""
    p = wp.float32(0.0)
    slope = spring_slope(springs, state.qpos, world, j, d - springs.jnt_dofadr[j])
    if slope >= 0.0:
      h = of_world(springs.timestep, world)
      w = coords[wp.static(fields.w)]
      if num == 3:
        moved = vec_at(state.qvel, world, d) + h * vec_at(state.qacc, world, d)
        p = -h * slope * wp.dot(moved, vec_at(w, world, d))
      else:
        p = -h * slope * (state.qvel[world, d] + h * state.qacc[world, d]) * w[world, d]
    return p

  @wp.kernel(module="unique")
  def spring_power(
    springs: Springs, state: State, coords: wp.array3d[float], power: wp.array2d[float]
  ):
    world, j = wp.tid()
    kind = springs.jnt_type[j]
    i = springs.jnt_qposadr[j]
    d = springs.jnt_dofadr[j]
    w = coords[wp.static(fields.k)]
    p = wp.float32(0.0)
    if kind == FREE:
      x = _translation(springs, state.qpos, world, i)
      k, slope = _spring(springs, world, j, safe_length(x))
      p = -k * wp.dot(x, vec_at(w, world, d))
      if wp.static(discrete):
        p = p + change(springs, state, coords, world, j, d, 3)
      i = i + 3
      d = d + 3
    if kind == FREE or kind == BALL:
      turn = _rotation(springs, state.qpos, world, i)
      k3, slope3 = _spring(springs, world, j, safe_length(turn))
      p = p - k3 * wp.dot(turn, vec_at(w, world, d))
      if wp.static(discrete):
        p = p + change(springs, state, coords, world, j, d, 3)
    else:
      x1 = state.qpos[world, i] - of_world(springs.qpos_spring, world, i)
      k1, slope1 = _spring(springs, world, j, x1)
      p = -k1 * x1 * w[world, d]
      if wp.static(discrete):
        p = p + change(springs, state, coords, world, j, d, 1)
    power[world, j] = p

  return spring_power


def record(step) -> Springs:
  """Records the springs of a `StageAdjoint`."""
  tape, m, flags = step.tape, step.m, step.m.opt.disableflags
  ints = {f: getattr(m, f) for f in ("jnt_type", "jnt_qposadr", "jnt_dofadr")}
  names = ["jnt_stiffness", "jnt_stiffnesspoly", "qpos_spring", "opt.timestep"]
  springs = tape.struct(Springs, **step.leaves(*names), **ints)
  if not flags & DisableBit.SPRING:
    inputs = [springs, step.state, step.sweep.coords]
    kernel = spring_kernel(step.fields, discrete=step.discrete)
    tape.power(kernel, (tape.nworld, m.njnt), inputs=inputs)
  return springs
