"""Rays against the geoms of a world, and their gradient.

Where a ray meets a geom, its point stays on the surface F(point) = 0 of that geom: with F' the
derivative of F along the ray, held fixed, the distance changes by -F / F'.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import types as mjw_types

from mjx_warp_ffi.mjx.data.enums import GeomType
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.numerics.static_poses import poses
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp.ffi import Array
from mjx_warp_ffi.mjx.warp.functions.computed import Computed
from mjx_warp_ffi.mjx.warp.gradient.reverse_only import reverse_once, reverse_only
from mjx_warp_ffi.mjx.warp.staging.workspace import Workspace
from mjx_warp_ffi.third_party.warp.signature.arguments import varying_alike


def _launch(w: Workspace, *arrays: wp.array, geoms: frozenset[int], ngeom: int) -> None:
  pnt, vec, dist, geomid, normal = arrays
  if "geom_group" not in w.memo:  # in the first run, which is not captured
    w.memo["geom_group"] = wp.array([g not in geoms for g in range(ngeom)], dtype=int)
    w.memo["bodyexclude"] = wp.full(pnt.shape[1], -1, dtype=int)
  w.begin()
  m = dataclasses.replace(w.m, geom_group=w.memo["geom_group"])
  first_group = mjw_types.vec6(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
  mjw.rays(m, w.d, pnt, vec, first_group, True, w.memo["bodyexclude"], dist, geomid, normal)


@functools.lru_cache(maxsize=64)
def _rays(geoms: frozenset[int], ngeom: int) -> Computed:
  """The function that intersects rays with some of the geoms, of which there are `ngeom`."""
  return Computed(
    functools.partial(_launch, geoms=geoms, ngeom=ngeom),
    "rays",
    (
      Array("dist", ("nray",)),
      Array("geomid", ("nray",), int),
      Array("normal", ("nray",), wp.vec3),
    ),
    arguments=(Array("pnt", ("nray",), wp.vec3), Array("vec", ("nray",), wp.vec3)),
    reads=lambda m: ("geom_xpos", "geom_xmat"),
    static=(tuple(sorted(geoms)),),
  )


def _surface(p: jax.Array, size: jax.Array, kind: jax.Array, normal: jax.Array) -> jax.Array:
  """A function of points that is zero on the surface of a geom, near `p`, in the geom's frame.

  Args:
    p: the point, (3,).
    size: the size of the geom, (3,).
    kind: its type.
    normal: at p.
  """
  side = jnp.sign(jnp.where(p == 0, 1.0, p))
  faces = side * p - jnp.array([size[0], size[1], size[2]])
  axis = p.at[2].add(-jnp.clip(p[2], -size[1], size[1]))
  tube = p[0] ** 2 + p[1] ** 2 - size[0] ** 2
  ellipsoid = jnp.sum((p / jnp.where(size > 0, size, 1.0)) ** 2) - 1.0
  values = {
    GeomType.PLANE: p[2],
    GeomType.SPHERE: jnp.sum(p**2) - size[0] ** 2,
    GeomType.CAPSULE: jnp.sum(axis**2) - size[0] ** 2,
    GeomType.ELLIPSOID: ellipsoid,
    GeomType.CYLINDER: jnp.where(jnp.abs(normal[2]) > 0.5, side[2] * p[2] - size[1], tube),
    GeomType.BOX: faces[jnp.argmax(jnp.abs(normal))],
  }
  conditions = [kind == int(k) for k in values]
  return jnp.select(conditions, list(values.values()), jnp.dot(normal, p))


def _met(moving: Any, frozen: Any, kind: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The distance and the normal where one ray meets a geom."""
  xpos, xmat, size, pnt, vec = moving
  dist, normal = frozen
  turn = jax.lax.stop_gradient(xmat)
  local = turn.T @ normal
  at = jax.lax.stop_gradient(xmat.T @ (pnt + dist * vec - xpos))
  surface = functools.partial(_surface, kind=kind, normal=local)
  slope = jnp.dot(
    jax.grad(surface)(at, jax.lax.stop_gradient(size)), turn.T @ jax.lax.stop_gradient(vec)
  )
  value = surface(xmat.T @ (pnt + dist * vec - xpos), size)
  change = value - jax.lax.stop_gradient(value)
  dist = dist - change / jnp.where(slope == 0, jnp.inf, slope)
  outward = jax.grad(surface)(xmat.T @ (pnt + dist * vec - xpos), size)
  length = jnp.sqrt(jnp.maximum(jnp.sum(outward**2), 1e-30))
  sign = jnp.sign(jnp.dot(jax.lax.stop_gradient(outward), local))
  return dist, xmat @ (sign * outward / length)


@functools.lru_cache(maxsize=64)
def _differentiable(geoms: frozenset[int], ngeom: int) -> Any:
  """The function from poses and sizes of geoms, origins and directions to distances and normals."""
  function = _rays(geoms, ngeom)

  @jax.custom_vjp
  def call(moving: tuple[jax.Array, ...], m: Model, d: Data) -> tuple[jax.Array, ...]:
    xpos, xmat, size, pnt, vec = moving
    m, d = m.replace(geom_size=size), d.replace(geom_xpos=xpos, geom_xmat=xmat)
    return function(m, d, pnt, vec)

  def forward(moving: tuple[jax.Array, ...], m: Model, d: Data) -> Any:
    out = call(moving, m, d)
    return out, (moving, out, m, d)

  def backward(residual: Any, cotangents: Any) -> Any:
    moving, (dist, geom, normal), m, d = residual
    cot_dist, _, cot_normal = cotangents
    moving, cot_dist, cot_normal = jax.tree.map(reverse_once, (moving, cot_dist, cot_normal))
    hit = geom >= 0
    kinds = jnp.asarray(m.geom_type)

    def outputs(moving: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
      xpos, xmat, size, pnt, vec = moving
      g = jnp.maximum(geom, 0)
      found = jax.vmap(_met)((xpos[g], xmat[g], size[g], pnt, vec), (dist, normal), kinds[g])
      return jnp.where(hit, found[0], 0.0), jnp.where(hit[:, None], found[1], 0.0)

    _, pull = jax.vjp(outputs, moving)
    return pull((cot_dist, cot_normal))[0], *jax.tree.map(lambda _: None, (m, d))

  call.defvjp(forward, backward)
  return call


def rays(
  geoms: frozenset[int], m: Model, *, d: Data, pnt: jax.Array, vec: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Intersects rays with some of the geoms.

  Args:
    geoms: those that count.
    m: the model.
    d: one world, whose geom poses are used.
    pnt: origins, (nray, 3).
    vec: directions of length one, (nray, 3).

  Returns:
    Distances, geoms and normals. They have gradients with respect to all that they depend on.
  """
  ffi.check(m, d)
  call = _differentiable(geoms, m.ngeom)
  with reverse_only():
    xpos, xmat = poses(m, d.geom_xpos, geom_xmat=d.geom_xmat)
    moving = (xpos, xmat, m.geom_size, pnt, vec)
    return call(*varying_alike((moving, *jax.lax.stop_gradient((m, d)))))
