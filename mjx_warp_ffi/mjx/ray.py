"""Rays against the geoms of a world."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.functions import rays as backend

_GROUPS = 6


def ray(
  m: Model,
  d: Data,
  pnt: jax.Array,
  vec: jax.Array,
  geomgroup: Sequence[int] = (),
  flg_static: bool = True,
  bodyexclude: Sequence[int] | int = -1,
) -> tuple[jax.Array, jax.Array]:
  """Intersects rays with all geoms, height fields and meshes too, as mj_ray.

  Many rays of one world are one call; batch worlds with `jax.vmap`.

  Args:
    m: the model.
    d: one world, whose geom poses are used: after `forward` or `kinematics`.
    pnt: origins, (..., 3), world coordinates.
    vec: directions, (..., 3).
    geomgroup: for each of the six groups, whether its geoms count; all of them if empty.
    flg_static: whether geoms of static bodies count.
    bodyexclude: a body, or several, whose geoms do not count.

  Returns:
    Distances in units of the length of `vec`, -1 without an intersection, and ids of the geoms, -1
    without, each (...). A ray without a direction meets nothing. Distances have gradients with
    respect to origins, directions, and the poses and sizes of geoms.

  Raises:
    ValueError: for wrong shapes, or an excluded body that the model lacks.
  """
  dist, geom_id, _ = ray_normal(m, d, pnt, vec, geomgroup, flg_static, bodyexclude)
  return dist, geom_id


def ray_normal(
  m: Model,
  d: Data,
  pnt: jax.Array,
  vec: jax.Array,
  geomgroup: Sequence[int] = (),
  flg_static: bool = True,
  bodyexclude: Sequence[int] | int = -1,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """As `ray`, and also the normals at the intersections, (..., 3), zero without one."""
  pnt, vec = jnp.asarray(pnt, jnp.float32), jnp.asarray(vec, jnp.float32)
  if pnt.shape[-1:] != (3,) or vec.shape[-1:] != (3,):
    raise ValueError(f"pnt and vec must be (..., 3), got {pnt.shape} and {vec.shape}")
  shape = jnp.broadcast_shapes(pnt.shape, vec.shape)
  pnt, vec = (jnp.broadcast_to(x, shape).reshape(-1, 3) for x in (pnt, vec))
  geoms = _included(m, geomgroup, flg_static, bodyexclude)
  if not geoms or not pnt.size:
    none = jnp.full(shape[:-1], -1.0, jnp.float32)
    return none, none.astype(jnp.int32), jnp.zeros(shape, jnp.float32)
  # mujoco_warp meets meshes and height fields rightly by unit vectors only
  points = jnp.any(vec != 0, axis=-1, keepdims=True)
  up = jnp.eye(3, dtype=jnp.float32)[2]
  length = jnp.where(points, jnp.linalg.norm(jnp.where(points, vec, up), axis=-1, keepdims=True), 0)
  unit = jnp.where(length > 0, vec / jnp.where(length > 0, length, 1.0), up)
  dist, geom_id, normal = backend.rays(geoms, m, d=d, pnt=pnt, vec=unit)
  met = (geom_id >= 0) & (length[:, 0] > 0)
  dist = jnp.where(met, dist / jnp.where(met, length[:, 0], 1.0), -1.0)
  geom_id = jnp.where(met, geom_id, -1)
  return dist.reshape(shape[:-1]), geom_id.reshape(shape[:-1]), normal.reshape(shape)


def _included(
  m: Model, geomgroup: Sequence[int], flg_static: bool, bodyexclude: Sequence[int] | int
) -> frozenset[int]:
  """The geoms that count."""
  groups = tuple(geomgroup)
  if len(groups) not in (0, _GROUPS):
    raise ValueError(f"geomgroup must be empty or have {_GROUPS} elements, got {len(groups)}")
  excluded = np.atleast_1d(np.asarray(bodyexclude, int))
  if np.any(excluded < -1) or np.any(excluded >= m.nbody):
    raise ValueError(f"bodyexclude must be -1 or bodies below {m.nbody}, got {bodyexclude}")
  counts = ~np.isin(m.geom_bodyid, excluded)
  if not flg_static:
    counts &= m.body_weldid[m.geom_bodyid] != 0
  if groups:
    counts &= np.asarray(groups, bool)[np.clip(m.geom_group, 0, _GROUPS - 1)]
  return frozenset(np.flatnonzero(counts).tolist())
