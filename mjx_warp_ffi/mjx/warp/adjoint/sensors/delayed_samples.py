"""Delayed sensors: the adjoint of reading and of writing their samples in the history.

The ring of a sensor is like that of an actuator, see `control_delays`, but that its first number is
when the sensor was last due, if it has an interval. A delayed sensor reports a value of the past,
one with an interval what it was when it was last due; a step writes what is measured now into the
rings of those that are due. So the cotangent of what is measured now is that of its sample.
"""

import mujoco
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.actuation.control_delays import (
  inserted,
  past,
  place_of_new,
  unchanged,
)
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Samples:
  """The sensors and the rings of their values."""

  history: wp.array2d[wp.vec2i]  # the number of samples, and how they are interpolated
  historyadr: wp.array2d[int]
  adr: wp.array[int]
  dim: wp.array[int]
  sensor_delay: wp.array2d[float]
  sensor_interval: wp.array2d[wp.vec2]


@wp.func
def _count(s: Samples, world: int, k: int) -> int:
  """The number of samples of a sensor."""
  return of_world(s.history, world, k)[0]


@wp.func
def _start(s: Samples, world: int, k: int) -> int:
  """Where the ring of a sensor starts."""
  return of_world(s.historyadr, world, k)


@wp.func
def _due(s: Samples, history: wp.array2d[float], world: int, k: int, t: float) -> bool:
  """Whether a sensor measures now."""
  period = of_world(s.sensor_interval, world, k)[0]
  due = wp.bool(True)
  if period > 0.0:
    due = history[world, _start(s, world, k)] + period <= t
  return due


@wp.func
def _reads(s: Samples, history: wp.array2d[float], world: int, k: int, t: float) -> bool:
  """Whether a sensor reports a sample, not what it measures."""
  reads = wp.bool(False)
  if _count(s, world, k) > 0:
    reads = not _due(s, history, world, k, t)
    if of_world(s.sensor_delay, world, k) > 0.0:
      reads = True
  return reads


@wp.kernel(enable_backward=False)
def _measured(
  # In:
  s: Samples,
  writes: bool,
  # Data in:
  time: wp.array[float],
  history: wp.array2d[float],
  # In:
  cot: wp.array2d[float],
  cot_history: wp.array2d[float],
  # Out:
  out: wp.array2d[float],
):
  """The cotangents of what the sensors measure, a thread per world and sensor."""
  world, k = wp.tid()
  t = time[world]
  n = _count(s, world, k)
  place = wp.int32(-1)
  if writes and n > 0:
    if _due(s, history, world, k, t):
      start = _start(s, world, k)
      place = start + 2 + n + s.dim[k] * place_of_new(history, world, start, n, t)
  reads = _reads(s, history, world, k, t)
  for j in range(s.dim[k]):
    x = wp.float32(0.0)
    if not reads:
      x = cot[world, s.adr[k] + j]
    if place >= 0:
      x = x + cot_history[world, place + j]
    out[world, s.adr[k] + j] = x


@wp.kernel(module="unique")
def _read_power(
  # In:
  s: Samples,
  sensor: wp.array[int],
  # Data in:
  time: wp.array[float],
  history: wp.array2d[float],
  # In:
  cot: wp.array2d[float],
  # Out:
  power: wp.array2d[float],
):
  """What is reported of the past, a thread per world and number."""
  world, i = wp.tid()
  k = sensor[i]
  p = wp.float32(0.0)
  if _reads(s, history, world, k, time[world]):
    t = time[world] - of_world(s.sensor_delay, world, k)
    kind = of_world(s.history, world, k)[1]
    n = _count(s, world, k)
    y = past(history, world, _start(s, world, k), n, s.dim[k], i - s.adr[k], kind, t)
    p = cot[world, i] * y
  power[world, i] = p


