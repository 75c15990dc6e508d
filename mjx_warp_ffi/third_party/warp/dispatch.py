"""From a call to its launcher, found by what the call has apart from its pointers."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import warp as wp

from mjx_warp_ffi.third_party.warp import cache, xla_ffi
from mjx_warp_ffi.third_party.warp import call as call_lib

_MAX_SEEN = 512


class Launcher(Protocol):
  """Runs the calls of one key, device and set of shapes."""

  ordered: bool
  """Whether calls from different CUDA streams must wait for one another."""

  def __call__(self, pointers: bytes, stream: int) -> None:
    """Runs one call with XLA's pointers (arguments, then results) on XLA's stream."""
    ...


@dataclasses.dataclass(frozen=True)
class Shapes:
  """What a launcher is made for.

  Attributes:
    key: the attribute that travelled with the call.
    inputs: the arguments; their pointers are those of the first such call.
    outputs: the results, likewise.
  """

  key: bytes
  inputs: tuple[xla_ffi.Buffer, ...]
  outputs: tuple[xla_ffi.Buffer, ...]


@dataclasses.dataclass(frozen=True)
class _Seen:
  """A call frame whose shapes are known, until XLA changes them."""

  place: tuple[Any, ...]
  inputs: xla_ffi.Snapshot
  outputs: xla_ffi.Snapshot
  slot: tuple[Any, ...]


class Dispatcher:
  """The handler of a target whose launchers are made on demand.

  Args:
    build: Makes the launcher of a device and shapes.
    by_pointer: Whether a launcher serves one set of pointers only.
    maximum: How many launchers to keep.
  """

  def __init__(
    self,
    build: Callable[[wp.Device, Shapes], Launcher],
    *,
    by_pointer: bool = False,
    maximum: int | None = cache.DEFAULT_MAX,
  ):
    """Makes a dispatcher without launchers."""
    self.slots = cache.SlotCache(maximum)
    self._build = build
    self._by_pointer = by_pointer
    self._seen: dict[tuple[int, int], _Seen] = {}

  def __call__(self, call: call_lib.Call) -> None:
    """Runs one call from XLA."""
    place, stream = (call.key, call.platform, call.ordinal), call.stream
    pointers, key = self._locate(call, place)
    slot = self.slots.acquire(key)
    try:
      if slot.value is None:
        device = call_lib.warp_device(call.platform, place[2])
        shapes = Shapes(place[0], tuple(call.inputs()), tuple(call.outputs()))
        slot.value = (device, self._build(device, shapes))
      device, launcher = slot.value
      if launcher.ordered and device.is_cuda:
        slot.begin(stream)
        launcher(pointers, stream)
        slot.end(device, stream)
      else:
        launcher(pointers, stream)
    finally:
      slot.lock.release()

  def _locate(self, call: call_lib.Call, place: tuple[Any, ...]) -> tuple[bytes, tuple[Any, ...]]:
    """Returns the pointers of a call and the key of its slot."""
    pointers, inputs, outputs = call.structs()
    address = call.frame[xla_ffi.ARGS], call.frame[xla_ffi.RETS]
    seen = self._seen.get(address)
    if not (
      seen
      and seen.place == place
      and seen.inputs.describes(inputs)
      and seen.outputs.describes(outputs)
    ):
      described = tuple((b.dtype.num, b.shape) for b in (*call.inputs(), *call.outputs()))
      seen = _Seen(place, *call.snapshots(), (*place, call.counts, described))
      if len(self._seen) >= _MAX_SEEN:
        self._seen.clear()
      self._seen[address] = seen
    return pointers, (seen.slot, pointers) if self._by_pointer else seen.slot
