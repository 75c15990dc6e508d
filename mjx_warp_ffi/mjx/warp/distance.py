"""Distances of pairs of geoms, by mujoco_warp's collisions without a broadphase or a margin."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import sensor as mjw_sensor

from mjx_warp_ffi.mjx.warp import support_kernels as kernels
from mjx_warp_ffi.mjx.warp.computed import Computed
from mjx_warp_ffi.mjx.warp.ffi import Array
from mjx_warp_ffi.mjx.warp.types import DisableBit, EnableBit
from mjx_warp_ffi.mjx.warp.workspace import Workspace

Pairs = tuple[tuple[int, int], ...]

_FOUND = 8  # what mujoco_warp may find for a pair, which it tells apart by geomcollisionid
_FAR = 1.0e32  # where nothing was found


def _model(w: Workspace, pairs: Pairs) -> mjw.Model:
  """A model that collides these pairs alone, as it does for its distance sensors."""
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


def _distance(w: Workspace, dist: wp.array, fromto: wp.array, *, pairs: Pairs) -> None:
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
  wp.launch(kernels._nearest, dim=dist.shape, inputs=[found], outputs=[dist, fromto])


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
def distances(pairs: Pairs) -> Computed:
  """The function that gives distances and nearest points of distinct, ordered pairs."""
  return Computed(
    functools.partial(_distance, pairs=pairs),
    "geom_distance",
    (Array("dist", (len(pairs),)), Array("fromto", (len(pairs), 6))),
    reads=lambda m: ("geom_xpos", "geom_xmat"),
    static=pairs,
    nconmax=_FOUND * len(pairs),
  )
