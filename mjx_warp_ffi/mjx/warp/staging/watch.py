"""Watches every call for bad states, full capacities and leaves of Model that are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp import OverflowType

from mjx_warp_ffi.mjx.data.enums import IntegratorType
from mjx_warp_ffi.mjx.data.spec import SLACK
from mjx_warp_ffi.mjx.warp.staging.world_contacts import WorldContacts

_MAXVAL = wp.constant(float(mujoco.mjMAXVAL))
# Its square is beyond single precision, and the solver returns where it started from.
_MAXFORCE = wp.constant(1e18)

_NEFC = wp.constant(int(OverflowType.NEFC))
_BROADPHASE = wp.constant(int(OverflowType.BROADPHASE))
_NARROWPHASE = wp.constant(int(OverflowType.NARROWPHASE))

BADQPOS = wp.constant(1 << int(mujoco.mjtWarning.mjWARN_BADQPOS))
BADQVEL = wp.constant(1 << int(mujoco.mjtWarning.mjWARN_BADQVEL))
BADQACC = wp.constant(1 << int(mujoco.mjtWarning.mjWARN_BADQACC))

# What is counted, by its place in the array of peaks.
PEAKS = ("contacts_of_a_world", "rows_of_a_world", "contacts", "pairs")
_PEAK_WORLD, _PEAK_ROWS, _PEAK_CONTACTS, _PEAK_PAIRS = (wp.constant(i) for i in range(4))

# The places in the array of flags that concern all worlds: what the pools lost, as overflow bits,
# and whether a leaf that all worlds share was ignored.
_POOL_LOST, _SHARED_IGNORED = wp.constant(0), wp.constant(1)
FLAGS = 2


@wp.struct
class FixedLeaf:
  """A leaf of Model that must keep its values, one for each word of a row; NaN allows any value."""

  ptr: wp.uint64
  rows: int
  words: int
  values: wp.uint64
  slack: float


@wp.func
def _within(value: float, limit: float) -> bool:
  return value > -limit and value < limit  # not NaN either: no comparison with it holds


@wp.func
def _exceeds(values: wp.array2d[float], limit: float, world: int):
  for i in range(values.shape[1]):
    if not _within(values[world, i], limit):
      return True
  return False


@wp.func
def bad_state(qpos: wp.array2d[float], qvel: wp.array2d[float], world: int):
  """The mjWARN_* bits of a position and a velocity."""
  bits = wp.int32(0)
  if _exceeds(qpos, _MAXVAL, world):
    bits = bits | BADQPOS
  if _exceeds(qvel, _MAXVAL, world):
    bits = bits | BADQVEL
  return bits


@wp.func
def bad_acceleration(qacc: wp.array2d[float], qfrc_smooth: wp.array2d[float], world: int):
  """The mjWARN_* bits of an acceleration, and of a force that the solver gives up on."""
  bits = wp.int32(0)
  if _exceeds(qacc, _MAXVAL, world) or _exceeds(qfrc_smooth, _MAXFORCE, world):
    bits = BADQACC
  return bits


@wp.kernel(enable_backward=False)
def begin(
  # Data in:
  qpos: wp.array2d[float],
  qvel: wp.array2d[float],
  # Data out:
  nefc: wp.array[int],
  # Out:
  warning: wp.array[int],
  ncon: wp.array[int],
  ignored: wp.array[int],
  flags: wp.array[int],
):
  """Flags bad positions and velocities, and zeroes the counts of a call."""
  # a thread a value: a thread a world would wait for its loads one after the other
  world, i = wp.tid()
  if i < qpos.shape[1] and not _within(qpos[world, i], _MAXVAL):
    wp.atomic_or(warning, world, BADQPOS)
  if i < qvel.shape[1] and not _within(qvel[world, i], _MAXVAL):
    wp.atomic_or(warning, world, BADQVEL)
  if i == 0:
    ncon[world] = 0
    nefc[world] = 0  # stale from the last call until rows are made
    ignored[world] = 0
    if world == 0:
      flags[_POOL_LOST] = 0
      flags[_SHARED_IGNORED] = 0


@wp.kernel(enable_backward=False)
def watch_pools(
  # Data in:
  naconmax: int,
  ncollision: wp.array[int],
  # Data out:
  nacon: wp.array[int],
  # Out:
  flags: wp.array[int],
  peaks: wp.array[int],
):
  """Notes whether the pools of pairs and contacts were too small, and how many there were."""
  pairs = ncollision[0]
  contacts = nacon[0]
  wp.atomic_max(peaks, _PEAK_PAIRS, pairs)
  wp.atomic_max(peaks, _PEAK_CONTACTS, contacts)
  if pairs > naconmax:
    flags[_POOL_LOST] = flags[_POOL_LOST] | _BROADPHASE
  if contacts > naconmax:
    flags[_POOL_LOST] = flags[_POOL_LOST] | _NARROWPHASE
    nacon[0] = naconmax  # some kernels of mujoco_warp index the pool with it unchecked


@wp.func
def _note_rows(
  # Data in:
  nefc: wp.array[int],
  njmax: int,
  # In:
  world: int,
  # Data out:
  overflow: wp.array[int],
  # Out:
  peaks: wp.array[int],
):
  rows = nefc[world]
  if rows > peaks[_PEAK_ROWS]:  # most worlds need no atomic
    wp.atomic_max(peaks, _PEAK_ROWS, rows)
  if rows > njmax:
    overflow[world] = overflow[world] | _NEFC


@wp.kernel(enable_backward=False)
def watch_rows(
  # Data in:
  nefc: wp.array[int],
  njmax: int,
  # Data out:
  overflow: wp.array[int],
  # Out:
  peaks: wp.array[int],
):
  """Notes the worlds with more constraint rows than there is room for."""
  _note_rows(nefc, njmax, wp.tid(), overflow, peaks)


@wp.kernel(enable_backward=False)
def watch_leaves(
  # In:
  leaves: wp.array[FixedLeaf],
  # Out:
  ignored: wp.array[int],
  flags: wp.array[int],
):
  """Notes the worlds where a leaf has another value than the one that the step assumes."""
  i = wp.tid()
  for k in range(leaves.shape[0]):
    leaf = leaves[k]
    if i < leaf.rows * leaf.words:
      got = wp.array(ptr=leaf.ptr, shape=(leaf.rows * leaf.words,), dtype=float)
      values = wp.array(ptr=leaf.values, shape=(leaf.words,), dtype=float)
      value = values[i % leaf.words]
      if not wp.isnan(value) and not (wp.abs(got[i] - value) <= leaf.slack):
        if leaf.rows == 1:
          flags[_SHARED_IGNORED] = 1
        else:
          ignored[i // leaf.words] = 1


@wp.kernel(enable_backward=False)
def end(
  # Data in:
  qfrc_smooth: wp.array2d[float],
  nefc: wp.array[int],
  njmax: int,
  # In:
  ncon: wp.array[int],
  nconmax: int,
  ignored: wp.array[int],
  flags: wp.array[int],
  # Data out:
  qpos: wp.array2d[float],
  qvel: wp.array2d[float],
  qacc: wp.array2d[float],
  overflow: wp.array[int],
  # Out:
  warning: wp.array[int],
  peaks: wp.array[int],
):
  """Flags bad accelerations and full capacities, and writes NaN where a leaf was ignored."""
  world, i = wp.tid()
  if i < qvel.shape[1]:
    if not (_within(qacc[world, i], _MAXVAL) and _within(qfrc_smooth[world, i], _MAXFORCE)):
      wp.atomic_or(warning, world, BADQACC)
  if i == 0:
    _note_rows(nefc, njmax, world, overflow, peaks)
    bits = flags[_POOL_LOST]  # a full pool may have dropped contacts of any world
    n = ncon[world]
    if n > nconmax:
      bits = bits | _NARROWPHASE
    if n > peaks[_PEAK_WORLD]:  # most worlds need no atomic
      wp.atomic_max(peaks, _PEAK_WORLD, n)
    if bits != 0:
      overflow[world] = overflow[world] | bits
  if ignored[world] != 0 or flags[_SHARED_IGNORED] != 0:
    if i < qpos.shape[1]:
      qpos[world, i] = wp.NAN
    if i < qvel.shape[1]:
      qvel[world, i] = wp.NAN
      qacc[world, i] = wp.NAN


class Watch:
  """Finds what went wrong in each world, and keeps the largest counts.

  Some leaves of Model must keep their values (`Spec.fixed`), because the compiled step ignores
  them: those of a feature that is compiled out are zero, and a simple body keeps its inertial
  frame. `Model.replace` refuses other values, but `jax.tree.map` over a Model, or a traced value,
  passes it by. In a world where such a leaf has another value, position, velocity and acceleration
  become NaN, so that nobody takes the result for right.

  Attributes:
    warning: mjWARN_* bits of each world.
  """

  def __init__(
    self,
    d: mjw.Data,
    contacts: WorldContacts,
    *,
    peaks: wp.array,
    fixed: Sequence[tuple[wp.array, np.ndarray]],
  ):
    """Watches `d`.

    Args:
      d: the worlds.
      contacts: their contacts by world.
      peaks: the largest counts so far (`PEAKS`), which several workspaces may share.
      fixed: the arrays of the leaves that must keep their values, and those values.
    """
    self._d, self._contacts, self._peaks = d, contacts, peaks
    self._flags = wp.zeros(FLAGS, dtype=int)
    self._ignored = wp.zeros(d.nworld, dtype=int)
    fixed = [(x, values) for x, values in fixed if x.size]
    self._fixed = [(x, wp.array(values, dtype=float)) for x, values in fixed]
    self._leaves = wp.array([_leaf(*pair) for pair in self._fixed], dtype=FixedLeaf)
    self._words = max((x.capacity // 4 for x, _ in self._fixed), default=0)
    self._values = max(1, d.qpos.shape[1])  # of a world; there are no more velocities
    self.warning = wp.zeros(d.nworld, dtype=int)

  def begin(self) -> None:
    """Flags bad positions and velocities, and zeroes the counts; before the physics."""
    d = self._d
    wp.launch(
      begin,
      dim=(d.nworld, self._values),
      inputs=[d.qpos, d.qvel],
      outputs=[d.nefc, self.warning, self._contacts.ncon, self._ignored, self._flags],
    )

  def collided(self, m: mjw.Model, d: mjw.Data) -> None:
    """Notes what had no room in the pools; after each collision detection."""
    if m.opt.integrator == IntegratorType.RK4:
      wp.launch(  # the rows of the stage before this one
        watch_rows,
        dim=d.nworld,
        inputs=[d.nefc, d.njmax],
        outputs=[d.overflow, self._peaks],
      )
    wp.launch(
      watch_pools,
      dim=1,
      inputs=[d.naconmax, d.ncollision, d.nacon],
      outputs=[self._flags, self._peaks],
    )

  def leaves(self) -> None:
    """Notes leaves that are ignored; between `begin` and `end`."""
    if self._fixed:
      outputs = [self._ignored, self._flags]
      wp.launch(watch_leaves, self._words, inputs=[self._leaves], outputs=outputs)

  def end(self) -> None:
    """Flags bad accelerations and full capacities; after the contacts are counted and `leaves`."""
    d = self._d
    wp.launch(
      end,
      dim=(d.nworld, self._values),
      inputs=[
        *(d.qfrc_smooth, d.nefc, d.njmax),
        *(self._contacts.ncon, self._contacts.nconmax, self._ignored, self._flags),
      ],
      outputs=[d.qpos, d.qvel, d.qacc, d.overflow, self.warning, self._peaks],
    )


def _leaf(array: wp.array, values: wp.array) -> Any:
  leaf = FixedLeaf()
  leaf.ptr, leaf.rows = array.ptr, array.shape[0]
  leaf.words = array.capacity // 4 // array.shape[0]
  leaf.values, leaf.slack = values.ptr, SLACK
  return leaf
