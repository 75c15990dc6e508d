"""Cotangents of sensors of actuator forces, on actuators, joints and tendons.

They join the cotangents of `actuator_force` and `qfrc_actuator`, which those sensors copy or add
up.
"""

import warp as wp
from mujoco_warp._src.types import DataType, SensorType, TrnType

from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

JOINT = SensorType.JOINTACTFRC
KINDS = (SensorType.ACTUATORFRC, JOINT, SensorType.TENDONACTFRC)
PART = Part(sensors=KINDS)


@struct
class ForceSensors:
  """The sensors of actuator forces, the first dof of each joint, and what actuators act on."""

  which: wp.array[int]
  type: wp.array[int]
  datatype: wp.array[int]
  objid: wp.array[int]
  adr: wp.array[int]
  cutoff: wp.array[float]
  jnt_dofadr: wp.array[int]
  trntype: wp.array[int]
  trnid: wp.array[wp.vec2i]


@wp.func
def _free(s: ForceSensors, k: int, x: float) -> float:
  """One where the value is within the cutoff of the sensor."""
  y = wp.float32(1.0)
  if s.cutoff[k] > 0.0 and s.datatype[k] == DataType.REAL and wp.abs(x) >= s.cutoff[k]:
    y = 0.0
  return y


@wp.kernel(enable_backward=False)
def _collect(
  # In:
  s: ForceSensors,
  cot: wp.array2d[float],
  # Data in:
  actuator_force: wp.array2d[float],
  qfrc_actuator: wp.array2d[float],
  # Out:
  cot_force: wp.array2d[float],
  cot_qfrc: wp.array2d[float],
):
  """Adds the cotangents of the sensors, a thread a world."""
  world = wp.tid()
  for it in range(s.which.shape[0]):
    k = s.which[it]
    g = cot[world, s.adr[k]]
    i = s.objid[k]
    if s.type[k] == SensorType.ACTUATORFRC:
      cot_force[world, i] = cot_force[world, i] + g * _free(s, k, actuator_force[world, i])
    elif s.type[k] == SensorType.JOINTACTFRC:
      dof = s.jnt_dofadr[i]
      cot_qfrc[world, dof] = cot_qfrc[world, dof] + g * _free(s, k, qfrc_actuator[world, dof])
    else:
      total = wp.float32(0.0)  # a plain constant cannot change in a loop
      for a in range(s.trntype.shape[0]):
        if s.trntype[a] == TrnType.TENDON and s.trnid[a][0] == i:
          total += actuator_force[world, a]
      for a in range(s.trntype.shape[0]):
        if s.trntype[a] == TrnType.TENDON and s.trnid[a][0] == i:
          cot_force[world, a] = cot_force[world, a] + g * _free(s, k, total)


def record(rec: Recording) -> tuple[wp.array | None, wp.array | None]:
  """Collects the cotangents of the sensors before the sweep.

  Returns:
    Cotangents of `actuator_force` and `qfrc_actuator`, their own and those of the sensors; None
    where there are neither.
  """
  given = [rec.cotangent(name) for name in ("actuator_force", "qfrc_actuator")]
  if not rec.needs.senses_forces:
    return given[0], given[1]
  m, d = rec.m, rec.d
  s = ForceSensors()
  s.which = rec.constant(rec.sensors(KINDS))
  for name in ("type", "datatype", "objid", "adr", "cutoff"):
    setattr(s, name, getattr(m, f"sensor_{name}"))
  s.jnt_dofadr, s.trntype, s.trnid = m.jnt_dofadr, m.actuator_trntype, m.actuator_trnid
  own = [wp.zeros_like(d.actuator_force), wp.zeros_like(d.qfrc_actuator)]

  def collect() -> None:
    for array, cotangent in zip(own, given, strict=True):
      if cotangent is None:
        array.zero_()
      else:
        wp.copy(array, cotangent)
    inputs = [s, rec.cotangents["sensordata"], d.actuator_force, d.qfrc_actuator, *own]
    wp.launch(_collect, d.nworld, inputs=inputs)

  rec.tape.before_sweep(collect)
  return own[0], own[1]
