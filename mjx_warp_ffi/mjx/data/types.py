"""Model, Data, Option and Contact: the pytrees that go through JAX."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from mjx_warp_ffi.mjx.data import checks, fields, named, pickles
from mjx_warp_ffi.mjx.data.enums import Impl
from mjx_warp_ffi.mjx.data.pickles import Versioned, public
from mjx_warp_ffi.mjx.data.smoothing import ContactSmoothing
from mjx_warp_ffi.mjx.data.spec import Sizes, Spec

_Class = TypeVar("_Class", bound=type)
OptionStatics = collections.namedtuple(
  "OptionStatics", fields.option_statics(), module=pickles.ADDRESSES["types"]
)


@dataclass_transform()
def _pytree(leaves: Sequence[str]) -> Callable[[_Class], _Class]:
  """A flax.struct dataclass with leaves added whose names come from mujoco_warp.

  The class keeps its own `replace`, which checks names, shapes and dtypes.
  """

  def decorate(cls: _Class) -> _Class:
    own = cls.__dict__["replace"]
    cls.__annotations__ = {**dict.fromkeys(leaves, Any), **cls.__annotations__}
    made: Any = struct.dataclass(cls)
    made.replace = own  # flax has put its unchecked one there
    return made

  return decorate


def convert(name: str, value: Any, *, shape: tuple[int, ...], dtype: np.dtype) -> jax.Array:
  """`value` as an array of the dtype, with the shape or batch axes before it.

  Raises:
    ValueError: if the trailing axes are not `shape`.
    TypeError: if floats are given where integers or booleans belong.
  """
  array = jnp.asarray(value)
  if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
    raise ValueError(f"{name}: expected shape {shape}, or batch axes before it, got {array.shape}")
  if np.issubdtype(array.dtype, np.inexact) and not np.issubdtype(dtype, np.inexact):
    raise TypeError(f"{name}: expected {dtype} values, got {array.dtype}")
  return jax.lax.convert_element_type(array, dtype)


_OPTION_FIELDS = {
  f.name.removeprefix("opt."): f for f in fields.model_leaves() if f.name.startswith("opt.")
}
_MODEL_FIELDS = {f.name: f for f in fields.model_leaves() if not f.name.startswith("opt.")}
_DATA_FIELDS = {f.name: f for f in fields.data_fields()}
_CONTACT_FIELDS = {f.name: f for f in fields.contact_fields()}
# What `replace` takes beside these, without conversion: of a Model, and of a Data.
_SETTINGS = ("opt", "spec", "gradient", "autoreset", "contact_smoothing")
_OWN = ("contact", "ncon", "warning", "sizes")


def _new_leaf(
  owner: Any, name: str, value: Any, kind: tuple[str, tuple[int, ...], np.dtype]
) -> Any:
  """The new value of a leaf, converted; in a tree of axes (`in_axes`) an axis, unchanged."""
  if not hasattr(getattr(owner, name), "dtype"):
    return value
  return convert(kind[0], value, shape=kind[1], dtype=kind[2])


def _reject(what: str, names: Iterable[str], valid: Iterable[str], hint: str = "") -> None:
  """Raises ValueError for names that are not valid, with those that may be meant."""
  valid = sorted(valid)
  unknown = sorted(set(names) - set(valid))
  if not unknown:
    return
  if not hint:
    hint = checks.meant(unknown, valid) or "; `vars` of it has the valid names"
  raise ValueError(f"{what} has no replaceable field {', '.join(unknown)}{hint}")


def _batch(shape: Sequence[Any]) -> str:
  return f", batch {tuple(shape)}" if shape else ""


def _batches(leaves: dict[str, tuple[Any, int]]) -> str:
  """The batch shapes of leaves, or axes, each given with its number of axes in one model."""
  found: dict[str, list[str]] = {}
  for name, (leaf, ndim) in leaves.items():
    shape = getattr(leaf, "shape", ())
    text = f", axis {leaf}" if isinstance(leaf, int) else _batch(shape[: len(shape) - ndim])
    if text:
      found.setdefault(text, []).append(name)
  more = {k: f" and {len(names) - 3} more" if len(names) > 3 else "" for k, names in found.items()}
  return "".join(f"{k} of {', '.join(names[:3])}{more[k]}" for k, names in found.items())


@public
@_pytree(list(_OPTION_FIELDS))
class Option(Versioned):
  """Physics options: float options are leaves, integer ones static attributes.

  Attributes:
    statics: integrator, cone, solver, iterations, flags and the like; each is an attribute too.
  """

  statics: Any = struct.field(pytree_node=False)
  _named_tuples = {"statics": OptionStatics}

  def __getattr__(self, name: str) -> Any:
    if name in OptionStatics._fields:
      return getattr(self.statics, name)
    raise AttributeError(f"Option has no attribute {name!r}")

  def replace(self, **values: Any) -> Self:
    """A copy with some options replaced; a static one makes the step compile anew.

    Raises:
      ValueError: for an unknown option, or a static one that is no integer or switch.
    """
    _reject("opt", values, {*_OPTION_FIELDS, *OptionStatics._fields})
    static = {
      k: checks.static_option(k, v, old=getattr(self.statics, k))
      for k, v in values.items()
      if k not in _OPTION_FIELDS
    }
    leaves = {
      k: _new_leaf(self, k, v, (f"opt.{k}", _OPTION_FIELDS[k].item, _OPTION_FIELDS[k].dtype))
      for k, v in values.items()
      if k in _OPTION_FIELDS
    }
    return _copy(self, {**leaves, "statics": self.statics._replace(**static)})


@public
@_pytree(list(_MODEL_FIELDS))
class Model(Versioned):
  """A MuJoCo model whose numeric parameters are JAX arrays.

  Its leaves are what may differ between worlds (`body_mass`, `geom_friction`, `opt.gravity`, ...),
  in float32, with the shapes of MjModel (matrices as (3, 3)). Everything else of MjModel (`nv`,
  `geom_bodyid`, `names`, ...) is a static attribute. See `replace` and `tree_replace`.

  Attributes:
    opt: physics options.
    spec: the static part.
    gradient: how the step is differentiated: "analytic", "fd" or "none".
    autoreset: whether a world with a bad state is reset, as mj_step does.
    contact_smoothing: how the analytic gradient smooths contacts; None if it does not.
  """

  opt: Any
  spec: Any = struct.field(pytree_node=False)
  gradient: str = struct.field(pytree_node=False, default="analytic")
  autoreset: bool = struct.field(pytree_node=False, default=False)
  contact_smoothing: ContactSmoothing | None = struct.field(pytree_node=False, default=None)

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__") or name in _MODEL_FIELDS or name in ("spec", "opt"):
      raise AttributeError(name)
    try:
      return self.spec.attribute(name)
    except AttributeError:
      raise AttributeError(f"neither Model nor mujoco.MjModel has an attribute {name!r}") from None

  @property
  def impl(self) -> Impl:
    """The implementation, as mujoco.mjx names it."""
    return Impl.WARP

  def __repr__(self) -> str:
    mj_model = self.spec.mj_model
    name = bytes(mj_model.names).split(b"\0", 1)[0].decode()
    sizes = ", ".join(f"{n}={getattr(mj_model, n)}" for n in ("nq", "nv", "nu", "nbody", "ngeom"))
    leaves = {k: (getattr(self, k), len(self.shape_of(k))) for k in _MODEL_FIELDS}
    leaves |= {f"opt.{k}": (getattr(self.opt, k), len(f.item)) for k, f in _OPTION_FIELDS.items()}
    return f"Model({name!r}, {sizes}, gradient={self.gradient!r}{_batches(leaves)})"

  def bind(self, elements: Any = None) -> Any:
    """Fields by name, `m.bind().body("torso").mass`, or of elements of an MjSpec: `named.bind`."""
    return named.bind(self, elements, data=None)

  def shape_of(self, name: str) -> tuple[int, ...]:
    """Shape of a leaf of one model, without batch axes."""
    return leaf_shape(_MODEL_FIELDS[name], self.spec.mj_model)

  def replace(self, **values: Any) -> Self:
    """A copy with some leaves replaced, converted to float32; their shape is checked.

    A batch of models has batch axes before the shape of the field.

    Raises:
      ValueError: for a wrong shape, an unknown name, or a field of the topology.
      NotImplementedError: for options that MuJoCo Warp lacks, as `put_model`.
    """
    settings = {k: values.pop(k) for k in _SETTINGS if k in values}
    hint = ""
    if any(hasattr(self.spec.mj_model, k) for k in set(values) - set(_MODEL_FIELDS)):
      hint = (
        " (it is part of the model's structure: change it in an MjSpec or MjModel and put again)"
      )
    options = {f"opt.{k}" for k in values if k in _OPTION_FIELDS or k in OptionStatics._fields}
    if options:
      hint = f" (it is an option: tree_replace({{'{min(options)}': ...}}))"
    _reject("Model", values, [*_MODEL_FIELDS, *_SETTINGS], hint)
    leaves = {
      k: _new_leaf(self, k, v, (k, self.shape_of(k), _MODEL_FIELDS[k].dtype))
      for k, v in values.items()
    }
    checks.check_gradient(settings.get("gradient", self.gradient))
    opt = settings.get("opt", self.opt)
    checks.check_kind("opt", opt, kind=Option)
    if opt.statics != self.opt.statics:
      self.spec.check_options(opt.statics)
    changed = {f"opt.{k}": getattr(opt, k) for k in _OPTION_FIELDS if opt is not self.opt}
    arrays = {k: v for k, v in (leaves | changed).items() if hasattr(v, "dtype")}
    settings.setdefault("spec", self.spec.with_values(arrays))
    return _copy(self, {**leaves, **settings})

  def tree_replace(self, values: dict[str, Any]) -> Self:
    """A copy with the values at dotted paths replaced, such as {"opt.gravity": g}.

    Raises:
      ValueError: as `replace` does.
    """
    options = {k.removeprefix("opt."): v for k, v in values.items() if k.startswith("opt.")}
    leaves = {k: v for k, v in values.items() if not k.startswith("opt.")}
    if options:
      leaves["opt"] = self.opt.replace(**options)
    return self.replace(**leaves)


@public
@_pytree(list(_CONTACT_FIELDS))
class Contact(Versioned):
  """The contacts of one world: `Data.ncon` real ones, then padding up to `nconmax`.

  Fields have the names of mjContact and a leading axis of length `nconmax`; `frame` is
  (nconmax, 3, 3), the first row of a frame being the normal. In the padding `dist` is 1, `geom`
  is -1 and `efc_address` is -1.
  """

  def __repr__(self) -> str:
    *batch, nconmax = getattr(self.dist, "shape", ("?",))
    return f"Contact(nconmax={nconmax}{_batch(batch)})"

  def replace(self, **values: Any) -> Self:
    """A copy with some fields replaced."""
    _reject("Contact", values, _CONTACT_FIELDS)
    return _copy(self, values)


@public
@_pytree(list(_DATA_FIELDS))
class Data(Versioned):
  """State, inputs and results of one world (or of a batch, with leading axes), in float32.

  Fields have MuJoCo's names and MJX's shapes (`xmat` is (nbody, 3, 3)).

  Attributes:
    contact: this world's contacts.
    ncon: number of contacts, scalar int32.
    warning: mjWARN_* bits of bad states seen since the Data was made, scalar int32.
    sizes: capacities and the structure of the model it belongs to (static).
  """

  contact: Any
  ncon: Any
  warning: Any
  sizes: Any = struct.field(pytree_node=False)
  _named_tuples = {"sizes": Sizes}

  @property
  def impl(self) -> Impl:
    """The implementation, as mujoco.mjx names it."""
    return Impl.WARP

  def __repr__(self) -> str:
    fields_of = {"nq": "qpos", "nv": "qvel", "nu": "ctrl", "na": "act"}
    sizes = {n: getattr(getattr(self, f), "shape", ("?",))[-1] for n, f in fields_of.items()}
    sizes |= {n: x for n, x in self.sizes._asdict().items() if n != "structure" and x is not None}
    text = ", ".join(f"{n}={x}" for n, x in sizes.items())
    return f"Data({text}{_batch(getattr(self.time, 'shape', ()))})"

  def bind(self, m: Model, elements: Any = None) -> Any:
    """Fields by name, `d.bind(m).body("torso").xpos`, or of elements of an MjSpec."""
    return named.bind(m, elements, data=self)

  def replace(self, **values: Any) -> Self:
    """A copy with some fields replaced, converted to the field's dtype.

    Raises:
      ValueError: for an unknown name or a wrong shape.
      TypeError: for floats where integers or booleans belong.
    """
    own = {k: values.pop(k) for k in _OWN if k in values}
    checks.check_kind("contact", own.get("contact", self.contact), kind=Contact)
    _reject("Data", values, [*_DATA_FIELDS, *_OWN])
    batch = jnp.ndim(self.time)
    leaves = {
      k: convert(k, v, shape=getattr(self, k).shape[batch:], dtype=_DATA_FIELDS[k].dtype)
      for k, v in values.items()
    }
    return _copy(self, {**leaves, **own})

  def tree_replace(self, values: dict[str, Any]) -> Self:
    """A copy with the values at dotted paths replaced, such as {"qpos": q, "contact.dist": x}."""
    contact = {k.removeprefix("contact."): v for k, v in values.items() if k.startswith("contact.")}
    leaves = {k: v for k, v in values.items() if not k.startswith("contact.")}
    if contact:
      leaves["contact"] = self.contact.replace(**contact)
    return self.replace(**leaves)


def _copy(obj: Any, values: dict[str, Any]) -> Any:
  """A shallow copy of a frozen dataclass with some attributes replaced."""
  new = object.__new__(type(obj))
  for name in obj.__dataclass_fields__:
    object.__setattr__(new, name, values[name] if name in values else getattr(obj, name))
  return new


def with_results(d: Data, results: dict[str, Any]) -> Data:
  """A copy of a Data with computed fields, unchecked; a contact's are named `contact.dist`."""
  contact = {k.removeprefix("contact."): v for k, v in results.items() if k.startswith("contact.")}
  values = {k: v for k, v in results.items() if not k.startswith("contact.")}
  return _copy(d, {**values, "contact": _copy(d.contact, contact)})


