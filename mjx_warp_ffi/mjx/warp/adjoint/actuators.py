"""The power of actuators and the cotangent of their activations.

`record` needs the tendons' rates. An actuator's length and its rates along every carried velocity
come from its transmission; the force is a function of length, velocity, activation and control.
"""

import functools

import numpy as np
import warp as wp
from mujoco_warp._src import util_misc
from mujoco_warp._src.types import (
  BiasType,
  DisableBit,
  DynType,
  GainType,
  TrnType,
  vec10,
)

from mjx_warp_ffi.mjx.warp.adjoint.nodes import Fields
from mjx_warp_ffi.mjx.warp.adjoint.rates import Rates, Slopes, further_force, not_positive


@wp.struct
class Actuators:
  """What the actuators are, and their parameters: model fields."""

  clamp_ctrl: bool
  timestep: wp.array[float]
  trntype: wp.array[int]
  dyntype: wp.array[int]
  gaintype: wp.array[int]
  biastype: wp.array[int]
  ctrladr: wp.array[int]
  actadr: wp.array[int]
  dofadr: wp.array[int]  # the dof of a transmission to a hinge or slide, or -1
  actlimited: wp.array[bool]
  actearly: wp.array[bool]
  forcelimited: wp.array[bool]
  ctrllimited: wp.array[bool]
  actuator_dynprm: wp.array2d[vec10]
  actuator_gainprm: wp.array2d[vec10]
  actuator_biasprm: wp.array2d[vec10]
  actuator_actrange: wp.array2d[wp.vec2]
  actuator_forcerange: wp.array2d[wp.vec2]
  actuator_ctrlrange: wp.array2d[wp.vec2]
  actuator_acc0: wp.array2d[float]
  actuator_lengthrange: wp.array2d[wp.vec2]


@wp.func
def _clamp(x: float, limits: wp.vec2) -> float:
  """The number within limits, with the derivative of the side that holds."""
  y = x
  if x < limits[0]:
    y = limits[0]
  elif x > limits[1]:
    y = limits[1]
  return y


@wp.func
def _act_dot(a: Actuators, world: int, i: int, act: float, ctrl: float) -> float:
  """The rate of the activation."""
  prm = a.actuator_dynprm[world % a.actuator_dynprm.shape[0], i]
  kind = a.dyntype[i]
  rate = wp.float32(0.0)
  if kind == int(DynType.INTEGRATOR):
    rate = ctrl
  elif kind == int(DynType.FILTER) or kind == int(DynType.FILTEREXACT):
    rate = (ctrl - act) / wp.max(prm[0], 1.0e-15)
  elif kind == int(DynType.MUSCLE):
    rate = util_misc.muscle_dynamics(ctrl, act, prm)
  return rate


@wp.func
def _next(a: Actuators, world: int, i: int, act: float, rate: float) -> float:
  """The activation after the step."""
  h = a.timestep[world % a.timestep.shape[0]]
  prm = a.actuator_dynprm[world % a.actuator_dynprm.shape[0], i]
  x = act + h * rate
  if a.dyntype[i] == int(DynType.FILTEREXACT):
    tau = wp.max(1.0e-15, prm[0])
    x = act + rate * tau * (1.0 - wp.exp(-h / tau))
  if a.actlimited[i]:
    x = _clamp(x, a.actuator_actrange[world % a.actuator_actrange.shape[0], i])
  return x


@wp.func
def _gain(a: Actuators, world: int, i: int, length: float, velocity: float) -> float:
  """The factor of the activation or control."""
  prm = a.actuator_gainprm[world % a.actuator_gainprm.shape[0], i]
  gain = prm[0]
  if a.gaintype[i] == int(GainType.AFFINE):
    gain = prm[0] + prm[1] * length + prm[2] * velocity
  elif a.gaintype[i] == int(GainType.MUSCLE):
    limits = a.actuator_lengthrange[world % a.actuator_lengthrange.shape[0], i]
    acc0 = a.actuator_acc0[world % a.actuator_acc0.shape[0], i]
    gain = util_misc.muscle_gain(length, velocity, limits, acc0, prm)
  return gain


@wp.func
def _bias(a: Actuators, world: int, i: int, length: float, velocity: float) -> float:
  """The force without activation or control."""
  prm = a.actuator_biasprm[world % a.actuator_biasprm.shape[0], i]
  bias = wp.float32(0.0)
  if a.biastype[i] == int(BiasType.AFFINE):
    bias = prm[0] + prm[1] * length + prm[2] * velocity
  elif a.biastype[i] == int(BiasType.MUSCLE):
    limits = a.actuator_lengthrange[world % a.actuator_lengthrange.shape[0], i]
    acc0 = a.actuator_acc0[world % a.actuator_acc0.shape[0], i]
    bias = util_misc.muscle_bias(length, limits, acc0, prm)
  return bias


