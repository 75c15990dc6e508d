"""The power of actuators and the cotangent of their activations.

An actuator's length and its rates along every carried velocity come from its transmission; the
force is a function of length, velocity, activation and control. Limits come after it: those of the
sum of the forces on a tendon, then those of the actuator.
"""

import functools
from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import (
  BiasType,
  DisableBit,
  DynType,
  GainType,
  IntegratorType,
  TrnType,
)

from mjx_warp_ffi.mjx.data.enums import IMPLICIT
from mjx_warp_ffi.mjx.warp.adjoint.actuation import dc_motors, force_limits
from mjx_warp_ffi.mjx.warp.adjoint.actuation.actuator_laws import (
  bias_of,
  driven,
  gain_of,
  length_slope,
  nearest,
  setpoint_period,
  velocity_slope,
)
from mjx_warp_ffi.mjx.warp.adjoint.actuation.drives import Actuators, Drives, make_drives
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates, Slopes, further_force, not_positive
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel

# Fields of the model without "actuator_", and fields that can have a gradient.
_FIXED = ("trntype", "trnid", "dyntype", "gaintype", "biastype", "ctrladr", "ctrlnum", "ctrlspec")
_FIXED += ("actadr", "actlimited", "actearly", "forcelimited", "ctrllimited")
_LEAVES = ("actuator_dynprm", "actuator_gainprm", "actuator_biasprm", "actuator_actrange")
_LEAVES += ("actuator_forcerange", "actuator_ctrlrange", "actuator_acc0", "actuator_lengthrange")
_LEAVES += ("actuator_gear", "tendon_actfrcrange", "opt.timestep")


@functools.cache
def drive_kernel(*, implicit: bool, discrete: bool, integrate: bool) -> Kernel:
  """Forces before their limits, and activations; a thread per world and actuator, no motor."""

  @wp.kernel(module="unique")
  def drive(
    # Model:
    a: Actuators,
    # Data in:
    act: wp.array2d[float],
    ctrl: wp.array2d[float],
    # In:
    rates: Rates,
    # Out:
    out: Drives,
  ):
    world, i = wp.tid()
    if a.gaintype[i] == GainType.DCMOTOR:
      return
    length = rates.length[world, i]
    velocity = rates.velocity[world, i]
    period = setpoint_period(a, world, i)
    x, rate, later = driven(a, act, ctrl, world, i, length, period)
    if a.actadr[i] >= 0:
      if wp.static(integrate):
        out.act[world, a.actadr[i]] = later
      else:
        out.act[world, a.actadr[i]] = rate
    y = nearest(x, length, period)
    gain = gain_of(a, world, i, length, velocity)
    out.force[world, i] = gain * y + bias_of(a, world, i, length, velocity)
    if wp.static(implicit):
      if a.actadr[i] < 0 and a.gaintype[i] != GainType.FIXED:
        x = ctrl[world, i]  # as MJWarp has it: not clamped
      out.by_velocity[world, i] = velocity_slope(a, world, i, length, velocity, x)
    if wp.static(discrete):
      out.by_length[world, i] = length_slope(a, world, i, length, velocity, x)
      out.by_velocity[world, i] = velocity_slope(a, world, i, length, velocity, x)

  return drive


@wp.kernel(module="unique")
def actuator_metric(
  # Model:
  a: Actuators,
  # In:
  drives: Drives,
  saturated: wp.array2d[float],
  total: wp.array2d[float],
  # Out:
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
  velocities: Velocities, *, implicit: bool, discrete: bool, reported: bool
) -> Kernel:
  """Force times rate, a thread per world and actuator."""

  @wp.kernel(module="unique")
  def actuator_power(
    # Model:
    a: Actuators,
    # In:
    drives: Drives,
    rates: Rates,
    moving: Rates,
    saturated: wp.array2d[float],
    total: wp.array2d[float],
    slopes: Slopes,
    cot_force: wp.array2d[float],
    # Out:
    power: wp.array2d[float],
  ):
    world, i = wp.tid()
    h = of_world(a.timestep, world)
    force = force_limits.limited(a, drives, total, world, i) + drives.extra[world, i]
    p = force * rates.fields[wp.static(velocities.unlimited), world, i]
    if wp.static(reported):
      p = p + force * cot_force[world, i]
    if wp.static(discrete):
      qacc = rates.fields[wp.static(velocities.acceleration), world, i]
      further = further_force(slopes, world, i, h, rates.velocity[world, i], qacc)
      p = p + further * moving.fields[wp.static(velocities.virtual), world, i]
    if wp.static(implicit):
      y = rates.fields[wp.static(velocities.implicit_left), world, i]
      z = rates.fields[wp.static(velocities.implicit_right), world, i]
      free, joint = force_limits.free(a, drives, saturated, total, world, i)
      slope = joint * (free * drives.by_velocity[world, i] + drives.loose_velocity[world, i])
      p = p + h * slope * y * (rates.fields[wp.static(velocities.acceleration), world, i] - z)
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


def _target_dofs(m: mjw.Model) -> np.ndarray:
  """The dof that each actuator of a hinge or slide acts on, -1 for others."""
  kinds, ids = m.actuator_trntype.numpy(), m.actuator_trnid.numpy()[:, 0]
  joints = np.isin(kinds, (TrnType.JOINT, TrnType.JOINTINPARENT))
  adr = m.jnt_dofadr.numpy()
  return np.where(joints, adr[np.where(joints, ids, 0)], -1) if len(adr) else ids * 0 - 1


