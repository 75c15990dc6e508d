"""Who may run Python code that launches Warp work, and when.

Such code is called a body here: the function of a `jax_callable`, or what a program runs. Each
context manager below is taken around one kind of work: `body` by the launchers in a call,
`launching` around single kernels, `building` and `tracing` around the making of buffers and
constants, `recording` around a capture.

Warp keeps four things per process, not per thread: the default device, the current stream of each
CUDA device, the table of streams, and the graph that the CPU records. So a body has
them to itself; only bodies on the CPU share them, which have nothing to change while the CPU is the
default device anyway. Replaying a captured graph touches none of them.

On the CPU there is a fifth: a kernel keeps the memory of its tiles where all threads see it. Two
kernels that run at once would use one another's, so whatever runs kernels there takes turns, and
replays do, too.
"""

import contextlib
import threading
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import warp as wp

from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.process.shared_lock import SharedLock


class _Launching:
  """Keeps other kernels on the CPU, captures, and bodies that are alone from running meanwhile."""

  def __enter__(self) -> None:
    _bodies.shared.__enter__()
    try:
      CPU_KERNELS.acquire()
    except BaseException:  # an interrupt while it waits
      _bodies.shared.__exit__()
      raise

  def __exit__(self, *exception: object) -> None:
    CPU_KERNELS.release()
    _bodies.shared.__exit__(*exception)


class _OnCpu:
  """Lets a body launch on the CPU, as any kernel if that is the default device, else alone."""

  def __init__(self, device: wp.Device, *, waits: bool):
    self._device, self._waits = device, waits
    self._scope: AbstractContextManager = _launching

  def __enter__(self) -> None:
    _launching.__enter__()
    # Asked only now: a moment ago it may have been the CPU for a body that is alone.
    if not runtime.default_device().is_cpu:
      _launching.__exit__()
      self._scope = _Alone(self._device, 0, waits=self._waits)
      self._scope.__enter__()

  def __exit__(self, *exception: Any) -> None:
    self._scope.__exit__(*exception)


_bodies = SharedLock()
_launching = _Launching()
_NOTHING = contextlib.nullcontext()
CPU_KERNELS = threading.Lock()
"""Held by whatever runs kernels on the CPU; the last lock that is taken."""


def body(
  device: wp.Device, stream: int, *, alone: bool = False, waits: bool = True
) -> AbstractContextManager:
  """Makes a device and stream current for a body and keeps other bodies from changing them.

  Args:
    device: The device to run on.
    stream: The CUDA stream handle; ignored on the CPU.
    alone: Keep every other body out. Needed when the body may load modules or is captured.
    waits: Whether the body may wait for the device.
  """
  if not alone and device.is_cpu:
    return _OnCpu(device, waits=waits)
  return _Alone(device, stream, waits=alone or waits)


def launching(platform: str) -> AbstractContextManager:
  """Keeps launches on the CPU, with their device given, away from other kernels and captures."""
  return _launching if platform == "cpu" else _NOTHING


class OwnStreams(NamedTuple):
  """The streams of this package on a CUDA device."""

  capture: wp.Stream
  """Captures run here, so that XLA's streams never capture for us."""
  side: wp.Stream
  """Runs what a body forks off."""


class _StreamsByDevice:
  """The streams of this package, made once for each device and kept."""

  def __init__(self):
    self._streams: dict[str, OwnStreams] = {}

  def __call__(self, device: wp.Device) -> OwnStreams:
    """Returns the streams of a device.

    The first call for a device must come from a thread that does not hold the guard, which would
    wait for itself. `body` and `building` make such a call before they take it.
    """
    alias = device.alias  # a Device has no hash
    if alias not in self._streams:
      with _bodies.exclusive:
        if alias not in self._streams:
          self._streams[alias] = OwnStreams(wp.Stream(device), wp.Stream(device))
    return self._streams[alias]


own_streams = _StreamsByDevice()


