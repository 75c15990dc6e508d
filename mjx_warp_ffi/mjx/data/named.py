"""Fields of Model and Data by the names of objects, or by the elements of an MjSpec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.enums import JointType

# How MjModel and MjData begin the names of an object's fields, where it is not "<kind>_".
_PREFIXES = {
  "body": ("body_", ""),
  "joint": ("jnt_", "dof_", ""),
  "camera": ("cam_",),
  "equality": ("eq_",),
  "material": ("mat_",),
  "tendon": ("tendon_", "ten_"),
  "actuator": ("actuator_", ""),
  "sensor": ("sensor_", "sensor", ""),
}
_DATA_FIELDS = {f.name: f for f in fields.data_fields()}
_MODEL_FIELDS = {f.name: f for f in fields.model_leaves()}

Rows = Callable[[Any, int], tuple[int, int]]


def _span(m: Any, joint: int, *, width: str, start: Any) -> tuple[int, int]:
  """The first number of a joint and how many it has."""
  return int(start[joint]), getattr(JointType(m.jnt_type[joint]), width)()


# The dimensions, beside its own number, that an object of a kind has rows of: (first, count).
_ROWS: dict[str, dict[str, Rows]] = {
  "body": {"nmocap": lambda m, i: (m.body_mocapid[i], int(m.body_mocapid[i] >= 0))},
  "joint": {
    "nq": lambda m, i: _span(m, i, width="qpos_width", start=m.jnt_qposadr),
    "nv": lambda m, i: _span(m, i, width="dof_width", start=m.jnt_dofadr),
  },
  "actuator": {
    "nu": lambda m, i: (m.actuator_ctrladr[i], m.actuator_ctrlnum[i]),
    "na": lambda m, i: (m.actuator_actadr[i], m.actuator_actnum[i]),
  },
  "sensor": {"nsensordata": lambda m, i: (m.sensor_adr[i], m.sensor_dim[i])},
}
_COUNTS = {"joint": "njnt", "camera": "ncam", "equality": "neq", "material": "nmat"}
_OBJECTS = {
  kind: getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
  for kind in "body joint geom site camera light tendon actuator sensor equality material".split()
}


class Bound:
  """Some objects of one kind, whose fields are attributes.

  Of a Data: `.xpos` of bodies, `.qpos` of joints, `.xmat` of geoms, `.ctrl` and `.force` of
  actuators, `.data` of sensors; of a Model: `.mass` of bodies, `.size` of geoms. One object gives
  its row (or its numbers, where it has several), several give theirs one after another.
  """

  def __init__(self, m: Any, kind: str, ids: int | Sequence[int], *, data: Any = None):
    """Binds objects.

    Args:
      m: the Model.
      kind: "body", "joint", "geom" and so on.
      ids: one or several.
      data: the Data, None to bind to the Model.
    """
    self._m, self._kind, self._ids, self._data = m, kind, ids, data

  @property
  def id(self) -> int | Sequence[int]:
    """The ids of the objects."""
    return self._ids

  def __getattr__(self, name: str) -> Any:
    """A field of these objects."""
    if name.startswith("_"):
      raise AttributeError(name)
    full, field, rows = self._find(name)
    owner = self._m if self._data is None else self._data
    value = getattr(owner, full)
    trailing = np.ndim(value) - 1 if field is None else len(field.sizes) + len(field.item) - 1
    index: Any = slice(rows[0], rows[-1] + 1) if _consecutive(rows) else np.array(rows)
    return value[(..., rows if isinstance(rows, int) else index, *[slice(None)] * trailing)]

  def set(self, name: str, value: Any) -> Any:
    """The Data, or Model, with a field of these objects replaced.

    Args:
      name: as the attribute.
      value: numbers for the objects, in their shape or flat.

    Returns:
      The new Data, or Model.

    Raises:
      AttributeError: if there is no such field, or it cannot be replaced.
    """
    full, field, rows = self._find(name)
    if field is None:
      raise AttributeError(f"{full} is part of the model's structure: it cannot be replaced")
    owner = self._m if self._data is None else self._data
    old = getattr(owner, full)
    trailing = len(field.sizes) + len(field.item) - 1
    at = (..., rows if isinstance(rows, int) else np.array(rows), *[slice(None)] * trailing)
    new = jnp.reshape(jnp.asarray(value, old.dtype), old[at].shape)
    return owner.replace(**{full: old.at[at].set(new)})

  def _find(self, name: str) -> tuple[str, fields.Field | None, Any]:
    """The full name of a field, the field (None if it is static), and the rows of the objects."""
    known = _MODEL_FIELDS if self._data is None else _DATA_FIELDS
    for prefix in _PREFIXES.get(self._kind, (f"{self._kind}_",)):
      full = prefix + name
      field = known.get(full)
      if field is not None and (rows := self._rows(str(field.sizes[0]))) is not None:
        return full, field, rows
      if self._data is None and field is None and prefix:
        static = getattr(self._m.spec.mj_model, full, None)
        if isinstance(static, np.ndarray):
          return full, None, self._ids if isinstance(self._ids, int) else list(self._ids)
    owner = "Model" if self._data is None else "Data"
    raise AttributeError(f"{owner} has no field {name!r} of a {self._kind}")

  def _rows(self, dimension: str) -> Any:
    if dimension == _COUNTS.get(self._kind, f"n{self._kind}"):
      return self._ids if isinstance(self._ids, int) else list(self._ids)
    place = _ROWS.get(self._kind, {}).get(dimension)
    if place is None:
      return None
    ids = [self._ids] if isinstance(self._ids, int) else self._ids
    spans = [place(self._m, i) for i in ids]
    rows = [int(first) + k for first, count in spans for k in range(int(count))]
    return rows[0] if isinstance(self._ids, int) and len(rows) == 1 else rows


def _consecutive(rows: Any) -> bool:
  return isinstance(rows, list) and bool(rows) and rows == list(range(rows[0], rows[-1] + 1))


class Names:
  """The objects of a model by their names: `names.body("torso")`."""

  def __init__(self, m: Any, *, data: Any = None):
    """Names of a Model, and of a Data if one is given."""
    self._m, self._data = m, data

  def __getattr__(self, kind: str) -> Callable[..., Bound]:
    """A function of names or ids that gives a `Bound`."""
    if kind not in _OBJECTS:
      raise AttributeError(f"no kind of object {kind!r}; valid kinds are {', '.join(_OBJECTS)}")

    def of(name: str | int | Sequence[str | int]) -> Bound:
      many = not isinstance(name, str | int | np.integer)
      ids = [self._id(kind, n) for n in (name if many else [name])]
      return Bound(self._m, kind, ids if many else ids[0], data=self._data)

    return of

  def _id(self, kind: str, name: str | int) -> int:
    mj_model = self._m.spec.mj_model
    count = getattr(mj_model, _COUNTS.get(kind, f"n{kind}"))
    if not isinstance(name, str):
      if not 0 <= name < count:
        raise KeyError(f"{kind} {name}: the model has {count}")
      return int(name)
    found = mujoco.mj_name2id(mj_model, _OBJECTS[kind], name)
    if found < 0:
      named = (mujoco.mj_id2name(mj_model, _OBJECTS[kind], i) for i in range(count))
      raise KeyError(f"no {kind} {name!r}; there are {', '.join(filter(None, named))}")
    return found


def bind(m: Any, elements: Any = None, *, data: Any = None) -> Any:
  """Access by name, or by the elements of the MjSpec that the model was compiled from.

  Args:
    m: the Model.
    elements: one element of an MjSpec or several of one kind; None for access by name.
    data: the Data, None for the fields of the Model.

  Returns:
    A `Names`, or the `Bound` of the elements.

  Raises:
    ValueError: if the elements are of another model, or of several kinds.
    KeyError: if an element is not part of the compiled model.
  """
  if elements is None:
    return Names(m, data=data)
  many = isinstance(elements, Iterable)
  listed = list(elements) if many else [elements]
  kinds = {type(e).__name__.removeprefix("Mjs").lower() for e in listed}
  if len(kinds) != 1:
    raise ValueError(f"elements must be of one kind, got {', '.join(sorted(kinds)) or 'none'}")
  for element in listed:
    if element.signature != m.signature:
      raise ValueError("the MjSpec and the Model differ: the Model is of another MjSpec")
    if element.id < 0:
      raise KeyError(f"element {getattr(element, 'name', '')!r} is not in the compiled model")
  ids = [int(e.id) for e in listed]
  return Bound(m, kinds.pop(), ids if many and len(ids) != 1 else ids[0], data=data)