def replace_leaves(m: Model, values: dict[str, Any]) -> Model:
  """A copy of a Model with leaves at dotted paths replaced, unchecked."""
  options = {k.removeprefix("opt."): v for k, v in values.items() if k.startswith("opt.")}
  leaves = {k: v for k, v in values.items() if not k.startswith("opt.")}
  return _copy(m, {**leaves, "opt": _copy(m.opt, options)})


def leaf_shape(field: fields.Field, mj_model: mujoco.MjModel) -> tuple[int, ...]:
  """Shape of a leaf: MjModel's, but matrices are (3, 3)."""
  shape = field.shape(mj_model)
  return shape if len(field.item) == 2 else getattr(mj_model, field.name, np.zeros(shape)).shape


def _leaf(owner: Any, field: fields.Field, name: str) -> jax.Array:
  value = np.asarray(getattr(owner, name))
  shape = leaf_shape(field, owner) if value.ndim and field.sizes else value.shape
  return jnp.array(value.reshape(shape), field.dtype)


def model_of(spec: Spec, statics: dict[str, Any], **settings: Any) -> Model:
  """The Model of the MjModel of a spec.

  Args:
    spec: the static part.
    statics: all static options, as mujoco_warp sets them for this model.
    **settings: the other static fields of the Model.
  """
  mj_model = spec.mj_model
  opt = {k: _leaf(mj_model.opt, f, k) for k, f in _OPTION_FIELDS.items()}
  leaves = {k: _leaf(mj_model, f, k) for k, f in _MODEL_FIELDS.items()}
  return Model(
    **leaves,
    opt=Option(**opt, statics=OptionStatics(**statics)),
    spec=spec,
    **settings,
  )
