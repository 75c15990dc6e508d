"""Capacities: how many contacts and rows there were, and whether that was too many."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx import io
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.forward import step
from mjx_warp_ffi.mjx.warp.models import acceptance
from mjx_warp_ffi.mjx.warp.staging import peaks

_HOLD = 20  # steps for which a random control is held


def capacity_peaks(m: Model | mujoco.MjModel, *, clear: bool = False) -> dict[str, int]:
  """The largest numbers of contacts and rows that any call has seen, on all devices.

  They are kept on the devices, for all models of the same structure, from the first call in this
  process on. A call that still runs may not be counted: wait for its results first.

  Args:
    m: the model.
    clear: start again from zero.

  Returns:
    By the argument of `make_data` that bounds it: "nconmax" (contacts of a world), "njmax" (rows of
    a world) and "naconmax" (contacts, or pairs of geoms that may touch, of all worlds of a call).
  """
  model = m if isinstance(m, Model) else io.put_model(m)
  counts = peaks.read(model.spec.structure, clear=clear)
  return {
    "nconmax": counts["contacts_of_a_world"],
    "njmax": counts["rows_of_a_world"],
    "naconmax": max(counts["contacts"], counts["pairs"]),
  }


def check_overflow(d: Data) -> None:
  """Raises if a world has lost contacts or rows; the message says what to pass to `make_data`.

  The numbers are those of the calls with the capacities and the number of worlds of this Data; of
  all its calls with these capacities if it is a part of a batch. The solver's limits of iterations,
  which have bits in `d.overflow` too, are no such loss.

  Args:
    d: one world or a batch, computed (this cannot be called under `jit`).

  Raises:
    ValueError: if a bit of a full capacity is set in some world.
    TypeError: under `jit`.
  """
  if isinstance(d.overflow, jax.core.Tracer):
    raise TypeError("check_overflow reads values: call it outside of jit, or look at d.overflow")
  overflow = peaks.lost(np.asarray(d.overflow))
  if np.any(overflow):
    advice = peaks.advice(overflow, d.sizes, nworld=_worlds_of_a_call(d.overflow))
    raise ValueError("a capacity was too small: " + "; ".join(advice))


def _worlds_of_a_call(x: Any) -> int:
  """The elements of an array of worlds on one device: each device makes its own call."""
  shape = x.sharding.shard_shape(x.shape) if isinstance(x, jax.Array) else np.shape(x)
  return math.prod(shape)


def suggest_sizes(
  mj_model: mujoco.MjModel,
  *,
  nworld: int = 16,
  nstep: int = 500,
  ctrl: Any = None,
  slack: float = 1.5,
  seed: int = 0,
) -> dict[str, int]:
  """Measures capacities on a rollout from random states near the default and the keyframes.

  Args:
    mj_model: the model.
    nworld: worlds of the rollout.
    nstep: steps of the rollout.
    ctrl: controls, (nstep, nu); random ones in their ranges if None.
    slack: factor between what was seen and what is suggested.
    seed: of the random numbers.

  Returns:
    Arguments for `make_data` and `put_data`: `nconmax` and `njmax`.

  Raises:
    ValueError: for controls of another shape.
  """
  model = io.put_model(mj_model, gradient="none")
  rng = np.random.default_rng(seed)
  shape = (nstep, mj_model.nu)
  controls = _random_controls(mj_model, nstep, rng) if ctrl is None else np.asarray(ctrl)
  if controls.shape != shape:
    raise ValueError(f"ctrl has shape {controls.shape}, expected {shape}")
  states = [_random_state(mj_model, rng) for _ in range(nworld)]
  qpos, qvel = (jnp.asarray(np.stack(x), jnp.float32) for x in zip(*states, strict=True))
  run = functools.partial(_rollout, model, qpos, qvel, jnp.asarray(controls, jnp.float32))
  sizes = {
    "nconmax": 2 * acceptance.default_nconmax(mj_model),
    "njmax": 2 * acceptance.default_njmax(mj_model),
  }
  overflow, seen = run(sizes)
  while np.any(overflow):
    sizes = {name: 2 * size for name, size in sizes.items()}
    overflow, seen = run(sizes)
  sizes = {name: acceptance.round_up(slack * size) for name, size in seen.items()}
  while np.any(run(sizes)[0]):  # the pairs that may touch need places too
    sizes["nconmax"] = acceptance.round_up(1.5 * sizes["nconmax"])
  return sizes


def _rollout(
  m: Model, qpos: jax.Array, qvel: jax.Array, ctrl: jax.Array, sizes: dict[str, int]
) -> tuple[np.ndarray, dict[str, int]]:
  """The overflow bits, and the largest numbers of contacts and rows of a world."""

  def world(q: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
    def one(carry: tuple[Data, jax.Array, jax.Array], u: jax.Array) -> tuple[Any, None]:
      d, contacts, rows = carry
      d = step(m, d.replace(ctrl=u))
      return (d, jnp.maximum(contacts, d.ncon), jnp.maximum(rows, d.nefc)), None

    d = io.make_data(m, **sizes).replace(qpos=q, qvel=v)
    zero = jnp.zeros((), jnp.int32)
    (d, contacts, rows), _ = jax.lax.scan(one, (d, zero, zero), ctrl)
    return d.overflow, contacts, rows

  overflow, contacts, rows = jax.jit(jax.vmap(world))(qpos, qvel)
  return peaks.lost(np.asarray(overflow)), {
    "nconmax": int(contacts.max()),
    "njmax": int(rows.max()),
  }


def _random_state(m: mujoco.MjModel, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
  d = mujoco.MjData(m)
  key = rng.integers(-1, m.nkey)
  if key >= 0:
    mujoco.mj_resetDataKeyframe(m, d, key)
  mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), rng.uniform(0, 0.5))
  return d.qpos, rng.normal(size=m.nv) * rng.uniform(0, 2)


def _random_controls(m: mujoco.MjModel, nstep: int, rng: np.random.Generator) -> np.ndarray:
  limited = m.actuator_ctrlrange[:, 0] < m.actuator_ctrlrange[:, 1]
  low, high = np.where(limited[:, None], m.actuator_ctrlrange, [[-1.0, 1.0]]).T
  held = rng.uniform(low, high, size=(-(-nstep // _HOLD), m.nu))
  return np.repeat(held, _HOLD, axis=0)[:nstep]