@wp.func
def _slope(a: Actuators, world: int, i: int, length: float, velocity: float, x: float) -> float:
  """The derivative of the force by the velocity, as implicitfast takes it."""
  slope = wp.float32(0.0)
  prm = a.actuator_gainprm[world % a.actuator_gainprm.shape[0], i]
  if a.gaintype[i] == int(GainType.AFFINE):
    slope = prm[2] * x
  elif a.gaintype[i] == int(GainType.MUSCLE):
    limits = a.actuator_lengthrange[world % a.actuator_lengthrange.shape[0], i]
    acc0 = a.actuator_acc0[world % a.actuator_acc0.shape[0], i]
    slope = util_misc.muscle_gain_vel_deriv(length, velocity, limits, acc0, prm) * x
  if a.biastype[i] == int(BiasType.AFFINE):
    slope = slope + a.actuator_biasprm[world % a.actuator_biasprm.shape[0], i][2]
  return slope


@wp.func
def _stiffness(a: Actuators, world: int, i: int, length: float, velocity: float, x: float) -> float:
  """The derivative of the force by the length, as the discrete step takes it."""
  slope = wp.float32(0.0)
  limits = a.actuator_lengthrange[world % a.actuator_lengthrange.shape[0], i]
  acc0 = a.actuator_acc0[world % a.actuator_acc0.shape[0], i]
  prm = a.actuator_gainprm[world % a.actuator_gainprm.shape[0], i]
  if a.gaintype[i] == int(GainType.AFFINE):
    slope = prm[1] * x
  elif a.gaintype[i] == int(GainType.MUSCLE):
    slope = util_misc.muscle_gain_len_deriv(length, velocity, limits, acc0, prm) * x
  bias = a.actuator_biasprm[world % a.actuator_biasprm.shape[0], i]
  if a.biastype[i] == int(BiasType.AFFINE):
    slope = slope + bias[1]
  elif a.biastype[i] == int(BiasType.MUSCLE):
    slope = slope + util_misc.muscle_bias_len_deriv(length, limits, acc0, bias)
  return slope


@wp.func
def _clamped_force(a: Actuators, world: int, i: int, force: float):
  """The force within its limits, and one if it is not at them."""
  free = wp.float32(1.0)
  if a.forcelimited[i]:
    limits = a.actuator_forcerange[world % a.actuator_forcerange.shape[0], i]
    if force <= limits[0] or force >= limits[1]:
      free = 0.0
    force = _clamp(force, limits)
  return force, free


@wp.func
def _drive(a: Actuators, act: wp.array2d[float], ctrl: wp.array2d[float], world: int, i: int):
  """What the gain multiplies, the raw control, and the rate and next value of the activation."""
  c = a.ctrladr[i]
  raw = ctrl[world, c]
  u = raw
  if a.clamp_ctrl:
    if a.ctrllimited[c]:
      u = _clamp(raw, a.actuator_ctrlrange[world % a.actuator_ctrlrange.shape[0], c])
  x = u
  rate = wp.float32(0.0)
  later = wp.float32(0.0)
  j = a.actadr[i]
  if j >= 0:
    now = act[world, j]
    rate = _act_dot(a, world, i, now, u)
    later = _next(a, world, i, now, rate)
    x = now
    if a.actearly[i]:
      x = later
  return x, raw, rate, later


@wp.func
def _response(
  a: Actuators,
  saturated: wp.array2d[float],
  world: int,
  i: int,
  length: float,
  velocity: float,
  x: float,
):
  """The force, and one if it is at no limit, its own or that of all forces on its joint."""
  force = _gain(a, world, i, length, velocity) * x + _bias(a, world, i, length, velocity)
  force, free = _clamped_force(a, world, i, force)
  if a.dofadr[i] >= 0:
    free = free * (1.0 - saturated[world, a.dofadr[i]])
  return force, free


@wp.kernel(module="unique")
def actuator_metric(
  a: Actuators,
  act: wp.array2d[float],
  ctrl: wp.array2d[float],
  rates: Rates,
  saturated: wp.array2d[float],
  out: Slopes,
):
  """What a discrete step integrates implicitly, a thread per world and actuator."""
  world, i = wp.tid()
  length = rates.length[world, i]
  velocity = rates.velocity[world, i]
  x, raw, rate, later = _drive(a, act, ctrl, world, i)
  force, free = _response(a, saturated, world, i, length, velocity, x)
  out.by_length[world, i] = free * not_positive(_stiffness(a, world, i, length, velocity, x))
  out.by_velocity[world, i] = free * not_positive(_slope(a, world, i, length, velocity, x))


