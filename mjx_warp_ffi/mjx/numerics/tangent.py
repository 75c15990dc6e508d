"""Positions and their tangent space: displacements, differences and gradients with quaternions.

A quaternion q of `qpos` moves by a rotation t, a vector in the frame of its body: to first order
q becomes q + q ⊗ (0, t) / 2. With the coordinates normalised before they are used, as MuJoCo does,
a function of q has a gradient g in coordinates that is orthogonal to q, and a gradient in the
tangent space of three numbers; each follows from the other:

  tangent = Im(conj(q) ⊗ g) / 2,        g = 2 q ⊗ (0, tangent) / |q|²

(Solà, "Quaternion kinematics for the error-state Kalman filter", arXiv:1711.02508, section 4, has
the exponential and the first-order form.) A quaternion of zeros stands for the identity, as in
MuJoCo, and has no gradient.

All functions take leading batch axes, jit, and have finite derivatives everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data.types import Model
from mjx_warp_ffi.mjx.numerics.quaternions import TINY, conjugate, multiply, normalize, squared_norm

_SMALL = 1e-4  # squared angle below which two terms of the series are exact in float32


class _Layout(NamedTuple):
  """Where the parts of qpos and qvel are: coordinates with one rate each, and quaternions."""

  single_q: np.ndarray
  single_v: np.ndarray
  quat_q: np.ndarray
  quat_v: np.ndarray


def _layout(m: Model | mujoco.MjModel) -> _Layout:
  linear_of = {int(mujoco.mjtJoint.mjJNT_FREE): 3, int(mujoco.mjtJoint.mjJNT_BALL): 0}
  q: list[int] = []
  v: list[int] = []
  quat_q: list[int] = []
  quat_v: list[int] = []
  for joint in range(m.njnt):
    jtype, qadr, vadr = m.jnt_type[joint], m.jnt_qposadr[joint], m.jnt_dofadr[joint]
    linear = linear_of.get(int(jtype), 1)
    q += range(qadr, qadr + linear)
    v += range(vadr, vadr + linear)
    if int(jtype) in linear_of:
      quat_q.append(qadr + linear)
      quat_v.append(vadr + linear)
  columns_q = np.array(quat_q, int)[:, None] + np.arange(4)
  columns_v = np.array(quat_v, int)[:, None] + np.arange(3)
  return _Layout(np.array(q, int), np.array(v, int), columns_q, columns_v)


def _pure(t: jax.Array) -> jax.Array:
  """The quaternions (0, t)."""
  return jnp.concatenate([jnp.zeros_like(t[..., :1]), t], axis=-1)


def _exponential(t: jax.Array) -> jax.Array:
  """The quaternions of rotation vectors."""
  square = squared_norm(t)
  small = square < _SMALL
  angle = jnp.sqrt(jnp.where(small, jnp.ones_like(square), square))
  factor = jnp.where(small, 0.5 - square / 48, jnp.sin(angle / 2) / angle)
  cosine = jnp.where(small, 1 - square / 8, jnp.cos(angle / 2))
  return jnp.concatenate([cosine, factor * t], axis=-1)


def _logarithm(q: jax.Array) -> jax.Array:
  """The rotation vectors of unit quaternions, of angles up to pi."""
  q = jnp.where(q[..., :1] < 0, -q, q)
  w, v = q[..., :1], q[..., 1:]
  square = squared_norm(v)
  small = square < _SMALL
  sine = jnp.sqrt(jnp.where(small, jnp.ones_like(square), square))
  one = jnp.where(small, w, jnp.ones_like(w))  # w is about 1 where the sine is small
  series = 2 / one - 2 * square / (3 * one**3)
  return jnp.where(small, series, 2 * jnp.arctan2(sine, w) / sine) * v


def integrate(m: Model | mujoco.MjModel, qpos: jax.Array, displacement: jax.Array) -> jax.Array:
  """Positions moved along a tangent vector, as mj_integratePos moves them in unit time.

  Args:
    m: the model, for its joints.
    qpos: positions, (..., nq); quaternions need not be normalised.
    displacement: (..., nv); rotations are vectors in the frame of their body.

  Returns:
    The new positions, (..., nq), with unit quaternions.
  """
  where = _layout(m)
  qpos = jnp.asarray(qpos)
  displacement = jnp.asarray(displacement, qpos.dtype)
  batch = jnp.broadcast_shapes(qpos.shape[:-1], displacement.shape[:-1])
  result = jnp.broadcast_to(qpos, (*batch, m.nq))
  result = result.at[..., where.single_q].add(displacement[..., where.single_v])
  if not len(where.quat_q):
    return result
  old = normalize(qpos[..., where.quat_q])
  new = normalize(multiply(old, _exponential(displacement[..., where.quat_v])))
  return result.at[..., where.quat_q].set(new)


def difference(m: Model | mujoco.MjModel, qpos1: jax.Array, qpos2: jax.Array) -> jax.Array:
  """The displacement from one position to another, as mj_differentiatePos gives in unit time.

  Args:
    m: the model, for its joints.
    qpos1: first positions, (..., nq).
    qpos2: second positions, (..., nq).

  Returns:
    The tangent vector, (..., nv), that takes `integrate` from the first to the second; rotations
    go the short way.
  """
  where = _layout(m)
  qpos1, qpos2 = jnp.asarray(qpos1), jnp.asarray(qpos2)
  batch = jnp.broadcast_shapes(qpos1.shape[:-1], qpos2.shape[:-1])
  result = jnp.zeros((*batch, m.nv), qpos1.dtype)
  result = result.at[..., where.single_v].set(
    qpos2[..., where.single_q] - qpos1[..., where.single_q]
  )
  if not len(where.quat_q):
    return result
  first, second = (normalize(x[..., where.quat_q]) for x in (qpos1, qpos2))
  turn = _logarithm(multiply(conjugate(first), second))
  return result.at[..., where.quat_v].set(turn)


def gradient_to_coordinates(
  m: Model | mujoco.MjModel, qpos: jax.Array, *, gradient: jax.Array
) -> jax.Array:
  """A gradient in the tangent space as one with respect to the coordinates of qpos.

  Args:
    m: the model, for its joints.
    qpos: positions, (..., nq).
    gradient: gradient with respect to a displacement, (..., nv).

  Returns:
    The gradient, (..., nq), orthogonal to every quaternion: 2 q ⊗ (0, t) / |q|².
  """
  where = _layout(m)
  qpos, gradient = jnp.asarray(qpos), jnp.asarray(gradient)
  batch = jnp.broadcast_shapes(qpos.shape[:-1], gradient.shape[:-1])
  result = jnp.zeros((*batch, m.nq), gradient.dtype)
  result = result.at[..., where.single_q].set(gradient[..., where.single_v])
  if not len(where.quat_q):
    return result
  q = qpos[..., where.quat_q]
  square = squared_norm(q)
  zero = square < TINY
  turned = 2 * multiply(q, _pure(gradient[..., where.quat_v]))
  lifted = jnp.where(zero, jnp.zeros_like(q), turned / jnp.where(zero, 1, square))
  return result.at[..., where.quat_q].set(lifted)


def velocity_to_tangent(
  m: Model | mujoco.MjModel, qpos: jax.Array, *, velocity: jax.Array
) -> jax.Array:
  """A change of the coordinates of qpos as a displacement: 2 Im(conj(q) ⊗ δq) / |q|².

  Args:
    m: the model, for its joints.
    qpos: positions, (..., nq).
    velocity: change of qpos to first order, (..., nq); its part along a quaternion changes nothing.

  Returns:
    The tangent vector, (..., nv).
  """
  where = _layout(m)
  qpos, velocity = jnp.asarray(qpos), jnp.asarray(velocity)
  batch = jnp.broadcast_shapes(qpos.shape[:-1], velocity.shape[:-1])
  result = jnp.zeros((*batch, m.nv), velocity.dtype)
  result = result.at[..., where.single_v].set(velocity[..., where.single_q])
  if not len(where.quat_q):
    return result
  q = qpos[..., where.quat_q]
  square = squared_norm(q)
  zero = square < TINY
  turn = 2 * multiply(conjugate(q), velocity[..., where.quat_q])[..., 1:]
  turn = jnp.where(zero, jnp.zeros_like(turn), turn / jnp.where(zero, 1, square))
  return result.at[..., where.quat_v].set(turn)
