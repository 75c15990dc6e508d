"""DC motors: voltage, current, temperature and the friction of their bearings.

A motor has up to five activations, in this order: the control behind a limit of its rate, the
integral of the controller's error, the temperature, the deflection of the bristles of LuGre
friction, and the current. Those that a motor lacks have a place of -1.
"""

import functools

import numpy as np
import warp as wp
from mujoco_warp._src.types import MJ_MINVAL, GainType, vec10

from mjx_warp_ffi.mjx.warp.adjoint.drives import Actuators, Drives, clamp, control
from mjx_warp_ffi.mjx.warp.adjoint.rates import Rates
from mjx_warp_ffi.mjx.warp.adjoint.spatial import magnitude


@wp.struct
class Motors:
  """The motors, and where their activations are."""

  which: wp.array[int]
  slew: wp.array[int]
  integral: wp.array[int]
  heat: wp.array[int]
  bristle: wp.array[int]
  current: wp.array[int]


@wp.func
def _input(ctrl: wp.array2d[float], world: int, first: int, k: int, u: float) -> float:
  """The control at k, of which the first was clamped to u."""
  y = u
  if k > first:
    y = ctrl[world, k]
  return y


@wp.func
def _voltage(
  a: Actuators,
  ctrl: wp.array2d[float],
  world: int,
  i: int,
  u: float,
  length: float,
  velocity: float,
  integral: float,
):
  """The voltage, and one if the controller has it and is not at its limit."""
  prm = a.actuator_gainprm[world % a.actuator_gainprm.shape[0], i]
  spec = a.ctrlspec[i]
  voltage = u
  loop = wp.float32(0.0)
  if (spec & 7) != 0:
    first = a.ctrladr[i]
    k = wp.int32(first)
    torque = prm[5] * integral - prm[4] * length - prm[6] * velocity
    if (spec & 1) != 0:
      torque = torque + prm[4] * u
      k = k + 1
    if (spec & 2) != 0:
      torque = torque + prm[6] * _input(ctrl, world, first, k, u)
      k = k + 1
    if (spec & 4) != 0:
      torque = torque + _input(ctrl, world, first, k, u)
      k = k + 1
    voltage = prm[0] / prm[1] * torque + prm[1] * velocity
    loop = 1.0
    if prm[7] > 0.0:
      if wp.abs(voltage) >= prm[7]:
        loop = 0.0
      voltage = clamp(voltage, wp.vec2(-prm[7], prm[7]))
    if (spec & 8) != 0:
      voltage = voltage + _input(ctrl, world, first, k, u)
  if a.ctrlnum[i] == 0:
    voltage = 0.0
  return voltage, loop


@wp.func
def _bristles(dyn: vec10, bias: vec10, velocity: float) -> float:
  """The rate at which the deflection of the bristles decays."""
  ratio = velocity / wp.max(MJ_MINVAL, bias[5])
  g = bias[3] + (bias[4] - bias[3]) * wp.exp(-ratio * ratio)
  return -dyn[5] * magnitude(velocity) / wp.max(MJ_MINVAL, g)


@wp.func
def _integral_rate(x: float, rate: float, most: float) -> float:
  """The rate of the integral, which stops at its limits."""
  y = rate
  if most > 0.0:
    if (x >= most and rate > 0.0) or (x <= -most and rate < 0.0):
      y = 0.0
  return y