def _external_stream(device: wp.Device, handle: int) -> wp.Stream:
  """Returns a Warp stream around XLA's stream handle, a new one each time.

  Warp knows a handle as long as the last stream object made for it lives: an older object that is
  kept would be unknown once another user of the handle has dropped its own. So a stream that is
  ours gets no second object.
  """
  own = own_streams(device).capture
  return own if handle == own.cuda_stream else wp.Stream(device, cuda_stream=handle)


class _Alone:
  """Makes a device and a stream current for one body, and keeps all others out."""

  __slots__ = ("_device", "_quiet", "_scope", "_stream", "_waits")

  def __init__(self, device: wp.Device, stream: int, *, waits: bool):
    self._device, self._stream, self._waits = device, stream, waits
    self._quiet = runtime.Quiet()
    self._scope: Any = None

  def __enter__(self) -> None:
    device, stream = self._device, self._stream
    if device.is_cuda:
      own_streams(device)
      if self._waits:
        _settle(stream)
    _bodies.exclusive.__enter__()
    try:
      if device.is_cpu:
        CPU_KERNELS.acquire()
    except BaseException:  # an interrupt while it waits
      _bodies.exclusive.__exit__()
      raise
    self._quiet.__enter__()
    try:
      if device.is_cuda:
        self._scope = runtime.OnStream(_external_stream(device, stream))
      else:
        self._scope = wp.ScopedDevice(device)
      self._scope.__enter__()
    except BaseException:
      self._scope = None
      self._release()
      raise

  def __exit__(self, *exception: Any) -> None:
    try:
      self._scope.__exit__(*exception)
    finally:
      # Warp's table of streams is for one thread at a time, so a stream goes before the guard.
      self._scope = None
      _forget_locals(exception[1])
      self._release()

  def _release(self) -> None:
    self._quiet.__exit__()
    if self._device.is_cpu:
      CPU_KERNELS.release()
    _bodies.exclusive.__exit__()


@contextlib.contextmanager
def building(device: wp.Device) -> Iterator[None]:
  """Makes a device current while buffers are made, alone, and waits until they are filled."""
  if device.is_cuda:
    own_streams(device)
  kernels = CPU_KERNELS if device.is_cpu else _NOTHING
  with _bodies.exclusive, kernels, runtime.Quiet(), wp.ScopedDevice(device):
    yield
    if device.is_cuda:  # they are filled on Warp's stream and used on XLA's
      runtime.synchronize_stream(device.stream.cuda_stream)


@contextlib.contextmanager
def tracing() -> Iterator[None]:
  """Makes the CPU current for Warp work while JAX traces, such as questions about a model.

  Without it, such work could end up in a graph that another thread records.
  """
  with building(call_lib.warp_device("cpu", 0)):
    yield


@contextlib.contextmanager
def recording(device: wp.Device, stream: wp.Stream | None) -> Iterator[None]:
  """As `body`, for a capture: alone, on a private stream of a CUDA device."""
  scope = wp.ScopedDevice(device) if stream is None else runtime.OnStream(stream)
  kernels = CPU_KERNELS if device.is_cpu else _NOTHING
  with _bodies.exclusive, kernels, runtime.Quiet(), scope:
    yield


def _forget_locals(error: BaseException | None) -> None:
  """Drops the local variables of the frames that an error ended, streams for example.

  XLA gets the error as text, so nobody looks at the frames any more.
  """
  seen = set()  # an error may be its own cause
  while error is not None and id(error) not in seen:
    seen.add(id(error))
    traceback.clear_frames(error.__traceback__)
    error = error.__cause__ or error.__context__


def _settle(stream: int) -> None:
  """With several GPUs, waits for what is queued on a stream, before a body takes its turn.

  There may be a collective in it, whose other half another thread is to launch. A body that waits
  for its stream would wait for that thread, and the thread for the turn of the body to end.
  """
  if not call_lib.only_device("CUDA") and not runtime.is_capturing(stream):
    runtime.synchronize_stream(stream)
