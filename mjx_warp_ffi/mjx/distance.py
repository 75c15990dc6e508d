"""Distances between geoms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.functions import distance as backend


def geom_distance(
  m: Model,
  d: Data,
  geom1: int | np.ndarray,
  geom2: int | np.ndarray,
  distmax: float = np.inf,
) -> tuple[jax.Array, jax.Array]:
  """Smallest signed distances between geoms, as mj_geomDistance.

  Many pairs of one world are one call; batch worlds with `jax.vmap`.

  Args:
    m: the model.
    d: one world, whose geom poses are used: after `forward` or `kinematics`.
    geom1: ids of geoms, static, (...).
    geom2: ids of geoms, static, (...).
    distmax: the largest distance of interest, m.

  Returns:
    Distances, negative where geoms penetrate and at most `distmax`, (...), and the segments between
    the nearest points, from the first geom to the second, (..., 6), zero where the distance is not
    below `distmax`.

  Raises:
    ValueError: for ids that the model lacks, one geom twice, or a height field.
    TypeError: for traced ids.
  """
  if isinstance(geom1, jax.core.Tracer) or isinstance(geom2, jax.core.Tracer):
    raise TypeError("geom1 and geom2 must be known when the function is traced, not JAX values")
  first, second = np.broadcast_arrays(np.asarray(geom1, int), np.asarray(geom2, int))
  pairs = tuple(zip(first.ravel().tolist(), second.ravel().tolist(), strict=True))
  backend.check(m.spec.mj_model, pairs)
  swapped = [backend.ordered(m.spec.mj_model, p) for p in pairs]
  distinct = tuple(dict.fromkeys(swapped))
  if not distinct:
    return jnp.zeros(first.shape, jnp.float32), jnp.zeros((*first.shape, 6), jnp.float32)
  dist, fromto = backend.distances(distinct)(m, d)
  at = np.array([distinct.index(p) for p in swapped]).reshape(first.shape)
  turn = np.array([a != b for a, b in zip(swapped, pairs, strict=True)]).reshape(first.shape)
  dist, fromto = dist[at], fromto[at]
  fromto = jnp.where(turn[..., None], jnp.roll(fromto, 3, axis=-1), fromto)
  near = dist < jnp.float32(distmax)
  return jnp.where(near, dist, jnp.float32(distmax)), jnp.where(near[..., None], fromto, 0.0)
