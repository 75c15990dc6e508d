"""Gradients through a step that resets: a reset world contributes zero."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from mjx_warp_ffi.mjx.data.fields import INPUTS
from mjx_warp_ffi.mjx.data.types import Model
from mjx_warp_ffi.mjx.warp.ffi import Inputs, Staged

Results = dict[str, jax.Array]


def with_reset(staged: Staged, m: Model, *, inputs: Inputs) -> tuple[Results, jax.Array]:
  """The results of a step that resets, and whether this world was reset in it."""
  none = jnp.zeros_like(inputs.arrays["warning"])
  out = staged.results(m, dataclasses.replace(inputs, arrays=inputs.arrays | {"warning": none}))
  reset = out["warning"] != 0  # every bad state leads to a reset
  out["warning"] = jnp.where(reset, out["warning"], inputs.arrays["warning"])
  return out, reset


def healthy(m: Model, inputs: Inputs, *, reset: jax.Array) -> Inputs:
  """The inputs, replaced by finite ones where the world was reset, for zero times NaN is NaN."""

  def instead(name: str, x: jax.Array) -> jax.Array:
    if not np.issubdtype(x.dtype, np.inexact):
      return x
    if name == "mocap_quat":
      unit = jnp.zeros(x.shape, x.dtype).at[..., 0].set(1)
      return jnp.where(reset, unit, x)
    return jnp.where(reset, m.qpos0 if name == "qpos" else jnp.zeros_like(x), x)

  arrays = {name: instead(name, x) for name, x in inputs.arrays.items()}
  return dataclasses.replace(inputs, arrays=arrays)


def split(cotangents: Results, reset: jax.Array) -> tuple[Results, Results]:
  """The cotangents of what was computed, and of the inputs that only a reset changes."""
  kept = {n: jnp.where(reset, jnp.zeros_like(ct), ct) for n, ct in cotangents.items()}
  through = {n: kept.pop(n) for n in list(kept) if n in INPUTS}
  return kept, through


def joined(gradients: Results, through: Results) -> Results:
  """The gradients, with those of the inputs that came back as they were."""
  more = {n: gradients[n] + ct if n in gradients else ct for n, ct in through.items()}
  return gradients | more
