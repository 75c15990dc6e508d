"""DC motors: voltage, current, temperature and the friction of their bearings.

A motor has up to five activations, in this order: the control behind a limit of its rate, the
integral of the controller's error, the temperature, the deflection of the bristles of LuGre
friction, and the current. Those that a motor lacks have a place of -1.
"""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import (
  MJ_MINVAL,
  BiasType,
  DisableBit,
  DynType,
  GainType,
  IntegratorType,
  vec10,
)

from mjx_warp_ffi.mjx.warp.adjoint.actuation.drives import Actuators, Drives, clamp, control
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import magnitude
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Motors:
  """The motors, and where their activations are."""

  integrate: bool  # whether the activations after the step are wanted, or their rates
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
  prm = of_world(a.actuator_gainprm, world, i)
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


@wp.func
def _warm(dyn: vec10, hot: float, amperes: float, resistance: float) -> float:
  """The rate of the temperature."""
  return (resistance * amperes * amperes - hot / dyn[2]) / dyn[3]


@wp.func
def _bend(dyn: vec10, bias: vec10, z: float, velocity: float, h: float):
  """The deflection of the bristles after the step, and its rate."""
  decay = _bristles(dyn, bias, velocity)
  grown = wp.exp(decay * h)
  span = h
  if wp.abs(decay) > MJ_MINVAL:
    span = (grown - 1.0) / decay
  return grown * z + span * velocity, decay * z + velocity


@wp.func
def _flow(dyn: vec10, amperes: float, settled: float, h: float):
  """The current after the step, its rate, and the derivative of the former by the settled one."""
  rate = (settled - amperes) / dyn[0]
  share = 1.0 - wp.exp(-h / dyn[0])
  free = share
  if dyn[1] > 0.0:
    if wp.abs(rate) >= dyn[1]:
      free = 0.0
    rate = clamp(rate, wp.vec2(-dyn[1], dyn[1]))
  return amperes + rate * dyn[0] * share, rate, free


@wp.func
def _steer(
  a: Actuators,
  act: wp.array2d[float],
  motors: Motors,
  world: int,
  it: int,
  u: float,
  length: float,
  h: float,
):
  """The control within its rate with that rate, and the integral with its next value and rate."""
  dyn = of_world(a.actuator_dynprm, world, motors.which[it])
  eased = u
  speed = wp.float32(0.0)
  if motors.slew[it] >= 0:
    before = act[world, motors.slew[it]]
    eased = clamp(u, wp.vec2(before - h * dyn[7], before + h * dyn[7]))
    speed = (eased - before) / h
  integral = wp.float32(0.0)
  rate = wp.float32(0.0)
  later = wp.float32(0.0)
  if motors.integral[it] >= 0:
    integral = act[world, motors.integral[it]]
    rate = _integral_rate(integral, eased - length, dyn[8])
    later = integral + h * rate
    if dyn[8] > 0.0:
      later = clamp(later, wp.vec2(-dyn[8], dyn[8]))
  return eased, speed, integral, later, rate


@wp.func
def _kept(motors: Motors, later: float, rate: float) -> float:
  """What is kept of an activation."""
  x = rate
  if motors.integrate:
    x = later
  return x


