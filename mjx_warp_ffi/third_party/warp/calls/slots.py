"""A bounded cache of launchers, each used by one thread at a time.

`dispatch.py` finds the launcher of a call here, and the doors clear it.
"""

import collections
import contextlib
import threading
from collections.abc import Callable, Hashable
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.native import shortcut as shortcut_lib

DEFAULT_MAX = 32


class Slot:
  """A place for one launcher: its lock, and the order of its calls across CUDA streams.

  Attributes:
    lock: Held by the one call that uses the launcher.
    value: The device and the launcher; None until the first call has made it.
    released: Whether the cache has dropped this slot.
    shortcut: The way of its calls around Python, if there is one.
    event: The end of the last call on its stream, if calls must keep their order.
  """

  def __init__(self):
    """Makes an empty slot."""
    self.lock = threading.Lock()
    self.value: Any = None
    self.released = False
    self.shortcut: shortcut_lib.Shortcut | None = None
    self.event: wp.Event | None = None
    self._stream = 0

  def begin(self, stream: int) -> None:
    """Makes a stream wait for the last call if that may have run on another one."""
    if self.event is not None and (self.shortcut is not None or stream != self._stream):
      runtime.wait_event(self.event, stream)

  def end(self, device: wp.Device, stream: int) -> None:
    """Marks the end of a call on its stream."""
    if not device.is_cuda:
      return
    if self.event is None:
      self.event = wp.Event(device)
    runtime.record_event(self.event, stream)
    self._stream = stream

  def release(self) -> None:
    """Waits for calls that still run on a device, then drops the launcher."""
    with self.lock:
      try:
        if self.shortcut is not None:
          self.shortcut.close()
        if self.event is not None:
          runtime.synchronize_event(self.event)
      finally:
        self.value = self.shortcut = self.event = None
        self.released = True


class SlotCache:
  """Slots by key; the least recently used is released when there are more than `maximum`.

  Args:
    maximum: The bound; None for no bound.
  """

  def __init__(self, maximum: int | None = DEFAULT_MAX):
    """Makes an empty cache."""
    self._lock = threading.Lock()
    self._slots: collections.OrderedDict[Hashable, Slot] = collections.OrderedDict()
    self._maximum = maximum
    # The slot used last is the most recent one already and needs no look-up.
    self._last: tuple[Hashable, Slot] = (None, Slot())

  def __len__(self) -> int:
    """The number of slots that are held."""
    return len(self._slots)

  @property
  def maximum(self) -> int | None:
    """The number of launchers to keep; None for no bound."""
    return self._maximum

  @maximum.setter
  def maximum(self, value: int | None) -> None:
    self._maximum = value
    self._release(self._evicted(None))

  def acquire(self, key: Hashable) -> Slot:
    """Returns the slot of a key with its lock held, empty if it is new."""
    while True:
      last, slot = self._last
      if last is not key:
        slot = self._get(key)
        self._last = key, slot
      slot.lock.acquire()
      if not slot.released:
        return slot
      slot.lock.release()  # evicted since it was looked up
      self._last = None, slot

  def _get(self, key: Hashable) -> Slot:
    with self._lock:
      slot = self._slots.get(key)
      if slot is not None:
        self._slots.move_to_end(key)
        return slot
      slot = self._slots[key] = Slot()
    self._release(self._evicted(key))
    return slot

  def clear(self, matches: Callable[[Any], bool] = lambda key: True) -> None:
    """Releases the slots whose key matches, all of them by default."""
    with self._lock:
      keys = [key for key in self._slots if matches(key)]
      released = [self._slots.pop(key) for key in keys]
    self._release(released)

  def _evicted(self, newest: Hashable) -> list[Slot]:
    with self._lock:
      excess = 0 if self._maximum is None else len(self._slots) - self._maximum
      if excess > 0:
        # Calls that went around Python count, too.
        for key, slot in tuple(self._slots.items()):
          if key == newest or (slot.shortcut is not None and slot.shortcut.used()):
            self._slots.move_to_end(key)
      return [self._slots.popitem(last=False)[1] for _ in range(excess)]

  def _release(self, slots: list[Slot]) -> None:
    # Outside the lock: releasing waits for the slot's last call.
    with contextlib.ExitStack() as all_of_them:  # whatever goes wrong with one
      for slot in slots:
        all_of_them.callback(slot.release)
