"""Whether a call is like an earlier one, by the memory that XLA describes it in.

To decode a call anew takes longer than to compare some bytes with what they were.

Only memory that belongs to the call may be read. So the pointers are compared first, and what they
point to only once they are as they were; memory between two objects that lie so close together may
be read with them.
"""

import ctypes
import itertools
import struct
import sys
from collections.abc import Iterable, Sequence

from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.xla_ffi import BUFFER, DATA, WORD

# Two objects less than this apart lie in the same or in neighbouring pages, so that the gap between
# them can be read. XLA keeps its buffers in a vector, less than 100 bytes apart.
_MAX_DISTANCE = 256
_SPAN = struct.Struct("=2Q")


class _Memory:
  """Bytes at an address, and what they were once.

  Reading them anew through one ctypes object takes a tenth of the time of `ctypes.string_at`.
  """

  __slots__ = ("_view", "was")

  def __init__(self, address: int, size: int):
    self._view = (ctypes.c_char * size).from_address(address)
    self.was = self._view.raw

  def read(self) -> bytes:
    return self._view.raw

  def is_as_it_was(self) -> bool:
    return self._view.raw == self.was


class Text:
  """The string of the first attribute as it was once.

  Attributes:
    value: the string.
  """

  def __init__(self, items: int):
    """Reads the string."""
    self._items = items
    self._table = _Memory(items, WORD)
    self._span = _Memory(int.from_bytes(self._table.was, sys.byteorder), _SPAN.size)
    self._text = _Memory(*_SPAN.unpack(self._span.was))
    self.value = self._text.was

  def recognises(self, items: int) -> bool:
    """Returns whether the first attribute is the same string, in the same place."""
    return (
      items == self._items
      and self._table.is_as_it_was()
      and self._span.is_as_it_was()
      and self._text.is_as_it_was()
    )


class Buffers:
  """A list of buffers as it was once.

  It is recognised by its pointers to buffers, then by the buffers, then by the dimensions that
  they point to. XLA keeps short dimensions in front of their buffer, in one object with it; so
  where the objects lie at equal distances, these are compared together with the buffers.

  Attributes:
    pointers: the packed data pointers of the list that was recognised last.
  """

  def __init__(self, items: int, count: int):
    """Reads a list."""
    self._list = items, count
    self._table = _Memory(items, WORD * count)
    addresses = struct.unpack(f"={count}Q", self._table.was)
    regions = xla_ffi.dims_regions(items, count)
    first, step, blocks = DATA, BUFFER, [(address, BUFFER) for address in addresses]
    if (distance := _distance(addresses)) is not None:
      step = distance
      start = _start(addresses[0], step - BUFFER, regions)
      end = addresses[-1] + BUFFER
      first, blocks = addresses[0] + DATA - start, [(start, end - start)]
      regions = [(at, size) for at, size in regions if not start <= at <= end - size]
    self._blocks = [_Memory(*block) for block in blocks]
    self._dims = [_Memory(*region) for region in regions]
    first, step = first // WORD, step // WORD
    self._column = slice(first, first + step * max(count - 1, 0) + 1, step)
    self._buffers = self._read()
    self.pointers, self._masked = self._mask(self._buffers)

  def recognises(self, items: int, count: int) -> bool:
    """Returns whether a list has the dtypes and shapes of this one; updates `pointers`."""
    if (items, count) != self._list or not self._table.is_as_it_was():
      return False
    buffers = self._read()
    if buffers != self._buffers:
      pointers, masked = self._mask(buffers)
      if masked != self._masked:
        return False
      self.pointers, self._buffers = pointers, buffers
    return not self._dims or all(memory.is_as_it_was() for memory in self._dims)

  def _read(self) -> bytes:
    if len(self._blocks) == 1:
      return self._blocks[0].read()
    return b"".join(block.read() for block in self._blocks)

  def _mask(self, buffers: bytes) -> tuple[bytes, bytearray]:
    """Returns the data pointers, and the buffers with these zeroed."""
    masked = bytearray(buffers)
    column = memoryview(masked).cast("Q")[self._column]
    pointers = column.tobytes()
    column[:] = memoryview(bytes(len(pointers))).cast("Q")
    return pointers, masked


def _distance(addresses: Sequence[int]) -> int | None:
  """Returns the distance of buffers that lie at equal ones, close together."""
  distances = {b - a for a, b in itertools.pairwise(addresses)}
  if len(distances) != 1:
    return None
  (distance,) = distances
  return distance if BUFFER <= distance <= _MAX_DISTANCE and not distance % WORD else None


def _start(buffer: int, room: int, regions: Iterable[tuple[int, int]]) -> int:
  """Returns where the object of a buffer begins, as far as its dimensions are in front of it."""
  inside = (at for at, size in regions if buffer - room <= at <= buffer - size)
  return min(inside, default=buffer)
