"""Derivatives of the step by finite differences: transition matrices and forward mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.data.types import Data, Model, with_results
from mjx_warp_ffi.mjx.numerics import tangent
from mjx_warp_ffi.mjx.warp.ffi import Inputs, check, inputs_of
from mjx_warp_ffi.mjx.warp.functions import forward as backend
from mjx_warp_ffi.mjx.warp.gradient import differences


def _results_of(sizes: Sizes) -> differences.Results:
  """The step as a function of arrays alone, so that it closes over none that is traced."""
  return lambda m, arrays: backend.step.results(m, Inputs(arrays, sizes))


def transition_fd(
  m: Model, d: Data, eps: float | None = None, centered: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Derivatives of one step by finite differences, as mjd_transitionFD gives them.

  To first order a step maps a change x of the state, (displacement of qpos in the tangent space,
  qvel, act), and a change u of the controls to the change A x + B u of the next state and to the
  change C x + D u of sensordata, which is that of the state before the step. All displaced states
  are worlds of one batched call, or of a few; `jit` and `vmap` it at will.

  A control at the end of its range is displaced inwards alone. Integrators that mjd_transitionFD
  refuses (RK4) are differentiated too.

  Against float64 differences on the project's models the median relative error of each matrix is
  2e-3 or less without contacts, mostly 1e-5 to 3e-4; with contacts 1e-2 or less. A displacement
  that crosses a kink (joint friction, a limit, a contact that opens) gives errors of order one, and
  so do piles of bodies at rest. `benchmarks/transition_fd.py` prints the table.

  Args:
    m: the model.
    d: state, controls and other inputs of one world.
    eps: the displacement of every coordinate; if None, one that suits float32 for each quantity
      (mjd_transitionFD's usual 1e-6 is far below float32's resolution).
    centered: whether to displace both ways, at twice the number of worlds.

  Returns:
    A (2 nv + na, 2 nv + na), B (2 nv + na, nu), C (nsensordata, 2 nv + na), D (nsensordata, nu).
  """
  check(m, d)
  results = _results_of(d.sizes)
  inputs = inputs_of(m, d).arrays
  base = results(m, inputs)
  if m.nv:
    inputs["qacc_warmstart"] = base["qacc"]  # so that every world ends at the same solution

  def change(up: Any, down: Any, _: Any) -> tuple[jax.Array, jax.Array]:
    parts = [tangent.difference(m, down["qpos"], up["qpos"])] if m.nq else []
    parts += [up[name] - down[name] for name in ("qvel", "act") if name in up]
    sensors = up["sensordata"] - down["sensordata"] if m.nsensordata else jnp.zeros(0, jnp.float32)
    return jnp.concatenate([jnp.zeros(0, jnp.float32), *parts]), sensors

  steps = {}
  for name in (n for n in ("qpos", "qvel", "act", "ctrl") if n in inputs):
    sizes = differences.step_sizes(m, inputs, name=name)
    sizes = sizes if eps is None else jnp.full_like(sizes, eps)
    limits = _room(m, inputs["ctrl"], sizes) if name == "ctrl" else (True, True)
    forwards = jnp.where(limits[0], sizes, 0)
    backwards = jnp.where(limits[1], -sizes, 0)
    if not centered:
      forwards = jnp.where(forwards > 0, forwards, backwards)
      backwards = jnp.zeros_like(sizes)
    steps[name] = forwards, backwards
  n = 2 * m.nv + m.na
  if not steps:
    none = jnp.zeros((0, 0), jnp.float32), jnp.zeros((m.nsensordata, 0), jnp.float32)
    return none[0], none[0], none[1], none[1]
  state, sensors = differences.quotients(
    results, change, m=m, inputs=inputs, steps=steps, base=None if centered else base
  )
  return state[:n].T, state[n:].T, sensors[:n].T, sensors[n:].T


def _room(m: Model, ctrl: jax.Array, sizes: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Whether each control can be displaced forwards, and backwards, within its range."""
  clamped = not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL
  free = ~(jnp.asarray(m.actuator_ctrllimited, bool) & clamped)
  low, high = m.actuator_ctrlrange[:, 0], m.actuator_ctrlrange[:, 1]
  inside = (ctrl >= low) & (ctrl <= high)
  return free | (inside & (ctrl + sizes <= high)), free | (inside & (ctrl - sizes >= low))


def step_jvp(m: Model, d: Data, tangents: Mapping[str, Any]) -> tuple[Data, Data]:
  """A step and its derivative along a direction, by central differences: forward mode.

  Three worlds, whatever the number of parameters that move. `jax.vmap` over `tangents` gives a
  Jacobian, a column each.

  Args:
    m: the model.
    d: state and inputs of one world.
    tangents: the direction: by the name of a field of state or input ("qpos", "ctrl",
      "xfrc_applied") or of a Model leaf ("body_mass", "opt.gravity"), an array of its shape. That
      of qpos is one of coordinates, or of shape (nv,) one in the tangent space.

  Returns:
    The Data after the step, and its derivative: a Data whose leaves of floats are derivatives (of
    coordinates in qpos) and whose other leaves are zero.

  Raises:
    ValueError: for an unknown name or a wrong shape.
    TypeError: for a field of integers.
  """
  check(m, d)
  results = _results_of(d.sizes)
  inputs = inputs_of(m, d).arrays
  direction, given = {}, {}
  for name, x in tangents.items():
    given[name] = _direction(m, d, name, x)
    if given[name].size:
      direction[name] = given[name].ravel()
  ratios = [jnp.zeros(1, jnp.float32)]
  ratios += [jnp.abs(t) / differences.step_sizes(m, inputs, name=n) for n, t in direction.items()]
  most = jnp.max(jnp.concatenate(ratios))
  h = 1 / jnp.where(most > 0, most, 1)

  def at(scale: jax.Array) -> dict[str, jax.Array]:
    return results(
      *differences.displaced(m, inputs, amounts={n: scale * t for n, t in direction.items()})
    )

  out = jax.vmap(at)(jnp.array([1, -1, 0], h.dtype) * h)
  here = with_results(d, {n: x[2] for n, x in out.items()})
  slopes = {n: (x[0] - x[1]) / (2 * h) for n, x in out.items() if _is_float(x)}
  kept = {n: x for n, x in tangents.items() if hasattr(d, n) and n not in out}
  kept = {n: jnp.asarray(x, jnp.float32) for n, x in kept.items()}
  return here, with_results(jax.tree.map(jnp.zeros_like, d), {**kept, **slopes})


def _is_float(x: jax.Array) -> bool:
  return jnp.issubdtype(x.dtype, np.inexact)


def _direction(m: Model, d: Data, name: str, x: Any) -> jax.Array:
  """A tangent, checked; that of qpos in the tangent space."""
  inputs = {n: getattr(d, n) for n in fields.STATE}
  shape, x = differences.value_of(m, inputs, name=name).shape, jnp.asarray(x, jnp.float32)
  if name == "qpos" and x.shape == (m.nv,) != shape:
    return x
  if x.shape != shape:
    raise ValueError(f"the tangent of {name} has shape {x.shape}, expected {shape}")
  return tangent.velocity_to_tangent(m, d.qpos, velocity=x) if name == "qpos" else x
