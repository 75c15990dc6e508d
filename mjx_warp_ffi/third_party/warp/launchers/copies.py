"""Copies between XLA's buffers and fixed Warp buffers: one kernel for all arguments.

XLA's pointers lie in a table that the host refreshes between replays, so a captured graph never
changes. A kernel costs less than as many graph memcpy nodes: those must be updated one by one.
"""

import ctypes
from collections.abc import Collection, Sequence

import numpy as np
import warp as wp

from mjx_warp_ffi.third_party.warp import runtime

# A CUDA block moves one chunk, 16 bytes a lane and round. A chunk on the CPU is a whole array.
_LANES = 256
_CHUNK = 16 * _LANES * 4


_MOVE = """
#if defined(__CUDA_ARCH__)
  char* to = (char*)target;
  const char* from = (const char*)source;
  if (((target | source) & 15) == 0) {
    for (long long i = 16 * lane; i + 16 <= size; i += 16 * lanes)
      WIDE;
    for (long long i = (size & ~15LL) + lane; i < size; i += lanes)
      to[i] = from[i];
  } else if (((target | source | size) & 3) == 0) {
    for (long long i = 4 * lane; i < size; i += 4 * lanes)
      *(int*)(to + i) = *(const int*)(from + i);
  } else {
    for (long long i = lane; i < size; i += lanes)
      to[i] = from[i];
  }
#else
  if (lane == 0)
    __builtin_memcpy((void*)target, (const void*)source, (unsigned long long)size);
#endif
"""
_IN = _MOVE.replace("WIDE", "*(int4*)(to + i) = *(const int4*)(from + i)")
# Nobody on the device reads a result again soon: it should not drive other data out of the cache.
_OUT = _MOVE.replace("WIDE", "__stcs((int4*)(to + i), __ldcs((const int4*)(from + i)))")


@wp.func_native(snippet=_IN)
def _move_in(target: wp.uint64, source: wp.uint64, size: wp.int64, lane: int, lanes: int): ...


@wp.func_native(snippet=_OUT)
def _move_out(target: wp.uint64, source: wp.uint64, size: wp.int64, lane: int, lanes: int): ...


@wp.kernel(enable_backward=False)
def _copy(
  table: wp.array(dtype=wp.uint64),
  entry: wp.array(dtype=wp.int32),
  offset: wp.array(dtype=wp.uint64),
  fixed: wp.array(dtype=wp.uint64),
  size: wp.array(dtype=wp.int64),
  lanes: int,
  outward: bool,
):
  chunk, lane = wp.tid()
  moving = table[entry[chunk]] + offset[chunk]
  if outward:
    _move_out(moving, fixed[chunk], size[chunk], lane, lanes)
  else:
    _move_in(fixed[chunk], moving, size[chunk], lane, lanes)


Fixed = wp.array | tuple[wp.array, ...] | None
"""Where an argument or result lies: in an array, in several one after the other, or nowhere."""


class _Direction:
  """The chunks of one direction, launched together."""

  def __init__(self, table: wp.array, places: Sequence[tuple[int, Fixed]], *, outward: bool):
    device = wp.get_device(table.device)
    lanes, chunk = (_LANES, _CHUNK) if device.is_cuda else (1, 0)
    entry, offset, fixed, size = [], [], [], []
    for place, arrays in places:
      before = 0
      for array in parts(arrays):
        total = byte_count(array)
        for start in range(0, total, chunk or max(total, 1)):
          assert array.ptr is not None  # there are bytes
          entry.append(place)
          offset.append(before + start)
          fixed.append(array.ptr + start)
          size.append(min(chunk or total, total - start))
        before += total
    self.count = len(entry)
    self._dim = (self.count, lanes)
    self._inputs = [
      table,
      wp.array(np.array(entry, np.int32), dtype=wp.int32, device=device),
      wp.array(np.array(offset, np.uint64), dtype=wp.uint64, device=device),
      wp.array(np.array(fixed, np.uint64), dtype=wp.uint64, device=device),
      wp.array(np.array(size, np.int64), dtype=wp.int64, device=device),
      lanes,
      outward,
    ]

  def launch(self) -> None:
    if self.count:
      device = self._inputs[0].device
      wp.launch(_copy, dim=self._dim, inputs=self._inputs, device=device, block_dim=_LANES)


class Copies:
  """Moves the arguments of a call into fixed buffers and results out of them.

  Attributes:
    table: XLA's pointers, on the device.

  Args:
    device: Where all buffers lie.
    inputs: The i-th argument goes to the i-th array; None skips it.
    outputs: The i-th result comes from the i-th array; None skips it.
    early: Indices of the results that `scatter_early` moves.
  """

  def __init__(
    self,
    device: wp.Device,
    inputs: Sequence[Fixed],
    outputs: Sequence[Fixed],
    *,
    early: Collection[int] = (),
  ):
    """Lays out the chunks of all arrays."""
    self._device = device
    self._arrays = (tuple(inputs), tuple(outputs))  # the chunks hold bare addresses into them
    self._length = 8 * (len(inputs) + len(outputs))
    # Filled through a pointer: NumPy views of a Warp array cost more than the copy.
    self.table = wp.zeros(max(1, self._length // 8), dtype=wp.uint64, device=device)
    self._table_address = self.table.ptr or 0
    self._pointers = b""
    places = [(len(inputs) + i, x) for i, x in enumerate(outputs)]
    soon = [places[i] for i in sorted(early)]
    late = [place for i, place in enumerate(places) if i not in early]
    self._in = _Direction(self.table, list(enumerate(inputs)), outward=False)
    self._early = _Direction(self.table, soon, outward=True)
    self._out = _Direction(self.table, late, outward=True)

  def refresh(self, pointers: bytes, stream: int) -> None:
    """Sets XLA's pointers for the copies that follow on the stream.

    Args:
      pointers: 64-bit words, arguments first.
      stream: The CUDA stream handle; ignored on the CPU.

    Raises:
      ValueError: The number of pointers is not that of the buffers.
    """
    if pointers == self._pointers:
      return
    if len(pointers) != self._length:
      raise ValueError(
        f"expected {len(self._arrays[0])} arguments and {len(self._arrays[1])} results, "
        f"got {len(pointers) // 8} buffers in all"
      )
    if self._device.is_cuda:
      runtime.copy_to_device(self._device, self._table_address, source=pointers, stream=stream)
    else:
      ctypes.memmove(self._table_address, pointers, self._length)
    self._pointers = pointers

  def forget(self) -> None:
    """Lets the next call fill in its pointers, whatever they are."""
    self._pointers = b""

  def gather(self) -> None:
    """Launches the copies of all arguments on the current stream."""
    self._in.launch()

  def scatter_early(self) -> None:
    """Launches the copies of the early results on the current stream."""
    self._early.launch()

  def scatter(self) -> None:
    """Launches the copies of the other results on the current stream."""
    self._out.launch()


def parts(fixed: Fixed) -> tuple[wp.array, ...]:
  """Returns the arrays that an argument or result is the concatenation of."""
  if fixed is None:
    return ()
  return fixed if isinstance(fixed, tuple) else (fixed,)


def byte_count(array: wp.array) -> int:
  """Returns the number of bytes of a contiguous array's elements."""
  return array.size * wp.types.type_size_in_bytes(array.dtype)
