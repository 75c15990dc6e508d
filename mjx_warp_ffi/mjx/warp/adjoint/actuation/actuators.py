"""The power of actuators and the cotangent of their activations.

`record` needs the tendons' rates. An actuator's length and its rates along every carried velocity
come from its transmission; the force is a function of length, velocity, activation and control.
Limits come after it: those of the sum of the forces on a tendon, then those of the actuator.
"""

import functools

import numpy as np
import warp as wp
from mujoco_warp._src import util_misc
from mujoco_warp._src.forward import _wrap_period
from mujoco_warp._src.types import (
  BiasType,
  DisableBit,
  DynType,
  GainType,
  TrnType,
)

from mjx_warp_ffi.mjx.warp.adjoint.actuation import dc_motors, force_limits
from mjx_warp_ffi.mjx.warp.adjoint.actuation.drives import (
  Actuators,
  Drives,
  clamp,
  control,
  make_drives,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates, Slopes, further_force, not_positive
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Fields
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world


@wp.func
def _period(a: Actuators, world: int, i: int) -> float:
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
def _nearest(x: float, centre: float, period: float) -> float:
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
  if kind == int(DynType.INTEGRATOR):
    rate = ctrl
  elif kind == int(DynType.FILTER) or kind == int(DynType.FILTEREXACT):
    rate = (_nearest(ctrl, act, period) - act) / wp.max(prm[0], 1.0e-15)
  elif kind == int(DynType.MUSCLE):
    rate = util_misc.muscle_dynamics(ctrl, act, prm)
  return rate


@wp.func
def _next(a: Actuators, world: int, i: int, act: float, rate: float) -> float:
  """The activation after the step."""
  h = of_world(a.timestep, world)
  prm = of_world(a.actuator_dynprm, world, i)
  x = act + h * rate
  if a.dyntype[i] == int(DynType.FILTEREXACT):
    tau = wp.max(1.0e-15, prm[0])
    x = act + rate * tau * (1.0 - wp.exp(-h / tau))
  if a.actlimited[i]:
    x = clamp(x, of_world(a.actuator_actrange, world, i))
  return x


@wp.func
def _gain(a: Actuators, world: int, i: int, length: float, velocity: float) -> float:
  """The factor of the activation or control."""
  prm = of_world(a.actuator_gainprm, world, i)
  gain = prm[0]
  if a.gaintype[i] == int(GainType.AFFINE):
    gain = prm[0] + prm[1] * length + prm[2] * velocity
  elif a.gaintype[i] == int(GainType.MUSCLE):
    limits = of_world(a.actuator_lengthrange, world, i)
    acc0 = of_world(a.actuator_acc0, world, i)
    gain = util_misc.muscle_gain(length, velocity, limits, acc0, prm)
  return gain


@wp.func
def _bias(a: Actuators, world: int, i: int, length: float, velocity: float) -> float:
  """The force without activation or control."""
  prm = of_world(a.actuator_biasprm, world, i)
  bias = wp.float32(0.0)
  if a.biastype[i] == int(BiasType.AFFINE):
    bias = prm[0] + prm[1] * length + prm[2] * velocity
  elif a.biastype[i] == int(BiasType.MUSCLE):
    limits = of_world(a.actuator_lengthrange, world, i)
    acc0 = of_world(a.actuator_acc0, world, i)
    bias = util_misc.muscle_bias(length, limits, acc0, prm)
  return bias


@wp.func
def _slope(a: Actuators, world: int, i: int, length: float, velocity: float, x: float) -> float:
  """The derivative of the force by the velocity, as implicitfast takes it."""
  slope = wp.float32(0.0)
  prm = of_world(a.actuator_gainprm, world, i)
  if a.gaintype[i] == int(GainType.AFFINE):
    slope = prm[2] * x
  elif a.gaintype[i] == int(GainType.MUSCLE):
    limits = of_world(a.actuator_lengthrange, world, i)
    acc0 = of_world(a.actuator_acc0, world, i)
    slope = util_misc.muscle_gain_vel_deriv(length, velocity, limits, acc0, prm) * x
  if a.biastype[i] == int(BiasType.AFFINE):
    slope = slope + of_world(a.actuator_biasprm, world, i)[2]
  return slope


@wp.func
def _stiffness(a: Actuators, world: int, i: int, length: float, velocity: float, x: float) -> float:
  """The derivative of the force by the length, as the discrete step takes it."""
  slope = wp.float32(0.0)
  limits = of_world(a.actuator_lengthrange, world, i)
  acc0 = of_world(a.actuator_acc0, world, i)
  prm = of_world(a.actuator_gainprm, world, i)
  if a.gaintype[i] == int(GainType.AFFINE):
    slope = prm[1] * x
  elif a.gaintype[i] == int(GainType.MUSCLE):
    slope = util_misc.muscle_gain_len_deriv(length, velocity, limits, acc0, prm) * x
  bias = of_world(a.actuator_biasprm, world, i)
  if a.biastype[i] == int(BiasType.AFFINE):
    slope = slope + bias[1]
  elif a.biastype[i] == int(BiasType.MUSCLE):
    slope = slope + util_misc.muscle_bias_len_deriv(length, limits, acc0, bias)
  return slope


@wp.func
def _drive(
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
    later = _nearest(later, length, period)
  return x, rate, later


@functools.cache
def drive_kernel(*, implicit: bool, discrete: bool, integrate: bool) -> wp.Kernel:
  """Forces before their limits, and activations; a thread per world and actuator, no motor."""

  @wp.kernel(module="unique")
  def drive(
    a: Actuators,
    act: wp.array2d[float],
    ctrl: wp.array2d[float],
    rates: Rates,
    out: Drives,
  ):
    world, i = wp.tid()
    if a.gaintype[i] == int(GainType.DCMOTOR):
      return
    length = rates.length[world, i]
    velocity = rates.velocity[world, i]
    period = _period(a, world, i)
    x, rate, later = _drive(a, act, ctrl, world, i, length, period)
    if a.actadr[i] >= 0:
      if wp.static(integrate):
        out.act[world, a.actadr[i]] = later
      else:
        out.act[world, a.actadr[i]] = rate
    y = _nearest(x, length, period)
    gain = _gain(a, world, i, length, velocity)
    out.force[world, i] = gain * y + _bias(a, world, i, length, velocity)
    if wp.static(implicit):
      if a.actadr[i] < 0 and a.gaintype[i] != int(GainType.FIXED):
        x = ctrl[world, i]  # as MJWarp has it: not clamped
      out.by_velocity[world, i] = _slope(a, world, i, length, velocity, x)
    if wp.static(discrete):
      out.by_length[world, i] = _stiffness(a, world, i, length, velocity, x)
      out.by_velocity[world, i] = _slope(a, world, i, length, velocity, x)

  return drive


@wp.kernel(module="unique")
def actuator_metric(
  a: Actuators,
  drives: Drives,
  saturated: wp.array2d[float],
  total: wp.array2d[float],
  out: Slopes,
):
  """What a discrete step integrates implicitly, a thread per world and actuator."""
  world, i = wp.tid()
  free, joint = force_limits.free(a, drives, saturated, total, world, i)
  by_length = free * drives.by_length[world, i] + drives.loose_length[world, i]
  by_velocity = free * drives.by_velocity[world, i] + drives.loose_velocity[world, i]
  out.by_length[world, i] = joint * not_positive(by_length)
  out.by_velocity[world, i] = joint * not_positive(by_velocity)


@functools.cache
def actuator_power_kernel(
  fields: Fields, *, implicit: bool, discrete: bool, reported: bool
) -> wp.Kernel:
  """Force times rate, a thread per world and actuator."""

  @wp.kernel(module="unique")
  def actuator_power(
    a: Actuators,
    drives: Drives,
    rates: Rates,
    moving: Rates,
    saturated: wp.array2d[float],
    total: wp.array2d[float],
    metric: Slopes,
    cot_force: wp.array2d[float],
    power: wp.array2d[float],
  ):
    world, i = wp.tid()
    h = of_world(a.timestep, world)
    force = force_limits.limited(a, drives, total, world, i) + drives.extra[world, i]
    p = force * rates.fields[wp.static(fields.m), world, i]
    if wp.static(reported):
      p = p + force * cot_force[world, i]
    if wp.static(discrete):
      qacc = rates.fields[wp.static(fields.a), world, i]
      further = further_force(metric, world, i, h, rates.velocity[world, i], qacc)
      p = p + further * moving.fields[wp.static(fields.w), world, i]
    if wp.static(implicit):
      y = rates.fields[wp.static(fields.y), world, i]
      z = rates.fields[wp.static(fields.z), world, i]
      free, joint = force_limits.free(a, drives, saturated, total, world, i)
      slope = joint * (free * drives.by_velocity[world, i] + drives.loose_velocity[world, i])
      p = p + h * slope * y * (rates.fields[wp.static(fields.a), world, i] - z)
    power[world, i] = p

  return actuator_power


@wp.kernel(module="unique")
def activation_power(drives: Drives, cot_act: wp.array2d[float], power: wp.array2d[float]):
  """The cotangent of the next activation, or of its rate, a thread per world and activation."""
  world, j = wp.tid()
  power[world, j] = cot_act[world, j] * drives.act[world, j]


@wp.kernel
def kept_activation_power(
  act: wp.array2d[float], cot_act: wp.array2d[float], power: wp.array2d[float]
):
  """As `activation_power`, of activations that the step leaves as they are: inputs, no drives."""
  world, j = wp.tid()
  power[world, j] = cot_act[world, j] * act[world, j]


def _target_dofs(m) -> np.ndarray:
  """The dof that each actuator of a hinge or slide acts on, -1 for others."""
  kinds, ids = m.actuator_trntype.numpy(), m.actuator_trnid.numpy()[:, 0]
  joints = (kinds == int(TrnType.JOINT)) | (kinds == int(TrnType.JOINTINPARENT))
  adr = m.jnt_dofadr.numpy()
  return np.where(joints, adr[np.where(joints, ids, 0)], -1) if len(adr) else ids * 0 - 1


def record(step, rates: Rates, *, moving: Rates) -> None:
  """Records the actuators of a `StageAdjoint`, whose rates the transmissions gave.

  `moving` are those without the pull of tendons at bodies, see `tendons`.
  """
  tape, m = step.tape, step.m
  names = ("trntype", "trnid", "dyntype", "gaintype", "biastype", "ctrladr", "ctrlnum", "ctrlspec")
  names += ("actadr", "actlimited", "actearly", "forcelimited", "ctrllimited")
  fixed = {name: getattr(m, f"actuator_{name}") for name in names}
  leaves = "dynprm gainprm biasprm actrange forcerange ctrlrange acc0 lengthrange gear"
  actuators = tape.struct(
    Actuators,
    clamp_ctrl=not m.opt.disableflags & DisableBit.CLAMPCTRL,
    jnt_type=m.jnt_type,
    tendon_actfrclimited=m.tendon_actfrclimited,
    **fixed,
    dofadr=step.constant(_target_dofs(m)),
    **step.leaves("opt.timestep", *[f"actuator_{name}" for name in leaves.split()]),
    **step.leaves("tendon_actfrcrange"),
  )
  saturated = force_limits.mask(step)
  dim = (tape.nworld, m.nactuator)
  modes = dict(implicit=step.implicitfast, discrete=step.discrete)
  inputs = [actuators, step.inputs["act"], step.controls, rates]
  drives = _record_drives(step, inputs, integrate=step.integrate)
  if step.integrate and m.na and "act_dot" in step.cotangents:
    _record_drives(step, inputs, integrate=False)
  total = force_limits.record_totals(step, actuators, drives=drives)
  inputs = [actuators, drives, saturated, total]
  if step.discrete:
    tape.launch(actuator_metric, dim, inputs=[*inputs, step.metric.actuators], outputs=[])
  kernel = actuator_power_kernel(step.fields, **modes, reported=step.cot_force is not None)
  inputs = [actuators, drives, rates, moving, saturated, total, step.metric.actuators]
  tape.power(kernel, dim, inputs=[*inputs, step.cot_force or saturated])


def record_kept(step) -> None:
  """Records the activations of a `StageAdjoint` whose actuation is off."""
  tape, m = step.tape, step.m
  if step.integrate and m.na:
    inputs = [step.inputs["act"], step.cotangents["act"]]
    tape.power(kept_activation_power, (tape.nworld, m.na), inputs=inputs)


def _record_drives(step, inputs: list, *, integrate: bool) -> Drives:
  """Records what the drives give, and the cotangents of the next activations, or of their rates."""
  tape, m = step.tape, step.m
  drives = make_drives(tape, count=m.nactuator, na=m.na)
  kernel = drive_kernel(implicit=step.implicitfast, discrete=step.discrete, integrate=integrate)
  tape.launch(kernel, (tape.nworld, m.nactuator), inputs=[*inputs, drives], outputs=[])
  dc_motors.record(step, inputs, drives=drives, integrate=integrate)
  if m.na:
    cotangent = step.cotangents["act" if integrate else "act_dot"]
    tape.power(activation_power, (tape.nworld, m.na), inputs=[drives, cotangent])
  return drives
