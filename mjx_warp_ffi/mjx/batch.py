"""Batches of worlds: choosing between two of them, and which leaves have a batch axis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.types import Model, leaf_shape


def where(mask: jax.Array, a: Any, b: Any) -> Any:
  """Takes whole worlds from `a` where `mask` holds and from `b` elsewhere.

  Args:
    mask: booleans, one for each world; its axes are the leading axes of the leaves.
    a: a Data, a Model or any other pytree; a leaf without batch axes serves all worlds.
    b: a pytree of the same structure.

  Returns:
    The pytree of the selected worlds; each is bit-identical to where it comes from.

  Raises:
    ValueError: if the structures differ, for example Data of different capacities.
    TypeError: if `mask` is not boolean.
  """
  mask = jnp.asarray(mask)
  if mask.dtype != jnp.bool_:
    raise TypeError(f"mask must be boolean, got {mask.dtype}")
  if jax.tree.structure(a) != jax.tree.structure(b):
    raise ValueError(
      "where needs two pytrees of one structure: two Data of the same model and capacities"
      f" ({getattr(a, 'sizes', '')}, {getattr(b, 'sizes', '')})"
    )

  return _select(mask, a, b)


@jax.jit  # one program, where the caller has none
def _select(mask: jax.Array, a: Any, b: Any) -> Any:
  def select(x: jax.Array, y: jax.Array) -> jax.Array:
    rank = max(jnp.ndim(x), jnp.ndim(y))
    return jnp.where(mask.reshape(mask.shape + (1,) * (rank - mask.ndim)), x, y)

  return jax.tree.map(select, a, b)


def model_axes(m: Model) -> Model:
  """Which leaves of a batch of models have a batch axis: the `in_axes` of `jax.vmap`.

  With `batch = model.replace(body_mass=masses)`, where `masses` has one row for each world,
  `jax.vmap(mjx.step, in_axes=(mjx.model_axes(batch), 0))` maps over the masses alone.

  Args:
    m: a Model, some leaves of which have one leading axis.

  Returns:
    A Model with 0 in place of these leaves and None in place of the others.

  Raises:
    ValueError: if no leaf has a batch axis, or if one has several.
  """
  axes: dict[str, int | None] = {}
  for field in fields.model_leaves():
    extra = jnp.ndim(fields.lookup(m, field.name)) - len(leaf_shape(field, m.spec.mj_model))
    if extra > 1:
      raise ValueError(f"{field.name} has {extra} batch axes: nest model_axes by jax.vmap")
    axes[field.name] = 0 if extra else None
  if not any(axis == 0 for axis in axes.values()):
    raise ValueError("no leaf of this Model has a batch axis: map over None")
  return jax.tree.map(lambda _: None, m).tree_replace(axes)
