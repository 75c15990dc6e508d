"""Delayed controls: the adjoint of reading and of writing the history.

An actuator with a history has a ring of n samples in it: a number that is not used here, the place
of the newest sample, n times, and n values of each of its controls. A step reads its controls at a
time past and writes those of now in. Which samples a time lies between stays as it is.
"""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

_NEAR = wp.constant(1.0e-6)  # the distance in time at which MuJoCo Warp takes a sample as it is


@struct
class Delays:
  """The actuators and the rings of their controls."""

  history: wp.array2d[wp.vec2i]  # the number of samples, and how they are interpolated
  adr: wp.array2d[int]
  ctrladr: wp.array[int]
  ctrlnum: wp.array[int]
  actuator_delay: wp.array2d[float]


@wp.func
def _ring(s: Delays, world: int, i: int):
  """The number of samples of an actuator, their interpolation, and where its ring starts."""
  kind = of_world(s.history, world, i)
  return kind[0], kind[1], of_world(s.adr, world, i)


@wp.func
def _place(cursor: int, n: int, k: int) -> int:
  """Where the k-th oldest sample is."""
  return (cursor + 1 + k) % n


@wp.func
def _older(history: wp.array2d[float], world: int, start: int, n: int, t: float) -> int:
  """How many samples are older than a time."""
  count = wp.int32(0)
  for k in range(n):
    if history[world, start + 2 + k] < t:
      count = count + 1
  return count


@wp.func
def _cubic(
  history: wp.array2d[float],
  world: int,
  times: int,
  values: int,
  step: int,
  i: int,
  n: int,
  cursor: int,
  t: float,
) -> float:
  """The interpolation between the samples i - 1 and i by a spline of Catmull and Rom."""
  lo = _place(cursor, n, i - 1)
  hi = _place(cursor, n, i)
  t0 = history[world, times + lo]
  t1 = history[world, times + hi]
  v0 = history[world, values + step * lo]
  v1 = history[world, values + step * hi]
  slope0 = wp.float32(0.0)
  slope1 = wp.float32(0.0)
  if i > 1:
    k = _place(cursor, n, i - 2)
    slope0 = (v1 - history[world, values + step * k]) / (t1 - history[world, times + k])
  if i < n - 1:
    k = _place(cursor, n, i + 1)
    slope1 = (history[world, values + step * k] - v0) / (history[world, times + k] - t0)
  dt = t1 - t0
  a = (t - t0) / dt
  b = a * a
  c = b * a
  y = (2.0 * c - 3.0 * b + 1.0) * v0 + (3.0 * b - 2.0 * c) * v1
  return y + dt * ((c - 2.0 * b + a) * slope0 + (c - b) * slope1)


@wp.func
def past(
  history: wp.array2d[float],
  world: int,
  start: int,
  n: int,
  dim: int,
  j: int,
  interp: int,
  t: float,
) -> float:
  """The j-th value of a ring at a time."""
  cursor = int(history[world, start + 1])
  times = start + 2
  values = start + 2 + n + j
  oldest = _place(cursor, n, 0)
  newest = _place(cursor, n, n - 1)
  y = wp.float32(0.0)
  if t <= history[world, times + oldest] + _NEAR:
    y = history[world, values + dim * oldest]
  elif t >= history[world, times + newest] - _NEAR:
    y = history[world, values + dim * newest]
  else:
    i = _older(history, world, start, n, t)
    hi = _place(cursor, n, i)
    lo = _place(cursor, n, i - 1)
    t0 = history[world, times + lo]
    t1 = history[world, times + hi]
    v0 = history[world, values + dim * lo]
    v1 = history[world, values + dim * hi]
    if wp.abs(t - t1) < _NEAR:
      y = v1
    elif interp == 0:
      y = v0
    elif interp == 1:
      y = v0 + (t - t0) / (t1 - t0) * (v1 - v0)
    else:
      y = _cubic(history, world, times, values, dim, i, n, cursor, t)
  return y


@wp.kernel(module="unique")
def read_delayed(
  # Model:
  s: Delays,
  # Data in:
  time: wp.array[float],
  history: wp.array2d[float],
  ctrl: wp.array2d[float],
  # Out:
  out: wp.array2d[float],
):
  """The controls that act now, a thread per world and actuator."""
  world, i = wp.tid()
  n, interp, start = _ring(s, world, i)
  delay = of_world(s.actuator_delay, world, i)
  for j in range(s.ctrlnum[i]):
    c = s.ctrladr[i] + j
    if n == 0 or delay == 0.0:
      out[world, c] = ctrl[world, c]
    else:
      t = time[world] - delay
      out[world, c] = past(history, world, start, n, s.ctrlnum[i], j, interp, t)


@wp.func
def _pass(
  cot: wp.array2d[float],
  grad: wp.array2d[float],
  world: int,
  start: int,
  n: int,
  dim: int,
  after: int,
  before: int,
):
  """Hands the cotangents of a sample on to where it was."""
  grad[world, start + 2 + before] = cot[world, start + 2 + after]
  for j in range(dim):
    k = start + 2 + n + j
    grad[world, k + dim * before] = cot[world, k + dim * after]


