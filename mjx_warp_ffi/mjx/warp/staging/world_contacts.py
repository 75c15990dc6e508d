"""The contacts of each world, in rows of their own, from the pool that all worlds share."""

from __future__ import annotations

import math

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import types as mjw_types

from mjx_warp_ffi.mjx.data import fields

_LANES = 64  # threads of a world that copy its contacts
_IS_CONSTRAINT = wp.constant(int(mjw_types.ContactType.CONSTRAINT))


@wp.struct
class Column:
  """Some 4-byte words of a field of a contact: where they lie in the pool and in the rows by world.

  `src_words` and `dst_words` are the words of a contact there, `word` the first of the `count` that
  are copied, `padding` their value where a world has no contact.
  """

  src: wp.uint64
  dst: wp.uint64
  src_words: int
  dst_words: int
  word: int
  count: int
  padding: int


@wp.kernel(enable_backward=False)
def _list_contacts(
  # Data in:
  nacon: wp.array[int],
  contact_worldid: wp.array[int],
  contact_type: wp.array[int],
  contact_geom: wp.array[wp.vec2i],
  contact_geomcollisionid: wp.array[int],
  # Out:
  listed: wp.array2d[int],
  keys: wp.array2d[wp.int64],
  ncon: wp.array[int],
):
  c = wp.tid()
  if c < nacon[0] and (contact_type[c] & _IS_CONSTRAINT) != 0:
    world = contact_worldid[c]
    slot = wp.atomic_add(ncon, world, 1)
    if slot < listed.shape[1]:
      listed[world, slot] = c
      g = contact_geom[c]  # -1 for a flex; 24 bits are enough for a geom
      pair = (wp.int64(g[0] + 1) << wp.int64(24)) | wp.int64(g[1] + 1)
      keys[world, slot] = (pair << wp.int64(15)) | wp.int64(contact_geomcollisionid[c] & 32767)


@wp.kernel(enable_backward=False)
def _sort_contacts(
  # In:
  ncon: wp.array[int],
  listed: wp.array2d[int],
  keys: wp.array2d[wp.int64],
  # Out:
  order: wp.array2d[int],
):
  world, i = wp.tid()
  n = wp.min(ncon[world], listed.shape[1])
  if i >= n:
    return
  contacts = listed[world]
  row = keys[world]
  c, key = contacts[i], row[i]
  rank = wp.int32(0)
  for k in range(n):
    other = row[k]
    if other < key or (other == key and contacts[k] < c):
      rank += 1
  order[world, rank] = c


@wp.func_native("for (int i = 0; i < words; ++i) ((int*)target)[i] = ((const int*)source)[i];")
def _copy_words(target: wp.uint64, source: wp.uint64, words: int): ...


@wp.func_native("for (int i = 0; i < words; ++i) ((int*)target)[i] = value;")
def _fill_words(target: wp.uint64, value: int, words: int): ...


@wp.func
def _address(start: wp.uint64, row: int, words: int, word: int) -> wp.uint64:
  """Where a word of a row lies, in rows of 4-byte words."""
  return start + wp.uint64(4) * (wp.uint64(row) * wp.uint64(words) + wp.uint64(word))


@wp.kernel(enable_backward=False)
def _copy_contacts(
  # In, with the addresses of what is written in the columns:
  ncon: wp.array[int],
  order: wp.array2d[int],
  columns: wp.array[Column],
  lanes: int,
  filled: wp.array[int],
):
  world, lane = wp.tid()
  n = order.shape[1]
  real = wp.min(ncon[world], n)
  rows = wp.max(real, filled[world])  # the others are padding since the last call
  for k in range(lane, rows * columns.shape[0], lanes):
    i = k // columns.shape[0]
    column = columns[k - i * columns.shape[0]]
    dst = _address(column.dst, world * n + i, column.dst_words, column.word)
    if i < real:
      src = _address(column.src, order[world, i], column.src_words, column.word)
      _copy_words(dst, src, column.count)
    else:
      _fill_words(dst, column.padding, column.count)


@wp.kernel(enable_backward=False)
def _find_rows(
  # Data in:
  contact_efc_address: wp.array2d[int],
  # In:
  ncon: wp.array[int],
  order: wp.array2d[int],
  # Out:
  first_row: wp.array3d[int],
):
  world, i = wp.tid()
  row = wp.int32(-1)
  if i < ncon[world]:
    row = contact_efc_address[order[world, i], 0]
  first_row[world, i, 0] = row


@wp.kernel(enable_backward=False)
def _to_pool(
  # In:
  ncon: wp.array[int],
  order: wp.array2d[int],
  by_world: wp.array3d[float],
  # Out:
  pool: wp.array2d[float],
):
  world, i, word = wp.tid()
  if i < ncon[world]:
    pool[order[world, i], word] = by_world[world, i, word]


