"""Batch axes: all leading axes fold into one axis of worlds, and results unfold again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import custom_batching

Arrays = tuple[jax.Array, ...]


def fold(x: jax.Array, size: int, is_batched: bool) -> jax.Array:
  """(size, nworld, ...) to (size * nworld, ...); an array without the batch is repeated."""
  if not is_batched:
    x = jnp.broadcast_to(x[None], (size, *x.shape))
  return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def unfold(x: jax.Array, size: int) -> jax.Array:
  """(size * nworld, ...) to (size, nworld, ...)."""
  return x.reshape(size, x.shape[0] // size, *x.shape[1:])


def batched(
  call: Callable[[frozenset[int], Arrays], Arrays], shared: int, rows: frozenset[int] = frozenset()
) -> Callable[..., Arrays]:
  """A function over worlds that `vmap` turns into the same function over more worlds.

  Args:
    call: Takes the indices of the shared arguments that have a row for each world, and the
      arguments; all results have a leading axis of worlds.
    shared: The number of arguments, the first ones, that all worlds may share; they get an axis of
      worlds only when they differ between worlds. The others always have one.
    rows: The shared arguments that have an axis of worlds already.

  Returns:
    The function of the arguments.
  """

  @custom_batching.custom_vmap
  def over_worlds(*args: jax.Array) -> Arrays:
    return tuple(call(rows, args))

  @over_worlds.def_vmap
  def rule(size: int, in_batched: list[bool], *args: jax.Array) -> tuple[Any, Any]:
    nworld = next(x.shape[1 if b else 0] for x, b in zip(args[shared:], in_batched[shared:]))
    folded, more = [], set(rows)
    for i, (x, is_batched) in enumerate(zip(args, in_batched, strict=True)):
      if i >= shared or i in rows:
        folded.append(fold(x, size, is_batched))
      elif is_batched:
        more.add(i)
        each = jnp.broadcast_to(x[:, None], (size, nworld, *x.shape[1:]))
        folded.append(each.reshape(size * nworld, *x.shape[1:]))
      else:
        folded.append(x)
    results = batched(call, shared, frozenset(more))(*folded)
    return tuple(unfold(x, size) for x in results), (True,) * len(results)

  return over_worlds
