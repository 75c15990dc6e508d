"""The poses of the geoms that are welded to the world, as functions of the leaves of a Model.

Calls that start from the poses in a Data compute the poses of these geoms anew from the leaves, in
the kernels of `mjx/warp/staging/static_geoms.py`. Here is the same in JAX, for gradients.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data.spec import Spec
from mjx_warp_ffi.mjx.data.types import Model
from mjx_warp_ffi.mjx.numerics.quaternions import matrix, multiply, normalize, rotate


def static_geoms(mj_model: mujoco.MjModel) -> np.ndarray:
  """Ids of the geoms that are welded to the world."""
  body = mj_model.geom_bodyid
  welded = mj_model.body_weldid[body] == 0
  return np.flatnonzero(welded & (mj_model.body_mocapid[mj_model.body_rootid[body]] == -1))


@functools.lru_cache(maxsize=64)
def _levels(spec: Spec) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
  """The static geoms, and the bodies that they are on, by their depth in the tree."""
  mj_model = spec.mj_model
  geoms = static_geoms(mj_model)
  depth: dict[int, int] = {0: 0}
  for body in mj_model.geom_bodyid[geoms]:
    chain = [int(body)]
    while chain[-1] not in depth:
      chain.append(int(mj_model.body_parentid[chain[-1]]))
    for i, b in enumerate(reversed(chain)):
      depth[b] = depth[chain[-1]] + i
  levels = [[b for b, n in depth.items() if n == i] for i in range(1, max(depth.values()) + 1)]
  return geoms, tuple(np.array(x) for x in levels)


def static_poses(m: Model) -> tuple[np.ndarray, jax.Array, jax.Array]:
  """The geoms welded to the world, their positions and their matrices."""
  geoms, levels = _levels(m.spec)
  pos = jnp.zeros((m.nbody, 3), jnp.float32)
  quat = jnp.zeros((m.nbody, 4), jnp.float32).at[:, 0].set(1.0)
  for bodies in levels:
    up = m.body_parentid[bodies]
    pos = pos.at[bodies].set(pos[up] + rotate(quat[up], m.body_pos[bodies]))
    quat = quat.at[bodies].set(multiply(quat[up], m.body_quat[bodies]))
  body = m.geom_bodyid[geoms]
  pos = pos[body] + rotate(quat[body], m.geom_pos[geoms])
  quat = multiply(quat[body], m.geom_quat[geoms])
  return geoms, pos, matrix(normalize(quat))


def poses(m: Model, geom_xpos: jax.Array, *, geom_xmat: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The poses of all geoms: those in a Data, but for the static geoms, which the leaves place."""
  geoms, pos, mat = static_poses(m)
  return geom_xpos.at[geoms].set(pos), geom_xmat.at[geoms].set(mat)
