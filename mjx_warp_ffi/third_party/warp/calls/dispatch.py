"""From a call to its launcher, found by what the call has apart from its pointers.

A `Dispatcher` is the handler of a target. It makes a launcher for each device, text and set of
shapes, when the first such call comes, and leaves a shortcut where the launcher offers one.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import jax
import warp as wp

from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.calls import slots, snapshot, target
from mjx_warp_ffi.third_party.warp.native import shortcut as shortcut_lib
from mjx_warp_ffi.third_party.warp.process import guard

_MAX_FRAMES = 512
_NOTHING = contextlib.nullcontext()


class Launcher(Protocol):
  """Runs the calls of one key on one device with one set of shapes."""

  ordered: bool
  """Whether calls from different CUDA streams must wait for one another."""

  def __call__(self, pointers: bytes, stream: int) -> None:
    """Runs one call with XLA's pointers (arguments, then results) on XLA's stream."""
    ...

  @property
  def routine(self) -> shortcut_lib.Routine | None:
    """What it does with a call like the last one, if the handler in C++ can do that, too."""
    ...


@dataclasses.dataclass(frozen=True)
class CallShapes:
  """The calls that a launcher is made for.

  Attributes:
    key: the text that travels with each of them, without the name of the target.
    inputs: the arguments; their pointers are those of the first such call.
    outputs: the results, likewise.
  """

  key: bytes
  inputs: tuple[xla_ffi.Buffer, ...]
  outputs: tuple[xla_ffi.Buffer, ...]


class Key:
  """A tuple that is hashed once: that of many arguments takes longer to hash than to launch."""

  __slots__ = ("_hash", "value")

  def __init__(self, value: tuple[Any, ...]):
    """Keeps the value."""
    self.value = value
    self._hash = hash(value)

  def __hash__(self) -> int:
    """The hash of the value."""
    return self._hash

  def __eq__(self, other: object) -> bool:
    """Whether the values are equal."""
    return self is other or (isinstance(other, Key) and self.value == other.value)


def _slot_key(
  place: tuple[Any, ...], inputs: Sequence[xla_ffi.Buffer], outputs: Sequence[xla_ffi.Buffer]
) -> Key:
  described = tuple((b.dtype.num, b.shape) for b in (*inputs, *outputs))
  return Key((*place, len(inputs), described))


class _KnownFrame:
  """A call frame whose shapes are known, until XLA changes them."""

  def __init__(self, call: call_lib.Call, ordinal: int):
    frame = call.frame
    self.device = (call.platform, ordinal)
    self.slot = _slot_key((call.key, *self.device), call.inputs(), call.outputs())
    self.text = snapshot.Text(frame[xla_ffi.ATTRS])
    self.inputs = snapshot.Buffers(frame[xla_ffi.ARGS], frame[xla_ffi.ARG_COUNT])
    self.outputs = snapshot.Buffers(frame[xla_ffi.RETS], frame[xla_ffi.RET_COUNT])
    self._parts = (b"", b"")
    self._pointers = b""

  @property
  def pointers(self) -> bytes:
    """The data pointers of the call: the same object as long as they are the same."""
    parts = self.inputs.pointers, self.outputs.pointers
    if parts[0] is not self._parts[0] or parts[1] is not self._parts[1]:
      self._parts, self._pointers = parts, parts[0] + parts[1]
    return self._pointers

  def recognises(self, call: call_lib.Call, ordinal: int) -> bool:
    """Returns whether a call at this frame has the same place, dtypes and shapes."""
    frame = call.frame
    return (
      (call.platform, ordinal) == self.device
      and frame[xla_ffi.ATTR_COUNT] == 1
      and self.text.recognises(frame[xla_ffi.ATTRS])
      and self.inputs.recognises(frame[xla_ffi.ARGS], frame[xla_ffi.ARG_COUNT])
      and self.outputs.recognises(frame[xla_ffi.RETS], frame[xla_ffi.RET_COUNT])
    )


class Dispatcher:
  """The handler of a target whose launchers are made on demand.

  Args:
    build: Makes the launcher of a device and shapes.
    by_pointer: Whether a launcher serves one set of pointers only.
    maximum: How many launchers to keep.
  """

  def __init__(
    self,
    build: Callable[[wp.Device, CallShapes], Launcher],
    *,
    by_pointer: bool = False,
    maximum: int | None = slots.DEFAULT_MAX,
  ):
    """Makes a dispatcher without launchers."""
    self.slots = slots.SlotCache(maximum)
    self._build = build
    self._by_pointer = by_pointer
    self._frames: dict[tuple[int, int], _KnownFrame] = {}
    self._keys: dict[Key, Key] = {}

  def __call__(self, call: call_lib.Call) -> None:
    """Runs one call from XLA."""
    stream = call.stream
    pointers, key = self._locate(call, call.ordinal)
    slot = self.slots.acquire(key)
    try:
      if slot.value is None:
        device = call_lib.warp_device(call.platform, call.ordinal)
        shapes = CallShapes(call.key, tuple(call.inputs()), tuple(call.outputs()))
        slot.value = (device, self._build(device, shapes))
      if slot.shortcut is None:
        self._launch(slot, pointers, stream)
        self._offer(slot, call)
      else:
        with slot.shortcut:
          self._launch(slot, pointers, stream)
        slot.shortcut.lead(call.frame)
    finally:
      slot.lock.release()

  def _launch(self, slot: slots.Slot, pointers: bytes, stream: int) -> None:
    device, launcher = slot.value
    if launcher.ordered and device.is_cuda:
      slot.begin(stream)
      launcher(pointers, stream)
      slot.end(device, stream)
    else:
      launcher(pointers, stream)

  def _offer(self, slot: slots.Slot, call: call_lib.Call) -> None:
    """Makes the shortcut of a launcher for the calls to come, if it offers one."""
    device, launcher = slot.value
    if device.is_cuda and launcher.routine is not None:
      native = target.native_handler()
      if native is not None:
        slot.shortcut = shortcut_lib.Shortcut(
          native, call.frame, ordinal=call.ordinal, routine=launcher.routine, event=slot.event
        )
        slot.shortcut.open(call.frame)

  def prepare(self, shapes: CallShapes, jax_device: jax.Device) -> None:
    """Makes and warms up the launcher of calls to come."""
    platform = "cpu" if jax_device.platform == "cpu" else "CUDA"
    place = (shapes.key, platform, jax_device.local_hardware_id or 0)
    slot = self.slots.acquire(_slot_key(place, shapes.inputs, shapes.outputs))
    try:
      device = call_lib.warp_device(platform, place[2])
      if slot.value is None:
        slot.value = (device, self._build(device, shapes))
      stream = guard.own_streams(device).capture.cuda_stream if device.is_cuda else 0
      with slot.shortcut or _NOTHING:
        slot.begin(stream)
        slot.value[1].warm(stream)
        slot.end(device, stream)
    finally:
      slot.lock.release()

  def _locate(self, call: call_lib.Call, ordinal: int) -> tuple[bytes, Hashable]:
    """Returns the pointers of a call and the key of its slot."""
    frame = call.frame
    address = frame[xla_ffi.ARGS], frame[xla_ffi.RETS]
    # Taken out while in use: XLA may free a frame and another thread get its address.
    known = self._frames.pop(address, None)
    if known is None or not known.recognises(call, ordinal):
      known = _KnownFrame(call, ordinal)
      if len(self._frames) >= _MAX_FRAMES:
        self._frames.clear()
        self._keys.clear()
      # One object for equal keys, so that finding the slot compares identities.
      known.slot = self._keys.setdefault(known.slot, known.slot)
    pointers, key = known.pointers, known.slot
    self._frames[address] = known
    return pointers, (key, pointers) if self._by_pointer else key
