"""Checks of what users replace in a Model or a Data."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_GRADIENTS = ("analytic", "fd", "none")


def check_gradient(gradient: Any) -> None:
  """Raises ValueError for what is no way to differentiate a step."""
  if gradient not in _GRADIENTS:
    raise ValueError(f"gradient must be one of {', '.join(_GRADIENTS)}, got {gradient!r}")


def meant(unknown: Iterable[str], valid: list[str]) -> str:
  """A question for valid names that unknown ones may stand for: `body_mass` for `mass`."""

  def near(name: str) -> list[str]:
    ending = [v for v in valid if v.endswith((f"_{name}", f".{name}"))]
    return list(dict.fromkeys([*ending, *difflib.get_close_matches(name, valid)]))[:3]

  found = dict.fromkeys(n for name in unknown for n in near(name))
  return f"; did you mean {' or '.join(found)}?" if found else ""


def static_option(name: str, value: Any, *, old: Any) -> Any:
  """The new value of a static option, in the type of the old one."""
  try:
    new = type(old)(value)
    same = bool(new == value)
  except (TypeError, ValueError):  # also of tracers
    new, same = None, False
  if not same:
    kind = "True or False" if isinstance(old, bool) else "an integer"
    raise ValueError(
      f"opt.{name} is compiled into the step and must be {kind}, got {value!r}; enumerations are"
      " in mjx, such as mjx.IntegratorType.EULER"
    )
  return new


def check_kind(name: str, value: Any, *, kind: type) -> None:
  """Raises TypeError for what is no part of a pytree of this kind."""
  if not isinstance(value, kind):
    raise TypeError(
      f"{name} must be of type {kind.__name__}, got {type(value).__name__}; to replace a part of"
      f" it, tree_replace({{'{name}.<field>': ...}})"
    )