@wp.func
def unchanged(
  cot: wp.array2d[float], grad: wp.array2d[float], world: int, start: int, n: int, dim: int
):
  """Hands the cotangents of a ring on to the ring."""
  grad[world, start] = cot[world, start]
  for j in range(n):
    _pass(cot, grad, world, start, n, dim, j, j)


@wp.func
def _has_time(history: wp.array2d[float], world: int, start: int, n: int, t: float) -> bool:
  """Whether a ring has a sample of a time."""
  k = _older(history, world, start, n, t)
  same = wp.bool(False)
  if k < n:
    cursor = int(history[world, start + 1])
    same = wp.abs(t - history[world, start + 2 + _place(cursor, n, k)]) < _NEAR
  return same


@wp.func
def place_of_new(history: wp.array2d[float], world: int, start: int, n: int, t: float) -> int:
  """Where a sample of a time is after it was written into a ring."""
  cursor = int(history[world, start + 1])
  k = _older(history, world, start, n, t)
  new = _place(cursor, n, k - 1)  # newer than others: they move, and the oldest goes
  if _has_time(history, world, start, n, t):
    new = _place(cursor, n, k)
  elif k == 0 or k == n:
    new = _place(cursor, n, 0)
  return new


@wp.func
def inserted(
  history: wp.array2d[float],
  cot: wp.array2d[float],
  grad_time: wp.array[float],
  grad: wp.array2d[float],
  world: int,
  start: int,
  n: int,
  dim: int,
  t: float,
):
  """The adjoint of writing a sample into a ring, but that of its values."""
  unchanged(cot, grad, world, start, n, dim)
  cursor = int(history[world, start + 1])
  k = _older(history, world, start, n, t)
  same = _has_time(history, world, start, n, t)
  new = place_of_new(history, world, start, n, t)
  if same or k == 0 or k == n:
    _zero(grad, world, start, n, dim, new, not same)
  else:
    for j in range(k - 1):
      _pass(cot, grad, world, start, n, dim, _place(cursor, n, j), _place(cursor, n, j + 1))
    _zero(grad, world, start, n, dim, _place(cursor, n, 0), True)
  if not same:
    wp.atomic_add(grad_time, world, cot[world, start + 2 + new])


@wp.kernel(enable_backward=False)
def write_adjoint(
  # Model:
  s: Delays,
  # Data in:
  time: wp.array[float],
  history: wp.array2d[float],
  # In:
  cot: wp.array2d[float],
  # Out:
  grad_time: wp.array[float],
  grad_history: wp.array2d[float],
  grad_ctrl: wp.array2d[float],
):
  """The adjoint of writing the controls of now into their rings, a thread per world and actuator.

  It writes the gradient of the history and adds to the others.
  """
  world, i = wp.tid()
  n, interp, start = _ring(s, world, i)
  dim = s.ctrlnum[i]
  if n == 0 or dim == 0:
    return
  t = time[world]
  inserted(history, cot, grad_time, grad_history, world, start, n, dim, t)
  place = start + 2 + n + dim * place_of_new(history, world, start, n, t)
  for j in range(dim):
    grad_ctrl[world, s.ctrladr[i] + j] = grad_ctrl[world, s.ctrladr[i] + j] + cot[world, place + j]


@wp.func
def _zero(
  grad: wp.array2d[float], world: int, start: int, n: int, dim: int, place: int, timed: bool
):
  """A sample that is overwritten, with its time or without."""
  if timed:
    grad[world, start + 2 + place] = 0.0
  for j in range(dim):
    grad[world, start + 2 + n + dim * place + j] = 0.0


def make_delays(rec: Recording) -> "Delays | None":
  """The rings of the controls for kernels, None if the model has no history."""
  m = rec.m
  if not m.nhistory:
    return None
  names = {"history": "history", "adr": "historyadr", "ctrladr": "ctrladr", "ctrlnum": "ctrlnum"}
  fixed = {k: getattr(m, f"actuator_{f}") for k, f in names.items()}
  return rec.tape.struct(Delays, **fixed, **rec.leaves("actuator_delay"))


def record(rec: Recording, delays: "Delays | None") -> wp.array:
  """Records the reading of the controls, and gives those that act now."""
  m, x, tape = rec.m, rec.inputs, rec.tape
  if delays is None:
    return x["ctrl"]
  out = tape.array(m.nu)
  inputs = [delays, x["time"], x["history"], x["ctrl"]]
  tape.launch(read_delayed, (tape.nworld, m.nactuator), inputs=inputs, outputs=[out])
  return out


def write(rec: Recording, delays: "Delays | None") -> None:
  """Launches the adjoint of writing the history, before the tape runs."""
  d, m, cot = rec.d, rec.m, rec.cotangents["history"]
  if delays is None:
    return
  if not rec.scope.writes_history:
    wp.copy(rec.gradients["history"], cot)
    return
  inputs = [delays, d.time, d.history, cot]
  outputs = [rec.gradients[name] for name in ("time", "history", "ctrl")]
  wp.launch(write_adjoint, (d.nworld, m.nactuator), inputs=inputs, outputs=outputs)


PART = Part(parameters=("actuator_delay",))
