"""Which results had a cotangent although they have no rule, noted on the devices.

Inside a loop every result has a cotangent, and only at run time it shows which are not zero. The
backward call notes in its own graph those of results without a rule, so that it need not wait for
the host; `read` asks for the notes later.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.ffi import FIELDS


@wp.kernel(enable_backward=False)
def note(
  # In:
  nonzero: wp.array2d[int],
  which: wp.array[int],
  # Out:
  flags: wp.array[int],
):
  """Sets the flags of the results whose cotangent is not zero, a thread per world and result."""
  world, i = wp.tid()
  if nonzero[world, i] != 0:
    wp.atomic_max(flags, which[i], 1)


@functools.cache
def names() -> tuple[str, ...]:
  """The results that may have a cotangent, in the order of the flags."""
  return tuple(sorted(n for n, f in FIELDS.items() if np.issubdtype(f.dtype, np.inexact)))


@functools.lru_cache(maxsize=64)
def flags_of(device: str) -> wp.array:
  """A flag for each of `names` on a Warp device, set where a gradient became NaN for it."""
  return wp.zeros(len(names()), dtype=int, device=device)


class Notes:
  """Sets the flags of some results.

  Attributes:
    nonzero: whether the cotangent of a result is not zero, (nworld, number of results).
  """

  def __init__(self, results: Sequence[str], nworld: int):
    """For these results, on the current Warp device."""
    self.nonzero = wp.zeros((nworld, len(results)), dtype=int)
    self._which = wp.array([names().index(n) for n in results], dtype=int)
    self._flags = flags_of(wp.get_device().alias)

  def launch(self) -> None:
    """Sets the flags; can be captured."""
    wp.launch(note, self.nonzero.shape, inputs=[self.nonzero, self._which, self._flags])


def read(*, clear: bool = False) -> tuple[str, ...]:
  """The names whose flag is set on any device."""
  seen = np.zeros(len(names()), bool)
  for device in wp.get_devices():
    flags = flags_of(device.alias)
    seen |= flags.numpy() != 0
    if clear:
      flags.zero_()
  return tuple(name for name, found in zip(names(), seen, strict=True) if found)
