"""Central differences of a staged function, where displaced worlds are more worlds of one batch.

In float32 a difference of a step over 2h is wrong by about |y| 6e-8 / h from rounding and by
|y'''| h² / 6 from curvature. The steps below are where both are small for the quantity at hand; the
length that a displacement really has after rounding is what divides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import custom_batching

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.types import Model, replace_leaves
from mjx_warp_ffi.mjx.numerics import tangent

Arrays = dict[str, jax.Array]
Results = Callable[[Model, Arrays], Arrays]
# The displacement forwards and backwards of every coordinate of an array, flat.
Steps = tuple[jax.Array, jax.Array]

_MOST_WORLDS = 8192  # a GPU is full then
_MEMORY = 2**30  # bytes for the worlds of one call, by a rough count
_SCRATCH = 16  # memory of a world's workspace, in units of the size of its results

# Relative to the scale of the quantity, which is at least one. Longer steps cross more kinks
# (limits, friction loss, contacts), shorter ones drown in rounding.
_STATE_STEP = {"qpos": 2e-3, "qvel": 5e-3, "act": 2e-3, "ctrl": 2e-3, "time": 1e-2}
# The force of a contact changes over micrometres, so steeply that rounding matters less.
_CONTACT_STEP = {**_STATE_STEP, "qpos": 5e-5, "qvel": 1e-3, "ctrl": 1e-4}
_LEAF_STEP = {"opt.timestep": 0.1}
_OTHER_STEP = 1e-2
_SPEED_STEP = 1e-2  # what a force changes a velocity by, in m/s or rad/s
# The solver's start does not change its solution.
_WITHOUT_EFFECT = ("qacc_warmstart",)


@dataclasses.dataclass(frozen=True)
class _Slot:
  """The range of the coordinates of one array among those of all arrays that are displaced."""

  name: str
  start: int
  size: int

  def amounts(self, k: jax.Array, along: jax.Array) -> jax.Array:
    """Displacements of the array when it is the turn of coordinate `k`."""
    return jnp.where(jnp.arange(self.size) == k - self.start, along, jnp.zeros_like(along))


def step_sizes(m: Model, inputs: Arrays, *, name: str) -> jax.Array:
  """Step sizes for the coordinates of an input or a Model leaf, flat; of qpos in tangent space."""
  relative = _relative_step(m, name)
  if name == "qpos":
    return jnp.full(m.nv, relative, jnp.float32)
  if name in ("qfrc_applied", "xfrc_applied"):
    return _force_steps(m, name)
  if name == "ctrl":
    return _control_steps(m, inputs[name], relative)
  if name in inputs:
    return relative * jnp.maximum(jnp.abs(inputs[name].ravel()), 1)
  x = jnp.abs(fields.lookup(m, name))
  whole = jnp.where(jnp.any(x != 0), jnp.max(x, initial=0), 1)
  column = jnp.max(x, axis=0, initial=0) if x.ndim > 1 else whole
  column = jnp.where(column > 0, column, whole)
  scale = jnp.maximum(x, 0.1 * column)
  return (relative * scale).ravel()


def _relative_step(m: Model, name: str) -> float:
  off = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
  touching = m.npair > 0 or (np.any(m.geom_contype) and np.any(m.geom_conaffinity))
  contact = touching and not m.opt.disableflags & off
  steps = {**(_CONTACT_STEP if contact else _STATE_STEP), **_LEAF_STEP}
  return steps.get(name, _OTHER_STEP)


def _control_steps(m: Model, ctrl: jax.Array, relative: float) -> jax.Array:
  """A share of the range, where there is one, so that there is room for it."""
  limited = np.asarray(m.actuator_ctrllimited, bool)
  width = jnp.where(limited, m.actuator_ctrlrange[:, 1] - m.actuator_ctrlrange[:, 0], np.inf)
  half = jnp.where(limited, width / 2, 1)
  sizes = relative * jnp.maximum(jnp.abs(ctrl), jnp.maximum(half, 1))
  return jnp.minimum(sizes, 0.1 * width)


def _force_steps(m: Model, name: str) -> jax.Array:
  """Forces that change the speed of what they act on, at rest in qpos0, by the same amount."""
  if name == "qfrc_applied":
    inverse = m.dof_invweight0
  else:
    inverse = jnp.repeat(m.body_invweight0, 3, axis=1).ravel()
  scale = jnp.maximum(inverse * m.opt.timestep, np.float32(1e-6))
  return jnp.where(inverse > 0, _SPEED_STEP / scale, 1)


def fd_vjp(
  results: Results,
  m: Model,
  *,
  inputs: Arrays,
  cotangents: Mapping[str, Any],
  wanted: Sequence[str],
) -> Arrays:
  """The vector-Jacobian product of a function of one world, by central differences.

  It takes 2 n worlds for n wanted coordinates, in calls of at most a few thousand; `vmap` over it
  makes them calls of as many worlds, with fewer coordinates each.

  Args:
    results: `results(m, inputs)`, pure, of one world; `vmap` batches it into one call.
    m: the model.
    inputs: the arrays that the function takes beside the model; with the solved acceleration as
      `qacc_warmstart` the differences have less of the solver's noise.
    cotangents: cotangents by the name of the result; those of integers are passed over.
    wanted: names of inputs and of Model leaves ("body_mass", "opt.gravity").

  Returns:
    The gradients by name, each of the shape of its array. That of qpos is in coordinates, and
    orthogonal to the quaternions.

  Raises:
    ValueError: for an unknown name.
    TypeError: for a wanted array of integers.
  """
  values = {name: value_of(m, inputs, name=name) for name in wanted}
  dense = {n: ct for n, ct in cotangents.items() if jnp.issubdtype(jnp.result_type(ct), np.inexact)}
  moved = [n for n, x in values.items() if x.size and n not in _WITHOUT_EFFECT]
  gradients = {n: jnp.zeros_like(x) for n, x in values.items()}
  if not moved or not dense:
    return gradients

  def power(up: Arrays, down: Arrays, extra: Arrays) -> jax.Array:
    terms = [jnp.sum((up[n] - down[n]) * ct) for n, ct in extra.items()]
    return jnp.sum(jnp.stack(terms))

  steps = {name: step_sizes(m, inputs, name=name) for name in moved}
  both = {name: (h, -h) for name, h in steps.items()}
  flat = quotients(results, power, m=m, inputs=inputs, steps=both, extra=dense)
  for slot in _slots(both):
    gradient = flat[slot.start : slot.start + slot.size]
    if slot.name == "qpos":
      gradient = tangent.gradient_to_coordinates(m, inputs["qpos"], gradient=gradient)
    gradients[slot.name] = gradient.reshape(values[slot.name].shape)
  return gradients


def value_of(m: Model, inputs: Arrays, *, name: str) -> jax.Array:
  """An input, or a leaf of Model, by its name.

  Raises:
    ValueError: for an unknown name.
    TypeError: for an array of integers.
  """
  leaves = [f.name for f in fields.model_leaves()]
  if name not in inputs and name not in leaves:
    valid = ", ".join([*inputs, *leaves])
    raise ValueError(f"{name!r} is no input and no leaf of Model; valid names are {valid}")
  value = inputs[name] if name in inputs else fields.lookup(m, name)
  if not jnp.issubdtype(value.dtype, np.inexact):
    raise TypeError(f"{name} has dtype {value.dtype}: only floats have a gradient")
  return value


def _slots(steps: Mapping[str, Steps]) -> list[_Slot]:
  slots: list[_Slot] = []
  for name, (forwards, _) in steps.items():
    start = slots[-1].start + slots[-1].size if slots else 0
    slots.append(_Slot(name, start, forwards.size))
  return slots


def quotients(
  results: Results,
  combine: Callable[[Arrays, Arrays, Any], Any],
  *,
  m: Model,
  inputs: Arrays,
  steps: Mapping[str, Steps],
  extra: Any = (),
  base: Arrays | None = None,
) -> Any:
  """Difference quotients with respect to each coordinate of some arrays, in turn.

  Args:
    results: as for `fd_vjp`.
    combine: `combine(up, down, extra)`, the difference of the results at the two ends.
    m: the model.
    inputs: the arrays that the function takes beside the model.
    steps: by the name of the array, where the two ends lie: displacements of its coordinates,
      forwards and backwards, zero where that end is the array itself. Quotients of a coordinate
      without any displacement are zero.
    extra: arrays for `combine`.
    base: the results without a displacement: then they stand for the backward end, and only the
      forward end is computed.

  Returns:
    What `combine` returns, over the length of the displacement, with an axis of coordinates before
    it.
  """
  slots = _slots(steps)
  # evaluated outside, so that the count sees one world
  size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(results, m, inputs)))
  arrays, tree = jax.tree.flatten((m, inputs, dict(steps), extra, base))

  def quotient(k: jax.Array, *arrays: jax.Array) -> Any:
    m, inputs, steps, extra, base = jax.tree.unflatten(tree, arrays)

    def end(side: jax.Array) -> tuple[Arrays, Arrays]:
      moved = {
        s.name: _displaced(m, inputs, s.name, s.amounts(k, jnp.stack(steps[s.name])[side]))
        for s in slots
      }
      return results(*_replaced(m, inputs, moved)), moved

    if base is None:
      out, moved = jax.vmap(end)(jnp.arange(2))
      up, down = ({n: x[i] for n, x in out.items()} for i in (0, 1))
      first, last = ({n: x[i] for n, x in moved.items()} for i in (0, 1))
    else:
      up, first = end(jnp.zeros((), int))
      down, last = base, {s.name: value_of(m, inputs, name=s.name) for s in slots}
    length = sum(_length(m, s, k, first[s.name], last[s.name]) for s in slots)
    scale = jnp.where(length == 0, 0, 1 / jnp.where(length == 0, 1, length))
    return jax.tree.map(lambda x: x * scale, combine(up, down, extra))

  count = slots[-1].start + slots[-1].size
  limit = max(
    1, min(_MOST_WORLDS, _MEMORY // (_SCRATCH * max(size, 1))) // (2 - (base is not None))
  )
  over = jax.vmap(quotient, in_axes=(0, *[None] * len(arrays)))
  return _in_chunks(over, count, limit, worlds=())(*arrays)


def displaced(m: Model, inputs: Arrays, *, amounts: Arrays) -> tuple[Model, Arrays]:
  """The model and inputs with some arrays displaced by flat amounts; qpos in tangent space."""
  moved = {n: _displaced(m, inputs, n, x) for n, x in amounts.items()}
  return _replaced(m, inputs, moved)


def _displaced(m: Model, inputs: Arrays, name: str, amounts: jax.Array) -> jax.Array:
  x = value_of(m, inputs, name=name)
  if name == "qpos":
    return tangent.integrate(m, x, amounts)
  return x + amounts.reshape(x.shape)


def _replaced(m: Model, inputs: Arrays, values: Arrays) -> tuple[Model, Arrays]:
  leaves = {n: x for n, x in values.items() if n not in inputs}
  if leaves:
    m = replace_leaves(m, leaves)
  return m, {**inputs, **{n: x for n, x in values.items() if n in inputs}}


def _length(m: Model, slot: _Slot, k: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
  """How far the ends of coordinate `k` lie apart, after rounding; zero for another array's `k`."""
  apart = tangent.difference(m, down, up) if slot.name == "qpos" else (up - down).ravel()
  return jnp.sum(slot.amounts(k, apart))


