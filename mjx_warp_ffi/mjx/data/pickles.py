"""How Model, Data and what they hold are pickled and copied.

A pickle names a class by an address that stays when files move: public classes are in
`mjx_warp_ffi.mjx`, the others in the modules of `ADDRESSES`, which only re-export them. The state
of an object is the pair `(VERSION, values)`, its attributes by their names, named tuples being
dicts. Version 1 had no number: its state is the dict of attributes as they were, caches included.
Whoever changes what a state holds raises `VERSION` and teaches `unpack` the version before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

VERSION = 2
PUBLIC = "mjx_warp_ffi.mjx"
ADDRESSES = {"spec": "mjx_warp_ffi.mjx.spec", "types": "mjx_warp_ffi.mjx.types"}
_CACHES = ("_views", "digest")  # attributes of a Spec in version 1, made anew

_Class = TypeVar("_Class", bound=type)


def located(module: str) -> Callable[[_Class], _Class]:
  """A decorator that gives a class the module by which pickles and messages name it."""

  def decorate(cls: _Class) -> _Class:
    cls.__module__ = module
    return cls

  return decorate


public = located(PUBLIC)


def pack(values: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
  """The state of an object with these attributes."""
  return VERSION, {k: v._asdict() if _is_named_tuple(v) else v for k, v in values.items()}


def unpack(kind: str, state: Any, *, names: Iterable[str]) -> dict[str, Any]:
  """The attributes in a state of any known version.

  Args:
    kind: name of the class, for messages.
    state: what was pickled.
    names: the attributes that the class has today.

  Returns:
    The attributes by name; named tuples are dicts.

  Raises:
    ValueError: for a version that is not known, or if the attributes have other names.
  """
  if isinstance(state, dict):
    version, values = 1, {k: v for k, v in state.items() if k not in _CACHES}
    values = {k: v._asdict() if _is_named_tuple(v) else v for k, v in values.items()}
  else:
    version, values = state
  if not 1 <= version <= VERSION:
    raise ValueError(
      f"this {kind} was pickled in version {version} of its state, and this mjx_warp_ffi reads"
      f" versions up to {VERSION}: load it with the mjx_warp_ffi that pickled it or a newer one, or"
      " make it anew (put_model, make_data)"
    )
  lacks, more = sorted(set(names) - set(values)), sorted(set(values) - set(names))
  if lacks or more:
    text = [f"lacks {', '.join(lacks)}"] * bool(lacks)
    text += [f"has {', '.join(more)}, which are unknown here"] * bool(more)
    raise ValueError(
      f"this {kind}, pickled in version {version} of its state, {' and '.join(text)}: load it with"
      " the mjx_warp_ffi and mujoco_warp that pickled it, or make it anew (put_model, make_data)"
    )
  return values


def _is_named_tuple(value: Any) -> bool:
  return isinstance(value, tuple) and hasattr(value, "_asdict")


class Versioned:
  """Gives a dataclass the state above; frozen ones too."""

  # The classes of the attributes that are named tuples.
  _named_tuples: Mapping[str, type] = {}

  def __getstate__(self) -> tuple[int, dict[str, Any]]:
    """The state to pickle."""
    return pack(vars(self))

  def __setstate__(self, state: Any) -> None:
    """Fills an object that has no attributes yet."""
    for name, value in unpack(type(self).__name__, state, names=self.__dataclass_fields__).items():
      kind = self._named_tuples.get(name)
      object.__setattr__(self, name, value if kind is None else kind(**value))