@functools.cache
def motor_kernel(*, integrate: bool) -> wp.Kernel:
  """Forces before their limits, and activations; a thread per world and motor."""

  @wp.func
  def kept(later: float, rate: float) -> float:
    return later if wp.static(integrate) else rate

  @wp.kernel(module="unique")
  def motor(
    a: Actuators,
    act: wp.array2d[float],
    ctrl: wp.array2d[float],
    rates: Rates,
    motors: Motors,
    out: Drives,
  ):
    world, it = wp.tid()
    i = motors.which[it]
    h = a.timestep[world % a.timestep.shape[0]]
    dyn = a.actuator_dynprm[world % a.actuator_dynprm.shape[0], i]
    prm = a.actuator_gainprm[world % a.actuator_gainprm.shape[0], i]
    bias = a.actuator_biasprm[world % a.actuator_biasprm.shape[0], i]
    length = rates.length[world, i]
    velocity = rates.velocity[world, i]
    u = control(a, ctrl, world, i)
    j = motors.slew[it]
    if j >= 0:
      before = act[world, j]
      u = clamp(u, wp.vec2(before - h * dyn[7], before + h * dyn[7]))
      out.act[world, j] = kept(u, (u - before) / h)
    integral = wp.float32(0.0)
    j = motors.integral[it]
    if j >= 0:
      integral = act[world, j]
      rate = _integral_rate(integral, u - length, dyn[8])
      later = integral + h * rate
      if dyn[8] > 0.0:
        later = clamp(later, wp.vec2(-dyn[8], dyn[8]))
      out.act[world, j] = kept(later, rate)
    voltage, loop = _voltage(a, ctrl, world, i, u, length, velocity, integral)
    resistance = prm[0]
    j = motors.heat[it]
    if j >= 0:
      hot = act[world, j]
      resistance = prm[0] * (1.0 + prm[2] * (hot + dyn[4] - prm[3]))
      amperes = (voltage - prm[1] * velocity) / resistance
      if motors.current[it] >= 0:
        amperes = act[world, motors.current[it]]
      warming = (resistance * amperes * amperes - hot / dyn[2]) / dyn[3]
      out.act[world, j] = kept(hot + h * warming, warming)
    extra = wp.float32(0.0)
    loose = wp.float32(0.0)
    j = motors.bristle[it]
    if j >= 0:
      z = act[world, j]
      decay = _bristles(dyn, bias, velocity)
      bend = decay * z + velocity
      grown = wp.exp(decay * h)
      span = h
      if wp.abs(decay) > MJ_MINVAL:
        span = (grown - 1.0) / decay
      out.act[world, j] = kept(grown * z + span * velocity, bend)
      extra = -dyn[5] * z - dyn[6] * bend
      loose = -dyn[6]
    gain = prm[1] / resistance
    force = gain * (voltage - prm[1] * velocity)
    by_length = -loop * gain * prm[4] * prm[0] / prm[1]
    by_velocity = loop * gain * (prm[1] - prm[6] * prm[0] / prm[1]) - gain * prm[1]
    j = motors.current[it]
    if j >= 0:
      amps = act[world, j]
      flow = ((voltage - prm[1] * velocity) / resistance - amps) / dyn[0]
      bounded = wp.float32(1.0)
      if dyn[1] > 0.0:
        if wp.abs(flow) >= dyn[1]:
          bounded = 0.0
        flow = clamp(flow, wp.vec2(-dyn[1], dyn[1]))
      share = 1.0 - wp.exp(-h / dyn[0])
      next_amps = amps + flow * dyn[0] * share
      out.act[world, j] = kept(next_amps, flow)
      force = prm[1] * amps
      if a.actearly[i]:
        force = prm[1] * next_amps
        by_length = by_length * bounded * share
        by_velocity = by_velocity * bounded * share
      else:
        by_length = 0.0
        by_velocity = 0.0
    turn = bias[1] * length + bias[2]
    out.force[world, i] = force
    out.extra[world, i] = extra + bias[0] * wp.sin(turn)
    out.by_length[world, i] = by_length
    out.by_velocity[world, i] = by_velocity
    out.loose_length[world, i] = bias[0] * bias[1] * wp.cos(turn)
    out.loose_velocity[world, i] = loose

  return motor


def _places(m, which: np.ndarray) -> dict[str, np.ndarray]:
  """Where the activations of the motors are."""
  dyn, prm = m.actuator_dynprm.numpy()[0, which], m.actuator_gainprm.numpy()[0, which]
  has = np.stack([dyn[:, 7], prm[:, 5], dyn[:, 2], dyn[:, 5], dyn[:, 0]], axis=1) > 0
  adr = m.actuator_actadr.numpy()[which, None] + np.cumsum(has, axis=1) - 1
  names = ("slew", "integral", "heat", "bristle", "current")
  return dict(zip(names, np.where(has, adr, -1).T, strict=True))


def record(step, inputs: list, *, drives: Drives) -> None:
  """Records the motors of a `StageAdjoint`; inputs are those of `actuators.drive`."""
  m, tape = step.m, step.tape
  which = np.flatnonzero(m.actuator_gaintype.numpy() == int(GainType.DCMOTOR))
  if not len(which):
    return
  arrays = {k: step.constant(x) for k, x in _places(m, which).items()}
  motors = tape.struct(Motors, which=step.constant(which), **arrays)
  kernel = motor_kernel(integrate=step.integrate)
  dim = (tape.nworld, len(which))
  tape.launch(kernel, dim, inputs=[*inputs, motors, drives], outputs=[])
