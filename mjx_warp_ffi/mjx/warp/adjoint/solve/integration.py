"""The adjoint of the integration of velocities and positions, in closed form.

v' = v + h a' and q' = q (+) h v'. For a quaternion q' = q exp(r) with r = h v' in body axes: with
the cotangent d of q' as a rotation about its body axes, that of r is Jr(r)^T d, with the right
Jacobian Jr of the exponential, and that of q, about its own body axes, is exp(r) d. Warp's reverse
mode through the normalised axis of r would give zero at rest instead. (Sola et al., A micro Lie
theory for state estimation in robotics, 2018, equations 143 and 147.)
"""

import warp as wp
from mujoco_warp._src.types import JointType

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  imag,
  mul,
  pure,
  quat_at,
  rotate,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False})


@wp.func
def exp_quat(r: wp.vec3) -> wp.quat:
  """The unit quaternion of a rotation vector."""
  s2 = wp.dot(r, r)
  c = 0.0
  k = 0.0
  if s2 < 1.0e-4:
    c = 1.0 - s2 * (0.125 - s2 / 384.0)
    k = 0.5 - s2 / 48.0
  else:
    s = wp.sqrt(s2)
    c = wp.cos(0.5 * s)
    k = wp.sin(0.5 * s) / s
  return wp.quat(c, k * r[0], k * r[1], k * r[2])


@wp.func
def right_jacobian_t(r: wp.vec3, d: wp.vec3) -> wp.vec3:
  """Jr(r)^T d, with Jr = 1 - (1 - cos s)/s^2 [r] + (s - sin s)/s^3 [r]^2."""
  s2 = wp.dot(r, r)
  b = 0.5 - s2 * (0.041666668 - s2 * 0.0013888889)
  c = 0.16666667 - s2 * (0.008333334 - s2 * 0.00019841270)
  if s2 > 0.25:
    s = wp.sqrt(s2)
    b = (1.0 - wp.cos(s)) / s2
    c = (s - wp.sin(s)) / (s2 * s)
  rd = wp.cross(r, d)
  return d + b * rd + c * wp.cross(r, rd)


@struct
class Integration:
  """What the step integrated, and the cotangents of the result."""

  timestep: wp.array[float]
  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]
  jnt_dofadr: wp.array[int]
  qpos: wp.array2d[float]
  qvel: wp.array2d[float]
  qacc: wp.array2d[float]  # a', after the implicit solve
  cot_qpos: wp.array2d[float]
  cot_qvel: wp.array2d[float]


@wp.func
def turned_adjoint(q: wp.quat, r: wp.vec3, cotangent: wp.quat):
  """The cotangents of a quaternion of any length and of the rotation vector that turns it."""
  step = exp_quat(r)
  tangent = 0.5 * imag(mul(conj(mul(wp.normalize(q), step)), cotangent))
  scale = 2.0 / wp.max(wp.dot(q, q), 1.0e-30)
  return scale * mul(q, pure(rotate(step, tangent))), right_jacobian_t(r, tangent)


@wp.func
def _turn(
  s: Integration, world: int, i: int, d: int, h: float, grad_qpos: wp.array2d[float]
) -> wp.vec3:
  """Writes the gradient of a quaternion; the cotangent of its rotation vector h v'."""
  r = h * (vec_at(s.qvel, world, d) + h * vec_at(s.qacc, world, d))
  g, turn = turned_adjoint(quat_at(s.qpos, world, i), r, quat_at(s.cot_qpos, world, i))
  for k in range(4):
    grad_qpos[world, i + k] = g[k]
  return turn


@wp.func
def _straight(s: Integration, world: int, d: int, h: float, x: float, out: wp.array2d[float]):
  """The gradient of one velocity from the cotangent x of the displacement h v'."""
  out[world, d] = s.cot_qvel[world, d] + h * x


