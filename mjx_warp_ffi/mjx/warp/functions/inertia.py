"""The inertia matrix of the poses in a Data, with its gradient.

MuJoCo Warp computes it; its gradient is that of the same matrix in JAX, which
`mjx/numerics/inertia_matrix.py` has.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mjx_warp_ffi.mjx.data.spec import Spec
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.numerics import inertia_matrix, topology
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp.functions import support as backend
from mjx_warp_ffi.mjx.warp.gradient.reverse_only import reverse_once, reverse_only
from mjx_warp_ffi.third_party.warp.signature.arguments import varying_alike

_UNRULED = ("tendon_armature", "actuator_armature")


@functools.lru_cache(maxsize=64)
def moves(spec: Spec) -> np.ndarray:
  """Whether a dof moves a body, (nbody, nv)."""
  return topology.moves(spec.mj_model)


@functools.lru_cache(maxsize=64)
def _differentiable(spec: Spec) -> Any:
  """The matrix as a function of axes, inertias and armatures, and of a Model and a Data."""

  def call(moving: Any, unruled: Any, m: Model, d: Data) -> jax.Array:
    cdof, cinert, armature = moving
    m, d = m.replace(dof_armature=armature), d.replace(cdof=cdof, cinert=cinert)
    return backend.full_m(m, d)[0]

  def forward(moving: Any, unruled: Any, m: Any, d: Any) -> Any:
    names = [n for n, x in zip(_UNRULED, unruled, strict=True) if x.perturbed]
    if names:
      raise NotImplementedError(
        f"the inertia matrix has no gradient with respect to {' and '.join(names)}"
      )
    moving, unruled, m, d = jax.tree.map(lambda x: x.value, (moving, unruled, m, d))
    return function(moving, unruled, m, d), (moving, unruled, m, d)

  def backward(residual: Any, cotangent: Any) -> Any:
    moving, unruled, m, d = residual
    moving = jax.tree.map(reverse_once, moving)

    def matrix(cdof: jax.Array, cinert: jax.Array, armature: jax.Array) -> jax.Array:
      return inertia_matrix.of_composite_bodies(
        spec.mj_model, cdof, cinert=cinert, armature=armature
      )

    found = jax.vjp(matrix, *moving)[1](reverse_once(cotangent))
    acts = jnp.any(jnp.concatenate(unruled) != 0)
    found = tuple(jnp.where(acts, jnp.nan, x) for x in found)
    return found, *jax.tree.map(lambda _: None, (unruled, m, d))

  function = jax.custom_vjp(call)
  function.defvjp(forward, backward, symbolic_zeros=True)
  return function


def full_m(m: Model, d: Data) -> jax.Array:
  """The inertia matrix, (nv, nv).

  It has gradients with respect to the axes and inertias that it is made of, which those of
  `mjx.forward` lead on, and armatures of dofs. They are NaN where tendons or actuators have
  armature too, which have no rule here.
  """
  ffi.check(m, d)
  unruled = tuple(getattr(m, n) for n in _UNRULED)
  with reverse_only():
    moving = (d.cdof, d.cinert, m.dof_armature)
    given = (moving, unruled, *jax.lax.stop_gradient((m, d)))
    return _differentiable(m.spec)(*varying_alike(given))