@wp.kernel(enable_backward=False)
def _note_filled(
  # In:
  ncon: wp.array[int],
  nconmax: int,
  # Out:
  filled: wp.array[int],
):
  world = wp.tid()
  filled[world] = wp.min(ncon[world], nconmax)


class WorldContacts:
  """The contacts of each world, taken from mujoco_warp's pool, which all worlds share.

  They are sorted by geoms, so that their order depends neither on the timing of threads nor on the
  other worlds.

  Attributes:
    nconmax: contacts of a world that the arrays hold.
    ncon: number of contacts of each world, (nworld,).
    order: indices in the pool of the contacts of each world, (nworld, nconmax).
    arrays: by field name, (nworld, nconmax, ...).
  """

  def __init__(self, d: mjw.Data, nconmax: int):
    """Allocates the arrays."""
    self._d = d
    self.nconmax = nconmax
    rows = (d.nworld, nconmax)
    self._listed = wp.zeros(rows, dtype=int)
    self._keys = wp.zeros(rows, dtype=wp.int64)
    self._filled = wp.full(d.nworld, nconmax, dtype=int)  # the first call writes all padding
    self.order = wp.zeros(rows, dtype=int)
    self.ncon = wp.zeros(d.nworld, dtype=int)
    self.arrays = {}
    columns = []
    for field in fields.contact_fields():
      src = getattr(d.contact, field.name)
      dst = wp.zeros((d.nworld, nconmax, math.prod(field.item)), dtype=int)
      self.arrays[field.name] = dst
      if field.name == "efc_address" or src.size == 0 or dst.size == 0:
        dst.fill_(-1)
        continue
      padding = np.array(fields.PADDING.get(field.name, 0), field.dtype).view(np.int32)
      # a thread a word; on the CPU, where they run one after the other, a thread a contact
      count = dst.shape[2] if wp.get_device(dst.device).is_cpu else 1
      for word in range(0, dst.shape[2], count):
        column = Column()
        column.src, column.dst = src.ptr, dst.ptr
        column.src_words, column.dst_words = src.strides[0] // 4, dst.shape[2]
        column.word, column.count, column.padding = word, count, int(padding)
        columns.append(column)
    self._columns = wp.array(columns, dtype=Column)

  def count(self) -> None:
    """Counts the contacts of each world into `ncon`, which must be zero."""
    d, con = self._d, self._d.contact
    if self._columns.size:
      wp.launch(
        _list_contacts,
        dim=d.naconmax,
        inputs=[d.nacon, con.worldid, con.type, con.geom, con.geomcollisionid],
        outputs=[self._listed, self._keys, self.ncon],
      )

  def launch(self) -> None:
    """Fills `arrays` except `efc_address`, and adds to `ncon`, which must be zero."""
    if not self._columns.size:
      return
    self._sort()
    lanes = 1 if wp.get_device(self._columns.device).is_cpu else _LANES
    wp.launch(
      _copy_contacts,
      dim=(self._d.nworld, lanes),
      inputs=[self.ncon, self.order, self._columns, lanes, self._filled],
      block_dim=_LANES,
    )
    inputs = [self.ncon, self.nconmax]
    wp.launch(_note_filled, dim=self._d.nworld, inputs=inputs, outputs=[self._filled])

  def find_rows(self) -> None:
    """Fills `efc_address`; after the constraint rows."""
    if self._columns.size:
      wp.launch(
        _find_rows,
        dim=self._listed.shape,
        inputs=[self._d.contact.efc_address, self.ncon, self.order],
        outputs=[self.arrays["efc_address"]],
      )

  def to_pool(self, by_world: wp.array, pool: wp.array) -> None:
    """Writes numbers of each world's contacts where those contacts are in the pool, zero elsewhere.

    Args:
      by_world: (nworld, nconmax, words).
      pool: (naconmax, ...), of that many words each.
    """
    words = by_world.shape[2]
    flat = wp.array(ptr=pool.ptr, dtype=float, shape=(pool.shape[0], words), device=pool.device)
    pool.zero_()
    self.ncon.zero_()
    self._sort()
    inputs = [self.ncon, self.order, by_world, flat]
    wp.launch(_to_pool, dim=by_world.shape, inputs=inputs)

  def _sort(self) -> None:
    """Fills `order` and adds to `ncon`, which must be zero."""
    self.count()
    rows = self._listed.shape
    wp.launch(
      _sort_contacts,
      dim=rows,
      inputs=[self.ncon, self._listed, self._keys],
      outputs=[self.order],
    )
