"""Distances of pairs of geoms, by mujoco_warp's collisions without a broadphase or a margin."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import math as mjw_math
from mujoco_warp._src import sensor as mjw_sensor

from mjx_warp_ffi.mjx.data.enums import DisableBit, EnableBit
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.numerics import static_poses
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from mjx_warp_ffi.mjx.warp.ffi import Array
from mjx_warp_ffi.mjx.warp.functions.computed import Computed
from mjx_warp_ffi.mjx.warp.gradient.reverse_only import reverse_only
from mjx_warp_ffi.mjx.warp.staging.workspace import Workspace
from mjx_warp_ffi.third_party.warp.signature.arguments import varying_alike


@wp.kernel(enable_backward=False)
def nearest(
  # In:
  found: wp.array4d[float],
  # Out:
  dist: wp.array2d[float],
  fromto: wp.array3d[float],
):
  """The nearest of the contacts that were found for a pair, a thread per world and pair."""
  world, k = wp.tid()
  best = wp.int32(0)
  for i in range(found.shape[2]):
    if found[world, k, i, 0] < found[world, k, best, 0]:
      best = i
  x = found[world, k, best, 0]
  dist[world, k] = x
  for j in range(3):
    half = 0.5 * x * found[world, k, best, 4 + j]
    fromto[world, k, j] = found[world, k, best, 1 + j] - half
    fromto[world, k, 3 + j] = found[world, k, best, 1 + j] + half


@wp.kernel(enable_backward=False)
def nearest_adjoint(
  # Model:
  ngeom: int,
  nxn_pairid: wp.array[wp.vec2i],
  # Data in:
  contact_dist: wp.array[float],
  contact_frame: wp.array[wp.mat33],
  contact_geom: wp.array[wp.vec2i],
  contact_worldid: wp.array[int],
  contact_geomcollisionid: wp.array[int],
  nacon: wp.array[int],
  # In:
  found: wp.array4d[float],
  cot_dist: wp.array2d[float],
  cot_fromto: wp.array3d[float],
  # Out:
  grad_dist: wp.array[float],
  grad_pos: wp.array[wp.vec3],
  grad_frame: wp.array[wp.mat33],
):
  """The cotangents of contacts from those of distances and segments, a thread a contact.

  Only the nearest contact of each pair has some.
  """
  c = wp.tid()
  if c >= nacon[0]:
    return
  g = contact_geom[c]
  pair = mjw_math.upper_tri_index(ngeom, wp.min(g[0], g[1]), wp.max(g[0], g[1]))
  world, k = contact_worldid[c], nxn_pairid[pair][1]
  best = wp.int32(0)
  for i in range(found.shape[2]):
    if found[world, k, i, 0] < found[world, k, best, 0]:
      best = i
  x, y, z, d = wp.vec3(0.0), wp.vec3(0.0), wp.vec3(0.0), wp.float32(0.0)
  if contact_geomcollisionid[c] == best:
    x = wp.vec3(cot_fromto[world, k, 0], cot_fromto[world, k, 1], cot_fromto[world, k, 2])
    y = wp.vec3(cot_fromto[world, k, 3], cot_fromto[world, k, 4], cot_fromto[world, k, 5])
    n = wp.vec3(contact_frame[c][0, 0], contact_frame[c][0, 1], contact_frame[c][0, 2])
    z = 0.5 * contact_dist[c] * (y - x)
    d = cot_dist[world, k] + 0.5 * wp.dot(n, y - x)
  grad_dist[c] = d
  grad_pos[c] = x + y
  grad_frame[c] = wp.matrix_from_rows(z, wp.vec3(0.0), wp.vec3(0.0))


@wp.kernel(enable_backward=False)
def rows_of_worlds(
  # In:
  rows: wp.array2d[wp.vec3],
  # Out:
  out: wp.array2d[wp.vec3],
):
  """Gives every world a row of its own, of an array that has one a world or one for all."""
  world, i = wp.tid()
  out[world, i] = rows[world % rows.shape[0], i]


Pairs = tuple[tuple[int, int], ...]

_FOUND = 8  # the most contacts that mujoco_warp finds for a pair; geomcollisionid numbers them
_FAR = 1.0e32  # the distance where it found none


def _model(w: Workspace, pairs: Pairs) -> mjw.Model:
  """A model for which mujoco_warp collides these pairs alone, in the place of distance sensors."""
  mj_model = w.plan.spec.mj_model
  n = mj_model.ngeom
  types = mj_model.geom_type
  ids = np.tile(np.array([-2, -1], np.int32), (max(n * (n - 1) // 2, 1), 1))
  for k, (a, b) in enumerate(sorted(p) for p in pairs):
    ids[a * (2 * n - a - 3) // 2 + b - 1, 1] = k
  count = len(mjw.GeomType)
  kinds = [sorted((int(types[a]), int(types[b]))) for a, b in pairs]
  kinds = [i * (2 * count - i - 1) // 2 + j for i, j in kinds]
  opt = dataclasses.replace(w.m.opt)
  opt.broadphase = mjw.BroadphaseType.NXN
  opt.disableflags &= ~(DisableBit.CONTACT | DisableBit.CONSTRAINT)
  opt.enableflags &= ~EnableBit.SLEEP
  return dataclasses.replace(
    w.m,
    opt=opt,
    nflex=0,
    callback=mjw.Callback(),
    nsensorcollision=len(pairs),
    nxn_geom_pair_filtered=wp.array([sorted(p) for p in pairs], dtype=wp.vec2i),
    nxn_pairid_filtered=wp.array([(-2, k) for k in range(len(pairs))], dtype=wp.vec2i),
    nxn_pairid=wp.array(ids, dtype=wp.vec2i),
    geom_pair_type_count=tuple(np.bincount(kinds, minlength=count * (count + 1) // 2)),
  )


def _collide(w: Workspace, pairs: Pairs) -> tuple[Any, wp.array]:
  """The model that collides the pairs, and the contacts that were found for each of them."""
  if "model" not in w.memo:
    w.memo["model"] = _model(w, pairs)
  m: Any = w.memo["model"]
  w.begin()
  mjw.collision(m, w.d)
  con = w.d.contact
  found = wp.full((w.d.nworld, len(pairs), _FOUND, 7), _FAR, dtype=float)
  wp.launch(
    mjw_sensor._sensor_collision,
    dim=w.d.naconmax,
    inputs=[
      *(m.ngeom, m.nxn_pairid, con.dist, con.pos, con.frame, con.geom, con.worldid),
      *(con.type, con.geomcollisionid, w.d.nacon),
    ],
    outputs=[found],
  )
  return m, found


def _distance(w: Workspace, dist: wp.array, fromto: wp.array, *, pairs: Pairs) -> None:
  _, found = _collide(w, pairs)
  wp.launch(nearest, dim=dist.shape, inputs=[found], outputs=[dist, fromto])


def _adjoint(w: Workspace, *arrays: wp.array, pairs: Pairs) -> None:
  """Gradients of poses and sizes from the cotangents of distances and segments."""
  cot_dist, cot_fromto, xpos, xmat, size = arrays
  m, found = _collide(w, pairs)
  d, con = w.d, w.d.contact
  if "geometry" not in w.memo:  # in the first run, which is not captured
    w.memo["size"] = wp.zeros((d.nworld, m.ngeom), dtype=wp.vec3)
    own = dataclasses.replace(m, geom_size=w.memo["size"])  # a row a world, as the gradients have
    w.memo["geometry"] = ContactGeometry(w.plan.spec.mj_model, own, d)
    grads = [wp.zeros(d.naconmax, dtype=t) for t in (float, wp.vec3, wp.mat33)]
    w.memo["grads"] = grads
  geometry: Any = w.memo["geometry"]
  grads: Any = w.memo["grads"]
  for array in (xpos, xmat, size):
    array.zero_()
  wp.launch(rows_of_worlds, size.shape, inputs=[m.geom_size], outputs=[w.memo["size"]])
  geometry.forward(d.geom_xpos, d.geom_xmat)
  inputs = [m.ngeom, m.nxn_pairid, con.dist, con.frame, con.geom, con.worldid]
  inputs += [con.geomcollisionid, d.nacon, found, cot_dist, cot_fromto]
  wp.launch(nearest_adjoint, d.naconmax, inputs=inputs, outputs=grads)
  geometry.backward(
    *grads[:2],
    grad_frame=grads[2],
    grad_geom_xpos=xpos,
    grad_geom_xmat=xmat,
    grad_geom_size=size,
  )


def ordered(mj_model: mujoco.MjModel, pair: tuple[int, int]) -> tuple[int, int]:
  """A pair in the order in which mujoco_warp collides it: by type, then by id."""
  first, second = sorted(pair, key=lambda g: (mj_model.geom_type[g], g))
  return first, second


def check(mj_model: mujoco.MjModel, pairs: Pairs) -> None:
  """Checks that the geoms exist and that their types have a distance.

  Raises:
    ValueError: if not.
  """
  for pair in pairs:
    if not all(0 <= g < mj_model.ngeom for g in pair) or pair[0] == pair[1]:
      raise ValueError(f"geoms must be two of 0 to {mj_model.ngeom - 1}, got {pair}")
    if any(mj_model.geom_type[g] == mujoco.mjtGeom.mjGEOM_HFIELD for g in pair):
      raise ValueError(f"geoms {pair}: a height field has no distance, in MuJoCo neither")


@functools.lru_cache(maxsize=64)
def distances(pairs: Pairs) -> Callable[[Model, Data], tuple[jax.Array, ...]]:
  """The function that gives distances and nearest points of distinct, ordered pairs.

  It has a gradient with respect to all that it depends on.
  """
  results = (Array("dist", (len(pairs),)), Array("fromto", (len(pairs), 6)))
  poses = (Array("geom_xpos", ("ngeom",), wp.vec3), Array("geom_xmat", ("ngeom",), wp.mat33))
  options = dict(
    reads=lambda m: ("geom_xpos", "geom_xmat"), static=pairs, nconmax=_FOUND * len(pairs)
  )
  forward = Computed(functools.partial(_distance, pairs=pairs), "geom_distance", results, **options)
  adjoint = Computed(
    functools.partial(_adjoint, pairs=pairs),
    "geom_distance_adjoint",
    (*poses, Array("geom_size", ("ngeom",), wp.vec3)),
    arguments=results,
    **options,
  )

  @jax.custom_vjp
  def call(arrays: tuple[jax.Array, ...], m: Model, d: Data) -> tuple[jax.Array, ...]:
    xpos, xmat, size = arrays
    return forward(m.replace(geom_size=size), d.replace(geom_xpos=xpos, geom_xmat=xmat))

  def bwd(residual: Any, cotangents: Any) -> Any:
    (xpos, xmat, size), m, d = residual
    m, d = m.replace(geom_size=size), d.replace(geom_xpos=xpos, geom_xmat=xmat)
    found = adjoint(m, d, *cotangents)
    return found, *jax.tree.map(lambda _: None, (m, d))

  def fwd(arrays: Any, m: Model, d: Data) -> Any:
    _check_rules(m.spec.mj_model, pairs)
    return call(arrays, m, d), (arrays, m, d)

  call.defvjp(fwd, bwd)

  def with_gradient(m: Model, d: Data) -> tuple[jax.Array, ...]:
    ffi.check(m, d)
    with reverse_only():
      xpos, xmat = static_poses.poses(m, d.geom_xpos, geom_xmat=d.geom_xmat)
      given = ((xpos, xmat, m.geom_size), *jax.lax.stop_gradient((m, d)))
      return call(*varying_alike(given))

  return with_gradient


def _check_rules(mj_model: mujoco.MjModel, pairs: Pairs) -> None:
  """Raises for a pair whose distance has no gradient."""
  refused = {mujoco.mjtGeom.mjGEOM_SDF}
  found = [p for p in pairs if any(mj_model.geom_type[g] in refused for g in p)]
  if found:
    raise NotImplementedError(f"geoms {found[0]}: the distance of an SDF has no gradient")
