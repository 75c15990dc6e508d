"""Which capacities the calls so far would have needed, and what to do about a full one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from mujoco_warp import OverflowType

from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.warp.models.acceptance import round_up
from mjx_warp_ffi.mjx.warp.staging import watch
from mjx_warp_ffi.mjx.warp.staging.counts import COUNTS
from mjx_warp_ffi.mjx.warp.staging.workspace import spread

# Bits that say that a solver stopped at its limit of iterations: nothing was left out then.
_ITERATIONS = int(OverflowType.ITERATIONS | OverflowType.LS_ITERATIONS)
_OTHERS = {
  OverflowType.NJMAX_NNZ: "pass a larger njmax_nnz to make_data, at most njmax * nv",
  OverflowType.CCD: "leave nccdmax and naccdmax out of make_data, or pass larger ones",
  OverflowType.HFIELD: "a geom touches too many cells of a height field: make it coarser",
  OverflowType.CONTACT_MATCH: "raise opt.contact_sensor_maxmatch",
  OverflowType.NVMAX: "pass a larger nvmax to make_data, at most nv",
  OverflowType.EPA_HORIZON: "the penetration depth of two convex geoms was not found: less depth",
  OverflowType.TACTILE: "a tactile sensor touches more geoms than mujoco_warp holds",
}


def read(structure: str, *, clear: bool = False) -> dict[str, int]:
  """The largest counts of any call and device, by their names in `watch.PEAKS`."""
  largest = np.zeros(len(watch.PEAKS), np.int32)
  for _, counts in COUNTS.select(lambda sizes: sizes.structure == structure):
    largest = np.maximum(largest, counts.numpy())
    if clear:
      counts.zero_()
  return dict(zip(watch.PEAKS, largest.tolist(), strict=True))


@dataclasses.dataclass(frozen=True)
class Demand:
  """The room that calls needed for contacts and rows, the most of all of them.

  Attributes:
    contacts: the most contacts of a world.
    rows: the most constraint rows of a world.
    pool: the most contacts, or pairs of geoms that may touch, of all worlds of a call.
    share: the smallest `nconmax` whose pool has room for as many.
  """

  contacts: int = 0
  rows: int = 0
  pool: int = 0
  share: int = 0


def demand(sizes: Sizes, nworld: int) -> Demand:
  """The demand of the calls with these capacities, of `nworld` worlds if there were such calls."""
  calls = list(COUNTS.select(lambda other: other == sizes))
  calls = [call for call in calls if call[0] == nworld] or calls
  total = Demand()
  for worlds, array in calls:
    counts = dict(zip(watch.PEAKS, array.numpy().tolist(), strict=True))
    contacts, pairs = counts["contacts"], counts["pairs"]
    # the pool of a single world has spare places for its pairs only
    share = max(contacts / (1 if worlds == 1 else spread(worlds)), pairs / spread(worlds))
    total = Demand(
      max(total.contacts, counts["contacts_of_a_world"]),
      max(total.rows, counts["rows_of_a_world"]),
      max(total.pool, contacts, pairs),
      max(total.share, math.ceil(share)),
    )
  return total


def lost(overflow: np.ndarray) -> np.ndarray:
  """The bits that say that something was lost."""
  return overflow & ~_ITERATIONS


def advice(overflow: np.ndarray, sizes: Sizes, *, nworld: int) -> Iterator[str]:
  """For each bit that is set in some world: how many worlds, and what to do about it.

  Args:
    overflow: the bits of each world.
    sizes: the capacities of the worlds.
    nworld: how many of the worlds one call computes, those on one device.

  Yields:
    A sentence a bit.
  """
  needed = demand(sizes, nworld)
  for bit in OverflowType.ALL & ~OverflowType(_ITERATIONS):
    worlds = int(np.count_nonzero(overflow & int(bit)))
    if worlds:
      yield f"{bit.name} in {worlds} of {overflow.size} worlds: {_do(bit, needed, sizes)}"


def _do(bit: OverflowType, needed: Demand, sizes: Sizes) -> str:
  if bit == OverflowType.NEFC:
    return f"pass njmax={round_up(max(needed.rows, sizes.njmax + 1))} to make_data"
  if bit not in (OverflowType.NARROWPHASE, OverflowType.BROADPHASE):
    return _OTHERS[bit]
  if sizes.naconmax is not None and needed.contacts <= sizes.nconmax:
    return f"pass naconmax={round_up(max(needed.pool, sizes.naconmax + 1))} to make_data"
  most = max(needed.contacts, needed.share, sizes.nconmax + 1)
  return f"pass nconmax={round_up(most)} to make_data"
