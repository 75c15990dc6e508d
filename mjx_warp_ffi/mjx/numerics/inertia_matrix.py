"""The joint-space inertia matrix, in JAX: of the poses in a Data, and of a model at `qpos0`.

M_ij is the axis of dof i times the momentum that dof j gives to all bodies below it: composite
rigid bodies (Featherstone, Rigid Body Dynamics Algorithms, Springer 2008, section 6.2). At `qpos0`
there are no composite bodies yet, and the matrix is a sum over bodies, m Jᵀ J + Rᵀ I R with the
Jacobians J of position and R of rotation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data.enums import TrnType
from mjx_warp_ffi.mjx.numerics.quaternions import matrix, multiply, normalize
from mjx_warp_ffi.mjx.numerics.rest_constants import Rest, centres
from mjx_warp_ffi.mjx.numerics.topology import moves, subtrees

_EXACT = jax.lax.Precision.HIGHEST


def of_composite_bodies(
  mj_model: mujoco.MjModel, cdof: jax.Array, *, cinert: jax.Array, armature: jax.Array
) -> jax.Array:
  """The matrix from the axes of the dofs and the inertias of the bodies.

  Args:
    mj_model: the model's structure.
    cdof: axes of the dofs, (nv, 6), as `Data.cdof`.
    cinert: inertias of the bodies, (nbody, 10), as `Data.cinert`.
    armature: armatures of the dofs, (nv,).

  Returns:
    The matrix, (nv, nv), without the armatures of tendons and actuators.
  """
  body = mj_model.dof_bodyid
  c = jnp.matmul(subtrees(mj_model), cinert, precision=_EXACT)[body]
  moments = jnp.stack([c[:, [0, 3, 4]], c[:, [3, 1, 5]], c[:, [4, 5, 2]]], axis=1)
  ang, lin = cdof[:, :3], cdof[:, 3:]
  torque = jnp.einsum("nij,nj->ni", moments, ang, precision=_EXACT) + jnp.cross(c[:, 6:9], lin)
  force = c[:, 9:] * lin - jnp.cross(c[:, 6:9], ang)
  product = jnp.matmul(cdof, jnp.concatenate([torque, force], axis=1).T, precision=_EXACT)
  above = moves(mj_model)[body].T  # whether dof i moves the body of dof j
  product = jnp.where(above, product, jnp.where(above.T, product.T, 0.0))
  return product + jnp.diag(armature)


def _driven(mj_model: mujoco.MjModel, *, tendons: bool) -> np.ndarray:
  """Which actuators add their armature to each joint, or to each tendon, as numbers."""
  first = mj_model.tendon_actuatorid if tendons else mj_model.jnt_actuatorid
  trn = [TrnType.TENDON] if tendons else [TrnType.JOINT, TrnType.JOINTINPARENT]
  acts = np.isin(mj_model.actuator_trntype, trn)
  target = np.where(acts, mj_model.actuator_trnid[:, 0], -1)[None] == np.arange(len(first))[:, None]
  number = np.arange(len(mj_model.actuator_trntype))
  chosen = (first[:, None] == number) | (first[:, None] < -1)  # -2: all that act on it
  return (target & chosen).astype(np.float32)


def at_rest(at: Rest, tendons: jax.Array) -> jax.Array:
  """The matrix at `qpos0`, (nv, nv); `tendons` are the Jacobians of tendons, (ntendon, nv)."""
  mj, leaves = at.mj, at.leaves
  bodies = np.arange(mj.nbody)
  linear = at.rates(bodies, centres(at))
  frame = matrix(normalize(multiply(at.xquat, leaves["body_iquat"])))
  angular = jnp.einsum("bvi,bij->bvj", at.turns(bodies), frame)
  out = jnp.einsum("b,bvi,bwi->vw", leaves["body_mass"], linear, linear)
  out += jnp.einsum("bi,bvi,bwi->vw", leaves["body_inertia"], angular, angular)
  driven = leaves["actuator_armature"] * leaves["actuator_gear"][:, 0] ** 2
  armature = leaves["dof_armature"] + (_driven(mj, tendons=False) @ driven)[mj.dof_jntid]
  of_tendons = leaves["tendon_armature"] + _driven(mj, tendons=True) @ driven
  out += (tendons.T * of_tendons) @ tendons + jnp.diag(armature)
  # as in the sparse matrix, degrees of freedom of different branches have no entry, nor have two of
  # a simple body, which only slides along axes of the world or turns about its centre of mass
  order = np.arange(mj.nv)
  ancestor = at.moves[mj.dof_bodyid] & (order <= order[:, None])
  ancestor &= (mj.dof_simplenum == 0)[:, None] | np.eye(mj.nv, dtype=bool)
  return jnp.where(ancestor | ancestor.T, out, jnp.float32(0))


def inverse(mass: jax.Array) -> jax.Array:
  """The inverse of an inertia matrix, scaled first, since its entries have different units."""
  scale = jax.lax.rsqrt(jnp.diagonal(mass))
  factor = jax.scipy.linalg.cho_factor(mass * scale * scale[:, None])
  return jax.scipy.linalg.cho_solve(factor, jnp.diag(scale)) * scale[:, None]
