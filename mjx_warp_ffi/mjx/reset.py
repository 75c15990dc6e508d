"""Resets of some worlds of a batch, without running anything for the others."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx import io
from mjx_warp_ffi.mjx.batch import where
from mjx_warp_ffi.mjx.data.spec import Sizes, Spec
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.staging.batching import laid_as

# The fields of Data that a keyframe holds, and their names in MjModel.
_KEYS = {
  "time": "key_time",
  "qpos": "key_qpos",
  "qvel": "key_qvel",
  "act": "key_act",
  "mocap_pos": "key_mpos",
  "mocap_quat": "key_mquat",
  "ctrl": "key_ctrl",
  "plastic": "key_plastic",
}


def reset(
  m: Model, d: Data, mask: Any = None, *, keyframe: int | str | jax.Array | None = None
) -> Data:
  """Resets worlds to the model's default state or a keyframe, as mj_resetData(Keyframe) does.

  Nothing is simulated: a reset world is what `make_data` gives, its results zero until the next
  `step` or `forward`, and the other worlds keep every bit.

  Args:
    m: the model; its leaves may have the batch axes of `d`.
    d: one world, or a batch of worlds with leading axes.
    mask: booleans, which worlds to reset; all if None. Its axes are the leading axes of `d`.
    keyframe: index or name of a keyframe, or an array of indices, one for each world.

  Returns:
    The Data.

  Raises:
    ValueError: for an unknown keyframe, a mask of another shape, or another model's Data.
    TypeError: if `mask` is not boolean.
  """
  if m.spec.structure != d.sizes.structure:
    raise ValueError("this Data was made for another model: make it with make_data(m)")
  batch = jnp.shape(d.time)
  mask = jnp.asarray(True if mask is None else mask)
  if mask.shape != batch[: mask.ndim]:
    raise ValueError(f"mask has shape {mask.shape}, expected the leading axes of {batch}")
  index = None if keyframe is None else jnp.broadcast_to(_index(m, keyframe), batch)
  return _reset(m, d, mask, index)


@jax.jit  # one program, where the caller has none
def _reset(m: Model, d: Data, mask: jax.Array, keyframe: jax.Array | None) -> Data:
  batch = jnp.shape(d.time)
  values = jax.tree.map(lambda x, y: _widen(x, y, batch), _fresh(m, d.sizes), d)
  if keyframe is not None:
    values = values.replace(**_keyframe(m, keyframe))
  return where(mask, values, d)


def _widen(x: jax.Array, like: jax.Array, batch: tuple[int, ...]) -> jax.Array:
  """`x`, which may lack batch axes, in the shape of `like`, and laid out as it is."""
  missing = like.ndim - x.ndim
  if 0 < missing < len(batch):  # the model has some of the axes: they are the leading ones
    x = x.reshape(x.shape[: len(batch) - missing] + (1,) * missing + like.shape[len(batch) :])
  return laid_as(jnp.broadcast_to(x, like.shape), like)


@functools.lru_cache(maxsize=16)
def _template(spec: Spec, sizes: Sizes) -> Data:
  """A Data on the host at the defaults of the MjModel; None where a field is all zero."""
  with jax.ensure_compile_time_eval():
    data = io.at_default(spec, sizes)
    return jax.tree.map(lambda x: np.asarray(x) if np.any(np.asarray(x)) else _Zeros(x), data)


def forget_defaults() -> None:
  """Forgets the defaults of all models."""
  _template.cache_clear()


class _Zeros:
  """A leaf that is zero, which a compiled program need not hold as a constant."""

  def __init__(self, x: jax.Array):
    self.shape, self.dtype = x.shape, x.dtype


def _fresh(m: Model, sizes: Sizes) -> Data:
  """A Data at the defaults of the model; fields that leaves decide have their batch axes."""

  def array(x: np.ndarray | _Zeros) -> jax.Array:
    return jnp.zeros(x.shape, x.dtype) if isinstance(x, _Zeros) else jnp.asarray(x)

  template = jax.tree.map(array, _template(m.spec, sizes))
  return io.with_defaults_of(m, template)


def _index(m: Model, keyframe: int | str | jax.Array) -> jax.Array:
  """The index of a keyframe, checked unless it is an array."""
  mj_model = m.spec.mj_model
  if isinstance(keyframe, str):
    index = mujoco.mj_name2id(mj_model, mujoco.mjtObj.mjOBJ_KEY, keyframe)
    if index < 0:
      known = ", ".join(mj_model.key(i).name for i in range(mj_model.nkey)) or "none"
      raise ValueError(f"the model has no keyframe {keyframe!r}; there are: {known}")
    keyframe = index
  if isinstance(keyframe, int | np.integer) and not 0 <= keyframe < mj_model.nkey:
    raise ValueError(f"the model has {mj_model.nkey} keyframes, keyframe={keyframe} is none")
  if mj_model.nkey == 0:
    raise ValueError("the model has no keyframes")
  return jnp.asarray(keyframe)


def _keyframe(m: Model, index: jax.Array) -> dict[str, jax.Array]:
  """The fields of Data that a keyframe sets, for the keyframe of each world."""
  mj_model = m.spec.mj_model
  values = {}
  for name, key in _KEYS.items():
    table = getattr(mj_model, key).astype(np.float32)
    shape = (3,) if name == "mocap_pos" else (4,) if name == "mocap_quat" else ()
    rows = table.reshape(mj_model.nkey, -1, *shape) if name != "time" else table
    values[name] = jnp.asarray(rows)[index]
  return values
