"""Errors that name the alternatives where forward mode or a second derivative is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

_FORWARD_MODE = (
  "the step has first derivatives in reverse mode only: for forward mode use mjx.step_jvp, for"
  " Jacobians mjx.transition_fd"
)


@jax.custom_jvp
def reverse_once(x: jax.Array) -> jax.Array:
  """The identity, whose differentiation raises: a backward pass has no derivative itself."""
  return x


@reverse_once.defjvp
def _reverse_twice(primals: Any, tangents: Any) -> Any:
  raise NotImplementedError(_FORWARD_MODE)


@contextlib.contextmanager
def reverse_only() -> Iterator[None]:
  """A context in which JAX's refusal of forward mode becomes an error with the alternatives."""
  try:
    yield
  except (TypeError, NotImplementedError) as error:
    if "forward-mode" in str(error) or "custom_partitioning" in str(error):
      raise NotImplementedError(_FORWARD_MODE) from error
    raise