@functools.cache
def actuator_power_kernel(
  fields: Fields, *, implicit: bool, discrete: bool, integrate: bool, reported: bool
) -> wp.Kernel:
  """Force times rate, and the next activation or its rate; a thread per world and actuator."""

  @wp.kernel(module="unique")
  def actuator_power(
    a: Actuators,
    act: wp.array2d[float],
    ctrl: wp.array2d[float],
    rates: Rates,
    saturated: wp.array2d[float],
    metric: Slopes,
    cot_act: wp.array2d[float],
    cot_force: wp.array2d[float],
    power: wp.array2d[float],
  ):
    world, i = wp.tid()
    length = rates.length[world, i]
    velocity = rates.velocity[world, i]
    h = a.timestep[world % a.timestep.shape[0]]
    p = wp.float32(0.0)
    x, raw, rate, later = _drive(a, act, ctrl, world, i)
    j = a.actadr[i]
    if j >= 0:
      if wp.static(integrate):
        p = cot_act[world, j] * later
      else:
        p = cot_act[world, j] * rate
    force, free = _response(a, saturated, world, i, length, velocity, x)
    p = p + force * rates.fields[wp.static(fields.m), world, i]
    if wp.static(reported):
      p = p + force * cot_force[world, i]
    if wp.static(discrete):
      qacc = rates.fields[wp.static(fields.a), world, i]
      further = further_force(metric, world, i, h, velocity, qacc)
      p = p + further * rates.fields[wp.static(fields.w), world, i]
    if wp.static(implicit):
      xs = x
      if j < 0:
        xs = raw  # as MJWarp has it
      y = rates.fields[wp.static(fields.y), world, i]
      z = rates.fields[wp.static(fields.z), world, i]
      slope = free * _slope(a, world, i, length, velocity, xs)
      p = p + h * slope * y * (rates.fields[wp.static(fields.a), world, i] - z)
    power[world, i] = p

  return actuator_power


@wp.kernel(enable_backward=False)
def mask_saturated(
  dof_jntid: wp.array[int],
  jnt_actfrclimited: wp.array[bool],
  jnt_actfrcrange: wp.array2d[wp.vec2],
  qfrc_actuator: wp.array2d[float],
  w: wp.array2d[float],
  saturated: wp.array2d[float],
  masked: wp.array2d[float],
):
  """Marks dofs whose total actuator force is at its limit, and w without them."""
  world, d = wp.tid()
  j = dof_jntid[d]
  s = 0.0
  if jnt_actfrclimited[j]:
    limits = jnt_actfrcrange[world % jnt_actfrcrange.shape[0], j]
    f = qfrc_actuator[world, d]
    if f <= limits[0] or f >= limits[1]:
      s = 1.0
  saturated[world, d] = s
  masked[world, d] = (1.0 - s) * w[world, d]


def _target_dofs(m) -> np.ndarray:
  """The dof that each actuator of a hinge or slide acts on, -1 for others."""
  kinds, ids = m.actuator_trntype.numpy(), m.actuator_trnid.numpy()[:, 0]
  joints = (kinds == int(TrnType.JOINT)) | (kinds == int(TrnType.JOINTINPARENT))
  adr = m.jnt_dofadr.numpy()
  return np.where(joints, adr[np.where(joints, ids, 0)], -1) if len(adr) else ids * 0 - 1


def record(step, rates: Rates) -> None:
  """Records the actuators of a `StageAdjoint`, whose rates the transmissions gave."""
  tape, m, x = step.tape, step.m, step.inputs
  names = ("trntype", "dyntype", "gaintype", "biastype", "ctrladr", "actadr")
  names += ("actlimited", "actearly", "forcelimited", "ctrllimited")
  fixed = {name: getattr(m, f"actuator_{name}") for name in names}
  leaves = "dynprm gainprm biasprm actrange forcerange ctrlrange acc0 lengthrange"
  actuators = tape.struct(
    Actuators,
    clamp_ctrl=not m.opt.disableflags & DisableBit.CLAMPCTRL,
    **fixed,
    dofadr=step.constant(_target_dofs(m)),
    **step.leaves("opt.timestep", *[f"actuator_{name}" for name in leaves.split()]),
  )
  saturated = wp.zeros((tape.nworld, m.nv), dtype=float, device=tape.device)
  fields = step.fields
  if fields.m != fields.u:
    inputs = [m.dof_jntid, m.jnt_actfrclimited, m.jnt_actfrcrange, step.d.qfrc_actuator]
    slices = step.sweep.slices
    inputs += [slices[fields.u], saturated, slices[fields.m]]
    dim = (tape.nworld, m.nv)
    step.before_sweep.append(functools.partial(wp.launch, mask_saturated, dim, inputs=inputs))
  dim = (tape.nworld, m.nactuator)
  inputs = [actuators, x["act"], x["ctrl"], rates, saturated]
  if step.discrete:
    tape.launch(actuator_metric, dim, inputs=[*inputs, step.metric.actuators], outputs=[])
  kernel = actuator_power_kernel(
    fields,
    implicit=step.implicitfast,
    discrete=step.discrete,
    integrate=step.integrate,
    reported=step.cot_force is not None,
  )
  cotangent = step.cotangents["act" if step.integrate else "act_dot"]
  inputs += [step.metric.actuators, cotangent, step.cot_force or saturated]
  tape.power(kernel, dim, inputs=inputs)
