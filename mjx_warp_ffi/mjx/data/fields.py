"""The fields of Model and Data, read from mujoco_warp's annotations.

mujoco_warp annotates every array with its dimensions (`"*"` or `"nworld"` first, if the array may
differ between worlds) and its dtype. Everything here is derived from that, so that a new field of
mujoco_warp appears by itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
import warp as wp
from mujoco_warp import Contact, Data, Model, Option


@dataclasses.dataclass(frozen=True)
class Field:
  """One array of Model, Data or Contact, without its world axis.

  Attributes:
    name: attribute path, for example `opt.gravity`.
    sizes: the names of its dimensions (attributes of MjModel or capacities), or integers.
    item: shape of one element, for example `(3, 3)` for a matrix.
    dtype: dtype of the scalars.
  """

  name: str
  sizes: tuple[str | int, ...]
  item: tuple[int, ...]
  dtype: np.dtype

  def shape(self, sizes: Any) -> tuple[int, ...]:
    """Shape of the array, `sizes` having the named dimensions as attributes."""
    dims = (getattr(sizes, s) if isinstance(s, str) else s for s in self.sizes)
    return (*(int(d) for d in dims), *self.item)


def array_fields(cls: type, prefix: str = "") -> Iterator[tuple[str, tuple[str | int, ...], Any]]:
  """Yields (dotted name, dimensions, Warp dtype) of every Warp array in a dataclass."""
  for field in dataclasses.fields(cls):
    if dataclasses.is_dataclass(field.type):
      yield from array_fields(field.type, f"{prefix}{field.name}.")
    elif isinstance(field.type, wp.array):
      shape = tuple(int(s) if str(s).isdigit() else s for s in field.type.shape)
      yield prefix + field.name, shape, field.type.dtype


def field(name: str, sizes: tuple[str | int, ...], *, dtype: Any) -> Field:
  """The field of an array with a Warp dtype."""
  dtype = {int: wp.int32, float: wp.float32}.get(dtype, dtype)
  scalar = getattr(dtype, "_wp_scalar_type_", dtype)
  item = tuple(getattr(dtype, "_shape_", ()))
  return Field(name, sizes, item, np.dtype(wp.dtype_to_numpy(scalar)))


# `actuator_historyadr` and its like are addresses: static, though mujoco_warp has them per world.
_ADDRESSES = ("_history", "_historyadr")


# Leaves that mujoco_warp holds in another form, which `mjx/warp/staging/static_geoms.py` computes.
CONVERTED = {"opt.impratio": "opt.impratio_invsqrt", "opt.tolerance": "opt.tolerance"}
_LEAF_OF_TARGET = {target: leaf for leaf, target in CONVERTED.items()}


@functools.cache
def model_leaves() -> tuple[Field, ...]:
  """The leaves of Model: what mujoco_warp can hold for each world."""
  leaves = []
  for name, dims, dtype in array_fields(Model):
    if dims[:1] == ("*",) and not name.endswith(_ADDRESSES):
      leaves.append(field(_LEAF_OF_TARGET.get(name, name), dims[1:], dtype=dtype))
  return tuple(leaves)


@functools.cache
def option_statics() -> tuple[str, ...]:
  """The names of the options that are compiled into a step."""
  arrays = {name for name, _, _ in array_fields(Option)}
  return tuple(f.name for f in dataclasses.fields(Option) if f.name not in arrays)


# Results of interest have only these dimensions; the others belong to factors, sparse matrices,
# islands and constraint rows, which stay in the workspace.
_SIZES = frozenset(
  "nq nv na nu nactuator nbody njnt ngeom nsite ncam nlight ntendon nsensordata nflexvert"
  " nflexedge nmocap neq nuserdata nhistory nplastic ntree".split()
)
_SCRATCH = (
  *("crb", "qLDiagInv", "qHDiagInv", "flexvert_hessian", "flexedge_hessian"),
  *("ten_wrap", "moment_", "efm_", "map_", "island_", "tree_island", "dof_island"),
  *("tree_awake", "body_awake", "dof_awake", "nisland", "nidof", "ntree_awake", "nbody_awake"),
  "nv_awake",
)

# What a step integrates; the forward dynamics leaves it alone.
INTEGRATED = tuple("time qpos qvel act history plastic qacc_warmstart tree_asleep".split())
# What only the user writes.
INPUTS = tuple("ctrl qfrc_applied xfrc_applied eq_active mocap_pos mocap_quat userdata".split())
# What a step reads: mjSTATE_INTEGRATION without plugins, and which trees sleep.
STATE = (*INTEGRATED, *INPUTS)
# What a step adds to: bits of what went wrong since the Data was made.
ACCUMULATED = ("overflow", "warning")

# What the rows of `Data.contact` after the last contact hold, where that is not zero.
PADDING = {"dist": 1, "geom": -1, "efc_address": -1, "flex": -1, "elem": -1, "vert": -1}


@functools.cache
def data_fields() -> tuple[Field, ...]:
  """The per-world arrays of Data: state, inputs and results."""
  fields = []
  for name, dims, dtype in array_fields(Data):
    public = name == "overflow" or hasattr(mujoco.MjData, name)
    known = dims[:1] == ("nworld",) and all(not isinstance(s, str) or s in _SIZES for s in dims[1:])
    if public and known and not name.startswith(_SCRATCH):
      fields.append(field(name, dims[1:], dtype=dtype))
  return tuple(fields)


@functools.cache
def contact_fields() -> tuple[Field, ...]:
  """The arrays of Contact, one row a contact of a world."""
  pool = {"worldid", "type", "geomcollisionid"}
  fields = []
  for name, dims, dtype in array_fields(Contact):
    if name in pool:
      continue
    # a contact's first row stands for all of them, which are consecutive, as in mjContact
    kept = ("nconmax",) if name == "efc_address" else ("nconmax", *dims[1:])
    fields.append(field(name, kept, dtype=dtype))
  return tuple(fields)


def lookup(obj: Any, name: str) -> Any:
  """The attribute of `obj` at a dotted path."""
  return functools.reduce(getattr, name.split("."), obj)