def _in_chunks(
  over: Callable[..., Any], count: int, limit: int, *, worlds: tuple[int, ...]
) -> Callable[..., Any]:
  """A function of arrays that calls `over(ks, *arrays)` for all `ks` below `count`, some at a time.

  `vmap` makes each call one over more worlds, not more calls at a time.

  Args:
    over: takes indices and the arrays; its results have the axes of `worlds`, then that of indices.
    count: number of indices.
    limit: indices a call for one world.
    worlds: batch axes that the arrays have already.
  """
  depth = len(worlds)

  def chunked(*arrays: jax.Array) -> Any:
    chunks = math.ceil(count * math.prod(worlds) / limit)
    chunks = min(count, chunks)
    size = math.ceil(count / chunks)
    indices = jnp.arange(chunks * size).reshape(chunks, size)  # those beyond have no displacement
    results = jax.lax.map(lambda ks: over(ks, *arrays), indices)

    def joined(x: jax.Array) -> jax.Array:
      x = jnp.moveaxis(x, 0, depth)
      x = x.reshape(*worlds, chunks * size, *x.shape[depth + 2 :])
      return jax.lax.slice_in_dim(x, 0, count, axis=depth)

    return jax.tree.map(joined, results)

  function = custom_batching.custom_vmap(chunked)

  @function.def_vmap
  def rule(axis_size: int, in_batched: list[bool], *arrays: jax.Array) -> tuple[Any, Any]:
    axes = (None, *(0 if b else None for b in in_batched))
    wider = jax.vmap(over, in_axes=axes, axis_size=axis_size)
    results = _in_chunks(wider, count, limit, worlds=(axis_size, *worlds))(*arrays)
    return results, jax.tree.map(lambda _: True, results)

  return function
