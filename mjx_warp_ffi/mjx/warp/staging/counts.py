"""The largest counts of contacts and rows that calls have met, kept beyond their workspaces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import warp as wp

from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.warp.staging import watch


class Counts:
  """The largest counts (`watch.PEAKS`) of the calls so far, in arrays on their devices.

  Each pair of capacities and number of worlds has an array of its own on each device, since what
  one of them needs says nothing of the others. A workspace may be freed while its counts are still
  of interest, so the arrays, of 16 bytes each, are kept here.
  """

  def __init__(self):
    """Starts without calls."""
    self._lock = threading.Lock()
    self._arrays: dict[tuple[Sizes, int, str], wp.array] = {}

  def of(self, sizes: Sizes, nworld: int, *, device: str) -> wp.array:
    """The counts of the calls with these capacities and worlds on a Warp device."""
    key = (sizes, nworld, device)
    with self._lock:
      if key not in self._arrays:
        self._arrays[key] = wp.zeros(len(watch.PEAKS), dtype=int, device=device)
      return self._arrays[key]

  def select(self, matches: Callable[[Sizes], bool]) -> Iterator[tuple[int, wp.array]]:
    """Yields the number of worlds and the counts of the calls whose capacities match."""
    with self._lock:
      arrays = list(self._arrays.items())
    for (sizes, nworld, _), array in arrays:
      if matches(sizes):
        yield nworld, array

  def clear(self) -> None:
    """Forgets all calls."""
    with self._lock:
      self._arrays.clear()


COUNTS = Counts()
