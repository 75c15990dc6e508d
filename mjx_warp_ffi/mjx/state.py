"""State vectors, as mj_getState and mj_setState have them, batched."""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data.types import Data, Model

# Fields of Data in the order of their bits. Plugins, which mujoco_warp does not run, have none.
_FIELDS = {
  mujoco.mjtState.mjSTATE_TIME: "time",
  mujoco.mjtState.mjSTATE_QPOS: "qpos",
  mujoco.mjtState.mjSTATE_QVEL: "qvel",
  mujoco.mjtState.mjSTATE_ACT: "act",
  mujoco.mjtState.mjSTATE_HISTORY: "history",
  mujoco.mjtState.mjSTATE_WARMSTART: "qacc_warmstart",
  mujoco.mjtState.mjSTATE_CTRL: "ctrl",
  mujoco.mjtState.mjSTATE_QFRC_APPLIED: "qfrc_applied",
  mujoco.mjtState.mjSTATE_XFRC_APPLIED: "xfrc_applied",
  mujoco.mjtState.mjSTATE_EQ_ACTIVE: "eq_active",
  mujoco.mjtState.mjSTATE_MOCAP_POS: "mocap_pos",
  mujoco.mjtState.mjSTATE_MOCAP_QUAT: "mocap_quat",
  mujoco.mjtState.mjSTATE_USERDATA: "userdata",
  mujoco.mjtState.mjSTATE_PLASTIC: "plastic",
}


def _parts(m: Model | mujoco.MjModel, spec: int) -> Iterator[tuple[str, int]]:
  """The fields of a signature and the number of their values in one world."""
  mj_model = m.spec.mj_model if isinstance(m, Model) else m
  signature = int(spec)
  if not 0 <= signature < 1 << int(mujoco.mjtState.mjNSTATE):
    raise ValueError(f"spec={spec!r} is no combination of mujoco.mjtState bits")
  for bit, name in _FIELDS.items():
    if signature & int(bit):
      yield name, mujoco.mj_stateSize(mj_model, int(bit))


def state_size(m: Model | mujoco.MjModel, spec: int) -> int:
  """Number of values in the state vector of one world.

  Args:
    m: the model.
    spec: bits of mujoco.mjtState, such as `mujoco.mjtState.mjSTATE_INTEGRATION`.

  Returns:
    The size, which is that of mj_stateSize.

  Raises:
    ValueError: for bits that are none of mujoco.mjtState.
  """
  return sum(size for _, size in _parts(m, spec))


def get_state(m: Model, d: Data, spec: int) -> jax.Array:
  """The state of each world as one vector, laid out as mj_getState does.

  Args:
    m: the model.
    d: one world, or a batch of worlds with leading axes.
    spec: bits of mujoco.mjtState.

  Returns:
    A float32 array of shape (..., state_size(m, spec)).

  Raises:
    ValueError: for bits that are none of mujoco.mjtState.
  """
  batch = jnp.shape(d.time)
  parts = [
    jnp.reshape(getattr(d, name), (*batch, size)).astype(jnp.float32)
    for name, size in _parts(m, spec)
    if size  # JAX cannot reshape arrays without elements whose types say how they lie
  ]
  return jnp.concatenate(parts, axis=-1) if parts else jnp.zeros((*batch, 0), jnp.float32)


def set_state(m: Model, d: Data, state: jax.Array, spec: int) -> Data:
  """A copy of a Data with the state of each world read from a vector, as mj_setState does.

  Args:
    m: the model.
    d: one world, or a batch of worlds with leading axes.
    state: what `get_state` returns, or one vector for all worlds.
    spec: bits of mujoco.mjtState.

  Returns:
    The Data; its results are those of the old state until `forward` or `step`.

  Raises:
    ValueError: for bits that are none of mujoco.mjtState, or a vector of another size.
  """
  parts = list(_parts(m, spec))
  state, expected = jnp.asarray(state), sum(size for _, size in parts)
  if state.ndim == 0 or state.shape[-1] != expected:
    raise ValueError(f"state has shape {state.shape}, expected {expected} values on its last axis")
  state = jnp.broadcast_to(state, (*jnp.shape(d.time), expected))
  values = {}
  ends = np.cumsum([size for _, size in parts])
  for (name, size), end in zip(parts, ends, strict=True):
    if not size:
      continue
    old = getattr(d, name)
    value = state[..., end - size : end].reshape(old.shape)
    values[name] = value != 0 if old.dtype == np.bool_ else value
    assert math.prod(old.shape) == value.size
  return d.replace(**values)
