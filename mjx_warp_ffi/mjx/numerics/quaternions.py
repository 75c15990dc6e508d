"""Quaternions w, x, y, z on the last axis of arrays, and the vectors that they turn."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

TINY = 1e-30  # squared norm below which a quaternion counts as zero; MuJoCo's mjMINVAL squared
_AXES = np.eye(3, dtype=np.float32)


def squared_norm(x: jax.Array) -> jax.Array:
  """Sums of squares, (..., 1)."""
  return jnp.sum(x * x, axis=-1, keepdims=True)


def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
  """Products, (..., 4)."""
  aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
  w = aw * bw - jnp.sum(av * bv, axis=-1, keepdims=True)
  return jnp.concatenate([w, aw * bv + bw * av + jnp.cross(av, bv)], axis=-1)


def conjugate(q: jax.Array) -> jax.Array:
  """The inverses of unit quaternions, (..., 4)."""
  return jnp.concatenate([q[..., :1], -q[..., 1:]], axis=-1)


def normalize(q: jax.Array) -> jax.Array:
  """Quaternions of length one, (..., 4); one of zeros becomes the identity."""
  square = squared_norm(q)
  zero = square < TINY
  unit = q / jnp.sqrt(jnp.where(zero, jnp.ones_like(square), square))
  identity = jnp.zeros_like(q).at[..., 0].set(1)
  return jnp.where(zero, identity, unit)


def rotate(q: jax.Array, v: jax.Array) -> jax.Array:
  """Vectors turned by unit quaternions, (..., 3)."""
  t = 2 * jnp.cross(q[..., 1:], v)
  return v + q[..., :1] * t + jnp.cross(q[..., 1:], t)


def matrix(q: jax.Array) -> jax.Array:
  """The rotation matrices of unit quaternions, (..., 3, 3): their columns are the turned axes."""
  like = q[..., 1:]
  return jnp.stack([rotate(q, jnp.broadcast_to(axis, like.shape)) for axis in _AXES], axis=-1)