def _make_actuators(rec: Recording) -> Actuators:
  m = rec.m
  return rec.tape.struct(
    Actuators,
    clamp_ctrl=not m.opt.disableflags & DisableBit.CLAMPCTRL,
    dofadr=rec.constant(_target_dofs(m)),
    **{name: getattr(m, f"actuator_{name}") for name in _FIXED},
    **rec.fixed("jnt_type", "tendon_actfrclimited"),
    **rec.leaves(*_LEAVES),
  )


def record(
  rec: Recording,
  kin: Kinematics,
  rates: Rates,
  *,
  moving: Rates,
  controls: wp.array,
  slopes: Slopes,
  cot_force: wp.array | None,
) -> None:
  """Records the power of the actuators, and the cotangents of activations.

  Args:
    rec: the recording.
    kin: the kinematics.
    rates: the lengths and rates that the transmissions gave.
    moving: those without the pull of tendons at bodies, see `tendons.TendonRates`.
    controls: those that act now.
    slopes: where the slopes that a discrete step integrates implicitly go.
    cot_force: (nworld, nactuator), the cotangent of the forces of actuators, if they have one.
  """
  tape, m, scheme = rec.tape, rec.m, rec.scheme
  actuators, saturated = _make_actuators(rec), force_limits.mask(rec, kin)
  dim = (tape.nworld, m.nactuator)
  inputs = [actuators, rec.inputs["act"], controls, rates]
  drives = _record_drives(rec, inputs, integrate=rec.integrates)
  if rec.integrates and m.na and "act_dot" in rec.cotangents:
    _record_drives(rec, inputs, integrate=False)
  total = force_limits.record_totals(rec, actuators, drives=drives)
  if scheme.discrete:
    inputs = [actuators, drives, saturated, total, slopes]
    tape.launch(actuator_metric, dim, inputs=inputs, outputs=[])
  kernel = actuator_power_kernel(
    kin.velocities,
    implicit=scheme.implicitfast,
    discrete=scheme.discrete,
    reported=cot_force is not None,
  )
  inputs = [actuators, drives, rates, moving, saturated, total, slopes]
  tape.power(kernel, dim, inputs=[*inputs, saturated if cot_force is None else cot_force])


def record_kept(rec: Recording) -> None:
  """Records that a step leaves activations as they are where actuation is off."""
  tape, m = rec.tape, rec.m
  if rec.integrates and m.na:
    inputs = [rec.inputs["act"], rec.cotangents["act"]]
    tape.power(kept_activation_power, (tape.nworld, m.na), inputs=inputs)


def _record_drives(rec: Recording, inputs: list, *, integrate: bool) -> Drives:
  """Records what the drives give, and the cotangents of the next activations, or of their rates."""
  tape, m, scheme = rec.tape, rec.m, rec.scheme
  drives = make_drives(tape, count=m.nactuator, na=m.na)
  kernel = drive_kernel(implicit=scheme.implicitfast, discrete=scheme.discrete, integrate=integrate)
  tape.launch(kernel, (tape.nworld, m.nactuator), inputs=[*inputs, drives], outputs=[])
  dc_motors.record(rec, inputs, drives=drives, integrate=integrate)
  if m.na:
    cotangent = rec.cotangents["act" if integrate else "act_dot"]
    tape.power(activation_power, (tape.nworld, m.na), inputs=[drives, cotangent])
  return drives


def missing_types(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The types of actuators that have no rule."""
  if not m.nactuator:
    return
  # MJWarp 4.0 has neither orientation nor PID actuators, which would be of type SO3 or have several
  # controls: put_model refuses them first
  kinds = dict(
    dyntype=(DynType, "USER"),
    gaintype=(GainType, "USER", "SO3"),
    biastype=(BiasType, "USER"),
  )
  for name, (kind, *names) in kinds.items():
    found = set(getattr(m, f"actuator_{name}").numpy().tolist())
    for refused in names:
      if int(kind[refused]) in found:
        yield f"actuator_{name} {refused}"


def missing_controls(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The numbers of controls that have no rule."""
  gain, number = m.actuator_gaintype.numpy(), m.actuator_ctrlnum.numpy()
  if np.any((gain != GainType.DCMOTOR) & (number > 1)):
    yield "actuators with several controls"
  affine = (gain == GainType.AFFINE) | (gain == GainType.MUSCLE)
  misread = affine & (m.actuator_actadr.numpy() < 0)
  misread &= m.actuator_ctrladr.numpy() != np.arange(m.nactuator)
  if m.opt.integrator in IMPLICIT and np.any(misread):
    integrator = IntegratorType(m.opt.integrator).name.lower()
    after = "after actuators with no or several controls"
    yield f"{integrator} with gains of AFFINE or MUSCLE {after}"


def missing_callbacks(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The callbacks that would compute controls, activations or forces."""
  if any(getattr(m.callback, f) for f in ("control", "act_dyn", "act_gain", "act_bias")):
    yield "callbacks"


def missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal for each feature of actuators that has no rule."""
  for refusals in (missing_types, missing_controls, missing_callbacks):
    yield from refusals(mjm, m)


PART = Part(parameters=_LEAVES, reports=("actuator_force", "act_dot"), missing=missing)
