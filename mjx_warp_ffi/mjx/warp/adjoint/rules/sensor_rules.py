"""Which sensors have a rule, and what their cutoffs leave of their cotangents."""

import copy

import mujoco
import numpy as np
import warp as wp
from mujoco_warp._src import sensor as mjw_sensor
from mujoco_warp._src.types import SensorType

from mjx_warp_ffi.mjx.warp.adjoint.outputs import energy, reactions
from mjx_warp_ffi.mjx.warp.adjoint.rules.parts import SENSORS
from mjx_warp_ffi.mjx.warp.adjoint.sensors import (
  contact_outputs,
  contact_readers,
  limit_sensors,
  rangefinders,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording

# their cutoffs are seen in what they read, see `weights`
_WEIGHED = (*reactions.KINDS, *limit_sensors.KINDS, *energy.KINDS)
_WEIGHED += (contact_outputs.TOUCH, *contact_outputs.DISTANCES, rangefinders.KIND)


def unruled(mjm: mujoco.MjModel, *, smoothed: bool = False) -> dict[str, list[int]]:
  """The kinds of sensors of a model that have no rule, and where their data are.

  Args:
    mjm: the model.
    smoothed: whether contacts are: more than those of the step, and in another order.
  """
  found: dict[str, list[int]] = {}
  for k, kind in enumerate(mjm.sensor_type):
    name = "" if kind in SENSORS else f"sensor {SensorType(kind).name}"
    if smoothed and any(contact_readers.reads(mjm, k)):
      name = "sensor CONTACT with contact_smoothing"
    if name:
      start = mjm.sensor_adr[k]
      found.setdefault(name, []).extend(range(start, start + mjm.sensor_dim[k]))
  return found


def of_contacts(mjm: mujoco.MjModel) -> list[int]:
  """Where the data are of the sensors that read contacts one by one."""
  found: list[int] = []
  for k, (start, dim) in enumerate(zip(mjm.sensor_adr, mjm.sensor_dim, strict=True)):
    if any(contact_readers.reads(mjm, k)):
      found += range(start, start + dim)
  return found


def unsupported(mjm: mujoco.MjModel) -> list[str]:
  """Names of the sensors of a model, if none of their data has a rule."""
  found = unruled(mjm)
  return sorted(found) if sum(map(len, found.values())) == mjm.nsensordata else []


@wp.kernel(enable_backward=False)
def _mask(
  sensor: wp.array[int],
  cutoff: wp.array[float],
  value: wp.array2d[float],
  cot: wp.array2d[float],
  out: wp.array2d[float],
):
  """The cotangents without those of values at their cutoffs, a thread per world and number."""
  world, i = wp.tid()
  limit = cutoff[sensor[i]]
  x = cot[world, i]
  if limit > 0.0 and (value[world, i] >= limit or value[world, i] <= -limit):
    x = 0.0
  out[world, i] = x


def weights(rec: Recording) -> wp.array:
  """The cotangents of sensordata, zero where a sensor is at its cutoff.

  They are there once the forward pass is recomputed, for the sensors that read them: those with
  lengths or forces that are cut off. The others look at their cutoffs themselves.
  """
  cot, m, d, mjm = rec.cotangents["sensordata"], rec.m, rec.d, rec.mjm
  cut = np.isin(mjm.sensor_type, _WEIGHED) & (mjm.sensor_cutoff > 0)
  if not cut.any():
    return cot
  out = wp.zeros_like(cot)
  now = copy.copy(m)
  now.nhistory = 0  # what is measured, without writing it into the history
  owner = rec.constant(np.repeat(np.arange(mjm.nsensor), mjm.sensor_dim))

  def mask() -> None:
    d.sensordata.zero_()
    for stage in (mjw_sensor.sensor_pos, mjw_sensor.sensor_vel, mjw_sensor.sensor_acc):
      stage(now, d)
    wp.launch(_mask, cot.shape, inputs=[owner, m.sensor_cutoff, d.sensordata, cot], outputs=[out])

  rec.tape.when_recomputed(mask)
  return out
