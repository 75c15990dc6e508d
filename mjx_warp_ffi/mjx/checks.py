"""Checks of what users replace in a Model or a Data."""

from __future__ import annotations

from typing import Any

_GRADIENTS = ("analytic", "fd", "none")


def check_gradient(gradient: Any) -> None:
  """Raises ValueError for what is no way to differentiate a step."""
  if gradient not in _GRADIENTS:
    raise ValueError(f"gradient must be one of {', '.join(_GRADIENTS)}, got {gradient!r}")


def static_option(name: str, value: Any, *, old: Any) -> Any:
  """The value of a static option to be, in the type of the old one."""
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