@wp.kernel(module="unique")
def motor(
  # In:
  a: Actuators,
  act: wp.array2d[float],
  ctrl: wp.array2d[float],
  rates: Rates,
  motors: Motors,
  # Out:
  out: Drives,
):
  """Forces before their limits, and activations; a thread per world and motor."""
  world, it = wp.tid()
  i = motors.which[it]
  h = of_world(a.timestep, world)
  dyn = of_world(a.actuator_dynprm, world, i)
  prm = of_world(a.actuator_gainprm, world, i)
  bias = of_world(a.actuator_biasprm, world, i)
  length = rates.length[world, i]
  v = rates.velocity[world, i]
  raw = control(a, ctrl, world, i)
  u, speed, integral, summed, error = _steer(a, act, motors, world, it, raw, length, h)
  if motors.slew[it] >= 0:
    out.act[world, motors.slew[it]] = _kept(motors, u, speed)
  if motors.integral[it] >= 0:
    out.act[world, motors.integral[it]] = _kept(motors, summed, error)
  volts, loop = _voltage(a, ctrl, world, i, u, length, v, integral)
  ohms = prm[0]
  if motors.heat[it] >= 0:
    hot = act[world, motors.heat[it]]
    ohms = prm[0] * (1.0 + prm[2] * (hot + dyn[4] - prm[3]))
    amperes = (volts - prm[1] * v) / ohms
    if motors.current[it] >= 0:
      amperes = act[world, motors.current[it]]
    warming = _warm(dyn, hot, amperes, ohms)
    out.act[world, motors.heat[it]] = _kept(motors, hot + h * warming, warming)
  turn = bias[1] * length + bias[2]
  extra = bias[0] * wp.sin(turn)
  if motors.bristle[it] >= 0:
    z = act[world, motors.bristle[it]]
    bent, bend = _bend(dyn, bias, z, v, h)
    out.act[world, motors.bristle[it]] = _kept(motors, bent, bend)
    extra = extra - dyn[5] * z - dyn[6] * bend
    out.loose_velocity[world, i] = -dyn[6]
  settled = (volts - prm[1] * v) / ohms
  current = settled
  free = wp.float32(1.0)
  if motors.current[it] >= 0:
    current = act[world, motors.current[it]]
    later, flow, share = _flow(dyn, current, settled, h)
    out.act[world, motors.current[it]] = _kept(motors, later, flow)
    free = 0.0
    if a.actearly[i]:
      current = later
      free = share
  gain = prm[1] / ohms * free
  out.force[world, i] = prm[1] * current
  out.extra[world, i] = extra
  out.by_length[world, i] = -loop * gain * prm[4] * prm[0] / prm[1]
  out.by_velocity[world, i] = gain * (loop * (prm[1] - prm[6] * prm[0] / prm[1]) - prm[1])
  out.loose_length[world, i] = bias[0] * bias[1] * wp.cos(turn)


def _places(mjm: mujoco.MjModel, which: np.ndarray) -> dict[str, np.ndarray]:
  """Where the activations of the motors are."""
  # of the model as it was compiled: the arrays that a call fills in hold nothing yet
  dyn, prm = mjm.actuator_dynprm[which], mjm.actuator_gainprm[which]
  has = np.stack([dyn[:, 7], prm[:, 5], dyn[:, 2], dyn[:, 5], dyn[:, 0]], axis=1) > 0
  adr = mjm.actuator_actadr[which, None] + np.cumsum(has, axis=1) - 1
  names = ("slew", "integral", "heat", "bristle", "current")
  return dict(zip(names, np.where(has, adr, -1).T, strict=True))


def record(rec: Recording, inputs: list, *, drives: Drives, integrate: bool) -> None:
  """Records the DC motors, if there are any.

  Args:
    rec: the recording.
    inputs: those of the kernel of `actuators.drive_kernel`, but for its last.
    drives: where forces and activations go.
    integrate: whether the activations after the step are wanted, or their rates.
  """
  m, tape = rec.m, rec.tape
  which = np.flatnonzero(m.actuator_gaintype.numpy() == GainType.DCMOTOR)
  if not len(which):
    return
  arrays = {k: rec.constant(x) for k, x in _places(rec.mjm, which).items()}
  arrays["which"] = rec.constant(which)
  motors = tape.struct(Motors, integrate=integrate, **arrays)
  tape.launch(motor, (tape.nworld, len(which)), inputs=[*inputs, motors, drives], outputs=[])


def missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal for each feature of DC motors that has no rule."""
  gain, bias, dyn = (getattr(m, f"actuator_{f}type").numpy() for f in ("gain", "bias", "dyn"))
  motor = gain == GainType.DCMOTOR
  mixed = motor != (bias == BiasType.DCMOTOR)
  mixed |= ~motor & (dyn == DynType.DCMOTOR)
  mixed |= motor & (dyn != DynType.DCMOTOR) & (dyn != DynType.NONE)
  if np.any(mixed) or np.any(motor & m.actuator_actlimited.numpy()):
    yield "DC motors with other gains, biases or limits of their activations"
  active = (dyn == DynType.DCMOTOR) & (m.actuator_actnum.numpy() > 0)
  if m.opt.disableflags & DisableBit.ACTUATION and np.any(active):
    yield "activations of DC motors with actuation off"
  if m.opt.integrator == IntegratorType.RK4 and np.any(active):
    # MJWarp advances them by a whole step in every stage, C MuJoCo as far as the stage goes
    yield "RK4 with activations of DC motors"


PART = Part(
  parameters=(
    *("actuator_dynprm", "actuator_gainprm", "actuator_biasprm", "actuator_ctrlrange"),
    "opt.timestep",
  ),
  missing=missing,
)
