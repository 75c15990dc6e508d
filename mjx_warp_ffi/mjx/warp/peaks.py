"""The largest counts that any call has seen, and what a full capacity asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import warp as wp
from mujoco_warp import OverflowType

from mjx_warp_ffi.mjx.spec import Sizes
from mjx_warp_ffi.mjx.warp import watch_kernels
from mjx_warp_ffi.mjx.warp.workspace import peaks_of, spread

# Limits of the solver's iterations, at which nothing is lost.
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
  """The largest counts on any device, by their names in `watch_kernels.PEAKS`."""
  largest = np.zeros(len(watch_kernels.PEAKS), np.int32)
  for device in wp.get_devices():
    counts = peaks_of(structure, device.alias)
    largest = np.maximum(largest, counts.numpy())
    if clear:
      counts.zero_()
  return dict(zip(watch_kernels.PEAKS, largest.tolist(), strict=True))


def lost(overflow: np.ndarray) -> np.ndarray:
  """The bits that say that something was lost."""
  return overflow & ~_ITERATIONS


def advice(overflow: np.ndarray, sizes: Sizes) -> Iterator[str]:
  """For each bit that is set in some world: how many worlds, and what to do about it."""
  counts = read(sizes.structure)
  for bit in OverflowType.ALL & ~OverflowType(_ITERATIONS):
    worlds = int(np.count_nonzero(overflow & int(bit)))
    if worlds:
      yield f"{bit.name} in {worlds} of {overflow.size} worlds: {_do(bit, counts, sizes, overflow)}"


def _do(bit: OverflowType, counts: dict[str, int], sizes: Sizes, overflow: np.ndarray) -> str:
  if bit == OverflowType.NEFC:
    return f"pass njmax={_round_up(max(counts['rows_of_a_world'], sizes.njmax + 1))} to make_data"
  if bit not in (OverflowType.NARROWPHASE, OverflowType.BROADPHASE):
    return _OTHERS[bit]
  pool = max(counts["contacts"], counts["pairs"])
  if sizes.naconmax is not None and counts["contacts_of_a_world"] <= sizes.nconmax:
    return f"pass naconmax={_round_up(max(pool, sizes.naconmax + 1))} to make_data"
  each = max(counts["contacts_of_a_world"], math.ceil(pool / spread(overflow.size)))
  return f"pass nconmax={_round_up(max(each, sizes.nconmax + 1))} to make_data"


def _round_up(count: int) -> int:
  return -(-count // 8) * 8
