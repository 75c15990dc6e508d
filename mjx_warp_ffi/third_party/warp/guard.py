"""Who may run Python code that launches Warp work, and when.

Warp keeps three things per process, not per thread: the default device, the current stream of
each CUDA device, and the graph that the CPU records. So a body that launches work needs them to
itself, except that bodies on the CPU may overlap while the CPU is the default device anyway.
Replaying a captured graph touches none of them and needs no guard.
"""

import contextlib
import threading
from collections.abc import Iterator

import warp as wp

from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp import runtime


class SharedLock:
  """A lock for many readers or one writer; a waiting writer goes before new readers."""

  def __init__(self):
    """Makes a lock that nobody holds."""
    self._changed = threading.Condition()
    self._readers = 0
    self._writers_waiting = 0
    self._writing = False

  @contextlib.contextmanager
  def shared(self) -> Iterator[None]:
    """Holds the lock together with other readers."""
    with self._changed:
      self._changed.wait_for(lambda: not self._writing and not self._writers_waiting)
      self._readers += 1
    try:
      yield
    finally:
      with self._changed:
        self._readers -= 1
        self._changed.notify_all()

  @contextlib.contextmanager
  def exclusive(self) -> Iterator[None]:
    """Holds the lock alone."""
    with self._changed:
      self._writers_waiting += 1
      self._changed.wait_for(lambda: not self._writing and not self._readers)
      self._writers_waiting -= 1
      self._writing = True
    try:
      yield
    finally:
      with self._changed:
        self._writing = False
        self._changed.notify_all()


_bodies = SharedLock()


@contextlib.contextmanager
def body(device: wp.Device, stream: int, *, alone: bool = False) -> Iterator[None]:
  """Makes a device and stream current for a body and keeps other bodies from changing them.

  Args:
    device: The device to run on.
    stream: The CUDA stream handle; ignored on the CPU.
    alone: Keep every other body out. Needed when the body may load modules or is captured.
  """
  if device.is_cuda:
    _settle(device, stream)
  elif not alone and runtime.default_device().is_cpu:
    with _bodies.shared():
      yield
    return
  with _bodies.exclusive():
    if not device.is_cuda:
      with wp.ScopedDevice(device):
        yield
      return
    with wp.ScopedStream(call_lib.external_stream(device, stream), sync_enter=False):
      yield


@contextlib.contextmanager
def building(device: wp.Device) -> Iterator[None]:
  """Makes a device current while buffers are made, alone, and waits until they are filled."""
  with _bodies.exclusive(), wp.ScopedDevice(device):
    yield
    if device.is_cuda:  # they are filled on Warp's stream and used on XLA's
      wp.synchronize_stream(device.stream)


@contextlib.contextmanager
def recording(device: wp.Device, stream: wp.Stream | None) -> Iterator[None]:
  """As `body`, for a capture: alone, on a private stream of a CUDA device."""
  with _bodies.exclusive():
    if stream is None:
      with wp.ScopedDevice(device):
        yield
    else:
      with wp.ScopedStream(stream, sync_enter=False):
        yield


def _settle(device: wp.Device, stream: int) -> None:
  """Waits for what is queued on a stream when other devices could be part of it.

  A body that synchronises while it holds the guard would otherwise wait for a collective whose
  other half sits in a thread that waits for the guard.
  """
  if wp.get_cuda_device_count() > 1 and not runtime.is_capturing(stream):
    wp.synchronize_stream(call_lib.external_stream(device, stream))