@wp.kernel
def integrate_adjoint(
  s: Integration,
  # Out:
  grad_qpos: wp.array2d[float],
  grad_qvel: wp.array2d[float],
):
  """Writes the direct gradients of qpos and qvel, a thread per world and joint.

  That of qvel is the whole cotangent of v', so the one of a' is h times it.
  """
  world, j = wp.tid()
  h = of_world(s.timestep, world)
  kind = s.jnt_type[j]
  i = s.jnt_qposadr[j]
  d = s.jnt_dofadr[j]
  if kind == JointType.FREE:
    for k in range(3):
      grad_qpos[world, i + k] = s.cot_qpos[world, i + k]
      _straight(s, world, d + k, h, s.cot_qpos[world, i + k], grad_qvel)
    turn = _turn(s, world, i + 3, d + 3, h, grad_qpos)
    for k in range(3):
      _straight(s, world, d + 3 + k, h, turn[k], grad_qvel)
  elif kind == JointType.BALL:
    turn = _turn(s, world, i, d, h, grad_qpos)
    for k in range(3):
      _straight(s, world, d + k, h, turn[k], grad_qvel)
  else:
    grad_qpos[world, i] = s.cot_qpos[world, i]
    _straight(s, world, d, h, s.cot_qpos[world, i], grad_qvel)


@wp.kernel
def timestep_adjoint(
  # In:
  s: Integration,
  grad_qvel: wp.array2d[float],
  cot_time: wp.array[float],
  # Out:
  grad_timestep: wp.array[float],
):
  """Adds the direct gradient of the timestep, a thread a world; after `integrate_adjoint`.

  The displacement h v' has the cotangent x that made grad_qvel = cot_qvel + h x.
  """
  world = wp.tid()
  h = of_world(s.timestep, world)
  total = cot_time[world]
  for d in range(s.qvel.shape[1]):
    x = (grad_qvel[world, d] - s.cot_qvel[world, d]) / h
    total += x * (s.qvel[world, d] + h * s.qacc[world, d]) + grad_qvel[world, d] * s.qacc[world, d]
  wp.atomic_add(grad_timestep, world % grad_timestep.shape[0], total)


@wp.kernel
def acceleration_cotangent(
  timestep: wp.array[float], grad_qvel: wp.array2d[float], out: wp.array2d[float]
):
  """The cotangent of a': h times that of v'."""
  world, d = wp.tid()
  out[world, d] = of_world(timestep, world) * grad_qvel[world, d]


@wp.kernel
def impratio_gradient(invsqrt: wp.array[float], grad: wp.array[float]):
  """Turns the gradient of 1/sqrt(impratio) into that of impratio."""
  i = wp.tid()
  grad[i] = -0.5 * invsqrt[i] * invsqrt[i] * invsqrt[i] * grad[i]


def make_integration(rec: Recording, qacc: wp.array) -> Integration:
  """What the integration reads; `qacc` is the acceleration that the step integrates."""
  m, d, out = rec.m, rec.d, Integration()
  out.timestep = m.opt.timestep
  out.jnt_type, out.jnt_qposadr, out.jnt_dofadr = m.jnt_type, m.jnt_qposadr, m.jnt_dofadr
  out.qpos, out.qvel, out.qacc = d.qpos, d.qvel, qacc
  out.cot_qpos, out.cot_qvel = rec.cotangents["qpos"], rec.cotangents["qvel"]
  return out


def differentiate(rec: Recording, integration: Integration, *, out: wp.array) -> None:
  """Runs the adjoint of the integration.

  It writes the direct gradients of positions and velocities, adds that of the time step, and writes
  the cotangent of the integrated acceleration to `out`, (nworld, nv).
  """
  d, m, gradients = rec.d, rec.m, rec.gradients
  qvel = gradients["qvel"]
  outputs = [gradients["qpos"], qvel]
  wp.launch(integrate_adjoint, (d.nworld, m.njnt), inputs=[integration], outputs=outputs)
  wp.launch(acceleration_cotangent, out.shape, inputs=[m.opt.timestep, qvel], outputs=[out])
  if "opt.timestep" in rec.wrt:
    inputs = [integration, qvel, rec.cotangents["time"]]
    outputs = [gradients["opt.timestep"]]
    wp.launch(timestep_adjoint, d.nworld, inputs=inputs, outputs=outputs)
