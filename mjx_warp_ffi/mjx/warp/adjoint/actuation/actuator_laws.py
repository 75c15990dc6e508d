"""The laws of actuators: gains, biases and activations, and their derivatives as MJWarp takes them.

DC motors have laws of their own, see `dc_motors`.
"""

import warp as wp
from mujoco_warp._src import util_misc
from mujoco_warp._src.forward import _wrap_period
from mujoco_warp._src.types import BiasType, DynType, GainType

from mjx_warp_ffi.mjx.warp.adjoint.actuation.drives import Actuators, clamp, control
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world


@wp.func
def setpoint_period(a: Actuators, world: int, i: int) -> float:
  """The period of the setpoint of a servo of rotation, or 0."""
  return _wrap_period(
    a.jnt_type,
    a.trntype[i],
    a.dyntype[i],
    a.gaintype[i],
    a.biastype[i],
    a.trnid[i],
    of_world(a.actuator_gainprm, world, i),
    of_world(a.actuator_biasprm, world, i),
    of_world(a.actuator_gear, world, i),
  )


@wp.func
def nearest(x: float, centre: float, period: float) -> float:
  """The number, moved by periods to where it is nearest to another."""
  y = x
  if period > 0.0:
    y = x - period * wp.round((x - centre) / period)
  return y


@wp.func
def _act_dot(a: Actuators, world: int, i: int, act: float, ctrl: float, period: float) -> float:
  """The rate of the activation."""
  prm = of_world(a.actuator_dynprm, world, i)
  kind = a.dyntype[i]
  rate = wp.float32(0.0)
  if kind == DynType.INTEGRATOR:
    rate = ctrl
  elif kind == DynType.FILTER or kind == DynType.FILTEREXACT:
    rate = (nearest(ctrl, act, period) - act) / wp.max(prm[0], 1.0e-15)
  elif kind == DynType.MUSCLE:
    rate = util_misc.muscle_dynamics(ctrl, act, prm)
  return rate


@wp.func
def _next(a: Actuators, world: int, i: int, act: float, rate: float) -> float:
  """The activation after the step."""
  h = of_world(a.timestep, world)
  prm = of_world(a.actuator_dynprm, world, i)
  x = act + h * rate
  if a.dyntype[i] == DynType.FILTEREXACT:
    tau = wp.max(1.0e-15, prm[0])
    x = act + rate * tau * (1.0 - wp.exp(-h / tau))
  if a.actlimited[i]:
    x = clamp(x, of_world(a.actuator_actrange, world, i))
  return x


@wp.func
def gain_of(a: Actuators, world: int, i: int, length: float, velocity: float) -> float:
  """The factor of the activation or control."""
  prm = of_world(a.actuator_gainprm, world, i)
  gain = prm[0]
  if a.gaintype[i] == GainType.AFFINE:
    gain = prm[0] + prm[1] * length + prm[2] * velocity
  elif a.gaintype[i] == GainType.MUSCLE:
    limits = of_world(a.actuator_lengthrange, world, i)
    acc0 = of_world(a.actuator_acc0, world, i)
    gain = util_misc.muscle_gain(length, velocity, limits, acc0, prm)
  return gain


@wp.func
def bias_of(a: Actuators, world: int, i: int, length: float, velocity: float) -> float:
  """The force without activation or control."""
  prm = of_world(a.actuator_biasprm, world, i)
  bias = wp.float32(0.0)
  if a.biastype[i] == BiasType.AFFINE:
    bias = prm[0] + prm[1] * length + prm[2] * velocity
  elif a.biastype[i] == BiasType.MUSCLE:
    limits = of_world(a.actuator_lengthrange, world, i)
    acc0 = of_world(a.actuator_acc0, world, i)
    bias = util_misc.muscle_bias(length, limits, acc0, prm)
  return bias


@wp.func
def velocity_slope(
  a: Actuators, world: int, i: int, length: float, velocity: float, x: float
) -> float:
  """The derivative of the force by the velocity, as implicitfast takes it."""
  slope = wp.float32(0.0)
  prm = of_world(a.actuator_gainprm, world, i)
  if a.gaintype[i] == GainType.AFFINE:
    slope = prm[2] * x
  elif a.gaintype[i] == GainType.MUSCLE:
    limits = of_world(a.actuator_lengthrange, world, i)
    acc0 = of_world(a.actuator_acc0, world, i)
    slope = util_misc.muscle_gain_vel_deriv(length, velocity, limits, acc0, prm) * x
  if a.biastype[i] == BiasType.AFFINE:
    slope = slope + of_world(a.actuator_biasprm, world, i)[2]
  return slope


@wp.func
def length_slope(
  a: Actuators, world: int, i: int, length: float, velocity: float, x: float
) -> float:
  """The derivative of the force by the length, as the discrete step takes it."""
  slope = wp.float32(0.0)
  limits = of_world(a.actuator_lengthrange, world, i)
  acc0 = of_world(a.actuator_acc0, world, i)
  prm = of_world(a.actuator_gainprm, world, i)
  if a.gaintype[i] == GainType.AFFINE:
    slope = prm[1] * x
  elif a.gaintype[i] == GainType.MUSCLE:
    slope = util_misc.muscle_gain_len_deriv(length, velocity, limits, acc0, prm) * x
  bias = of_world(a.actuator_biasprm, world, i)
  if a.biastype[i] == BiasType.AFFINE:
    slope = slope + bias[1]
  elif a.biastype[i] == BiasType.MUSCLE:
    slope = slope + util_misc.muscle_bias_len_deriv(length, limits, acc0, bias)
  return slope


@wp.func
def driven(
  a: Actuators,
  act: wp.array2d[float],
  ctrl: wp.array2d[float],
  world: int,
  i: int,
  length: float,
  period: float,
):
  """What the gain multiplies, and the rate and next value of the activation."""
  u = control(a, ctrl, world, i)
  x = u
  rate = wp.float32(0.0)
  later = wp.float32(0.0)
  j = a.actadr[i]
  if j >= 0:
    now = act[world, j]
    rate = _act_dot(a, world, i, now, u, period)
    later = _next(a, world, i, now, rate)
    x = now
    if a.actearly[i]:
      x = later
    later = nearest(later, length, period)
  return x, rate, later