@wp.kernel(enable_backward=False)
def _write_adjoint(
  # In:
  s: Samples,
  measures: bool,
  # Data in:
  time: wp.array[float],
  history: wp.array2d[float],
  # In:
  cot: wp.array2d[float],
  # Out:
  grad_time: wp.array[float],
  grad_history: wp.array2d[float],
):
  """The adjoint of writing what is measured into the rings, a thread per world and sensor.

  It writes the gradient of the history and adds to that of the time.
  """
  world, k = wp.tid()
  t = time[world]
  n = _count(s, world, k)
  if n == 0:
    return
  start = _start(s, world, k)
  due = measures
  if measures:
    due = _due(s, history, world, k, t)
  if due:
    inserted(history, cot, grad_time, grad_history, world, start, n, s.dim[k], t)
  else:
    unchanged(cot, grad_history, world, start, n, s.dim[k])


def _rings(rec: Recording) -> dict[str, wp.array]:
  """The fields of `Samples` but for the delays."""
  m = rec.m
  fixed = {f: getattr(m, f"sensor_{f}") for f in ("history", "historyadr", "adr", "dim")}
  return fixed | dict(sensor_interval=m.sensor_interval)


def _plain_samples(rec: Recording) -> Samples:
  """The sensors and rings without gradients."""
  out = Samples()
  for name, value in _rings(rec).items():
    setattr(out, name, value)
  out.sensor_delay = rec.m.sensor_delay
  return out


def any_in(mjm: mujoco.MjModel) -> bool:
  """Whether a model has sensors with samples."""
  return bool(np.any(mjm.sensor_history[:, 0] > 0))


def begin(rec: Recording) -> wp.array | None:
  """The array for the cotangent of what the sensors report, None if sensordata has none.

  It is that of sensordata unless sensors have samples. Then each backward pass begins by turning it
  into the cotangent of what the sensors measure now, which is that of sensordata from there on, and
  hands the cotangent of the history on before its sweep.
  """
  cot, writes = rec.cotangent("sensordata"), rec.scope.writes_history
  if writes and any_in(rec.mjm):
    rec.tape.before_sweep(lambda: _write(rec, measures=cot is not None))
  if cot is None or not any_in(rec.mjm):
    return cot
  given, d = wp.zeros_like(cot), rec.d
  inputs = [_plain_samples(rec), writes, d.time, d.history, given, rec.cotangents["history"]]
  dim = (d.nworld, rec.m.nsensor)
  rec.tape.when_recomputed(lambda: wp.launch(_measured, dim, inputs=inputs, outputs=[cot]))
  return given


def record(rec: Recording, ev: Evaluated) -> None:
  """Records the reading of the samples."""
  if not any_in(rec.mjm):
    return
  mjm, x, tape = rec.mjm, rec.inputs, rec.tape
  owner = rec.constant(np.repeat(np.arange(mjm.nsensor), mjm.sensor_dim))
  rings = tape.struct(Samples, **_rings(rec), **rec.leaves("sensor_delay"))
  inputs = [rings, owner, x["time"], x["history"], ev.given]
  tape.power(_read_power, (tape.nworld, mjm.nsensordata), inputs=inputs)


def _write(rec: Recording, *, measures: bool) -> None:
  """Runs the adjoint of writing the samples."""
  d, m = rec.d, rec.m
  inputs = [_plain_samples(rec), measures, d.time, d.history, rec.cotangents["history"]]
  outputs = [rec.gradients[name] for name in ("time", "history")]
  wp.launch(_write_adjoint, (d.nworld, m.nsensor), inputs=inputs, outputs=outputs)


def places(mjm: mujoco.MjModel, columns: list[int]) -> list[int]:
  """Where in the history the samples are of the sensors whose data have these places."""
  out: list[int] = []
  for adr, dim, (n, _), start in zip(
    mjm.sensor_adr, mjm.sensor_dim, mjm.sensor_history, mjm.sensor_historyadr, strict=True
  ):
    if n and adr in columns:
      out += range(start, start + 2 + n * (1 + dim))
  return out


OUTPUT = Output(parameters=("sensor_delay",), record=record)
