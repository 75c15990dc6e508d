"""What reverse mode alone can do says so when more is asked for."""

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
  """The identity, which refuses to be differentiated."""
  return x


@reverse_once.defjvp
def _reverse_twice(primals: Any, tangents: Any) -> Any:
  raise NotImplementedError(_FORWARD_MODE)


@contextlib.contextmanager
def reverse_only() -> Iterator[None]:
  """Says what to use instead of forward mode, where JAX refuses it."""
  try:
    yield
  except (TypeError, NotImplementedError) as error:
    if "forward-mode" in str(error) or "custom_partitioning" in str(error):
      raise NotImplementedError(_FORWARD_MODE) from error
    raise
