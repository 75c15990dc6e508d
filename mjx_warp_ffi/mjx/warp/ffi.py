"""From a MuJoCo Warp function to a function of a JAX Model and Data.

`staged(mjw.step, ...)` is all that it takes to bring one more function of mujoco_warp to JAX: its
inputs are staged into a workspace, the function is captured in a graph once and replayed, its
results are staged out.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.types import Data, Model, leaf_shape, with_results
from mjx_warp_ffi.mjx.warp import batching, fields
from mjx_warp_ffi.mjx.warp.workspace import Plan, Workspace
from mjx_warp_ffi.third_party.warp.program import Program, jax_program

Function = Callable[[mjw.Model, mjw.Data], None]

_ACCUMULATED = ("overflow", "warning")
_INT = np.dtype(np.int32)
_OWN = (fields.Field("ncon", (), (), _INT), fields.Field("warning", (), (), _INT))
_FIELDS = {
  f.name: f
  for f in (
    *fields.data_fields(),
    *_OWN,
    *(dataclasses.replace(f, name=f"contact.{f.name}") for f in fields.contact_fields()),
  )
}


@dataclasses.dataclass(frozen=True)
class Signature:
  """The arguments and results of one staged function for one model.

  Attributes:
    name: name of the function.
    leaves: names of the model leaves that are passed, those that have elements.
    inputs: names of the Data fields that are passed.
    outputs: names of the Data fields that come back.
  """

  name: str
  leaves: tuple[str, ...]
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]


class _Extent:
  """Sizes by name: of the model, or of a Data."""

  def __init__(self, mj_model: mujoco.MjModel, nconmax: int):
    self._mj_model = mj_model
    self.nconmax = nconmax

  def __getattr__(self, name: str) -> int:
    return getattr(self._mj_model, name)


def staged(
  function: Function, *, name: str, outputs: Callable[[Model], tuple[str, ...]]
) -> Callable[[Model, Data], Data]:
  """Turns a function of mujoco_warp into a function of one world that `vmap` batches.

  Args:
    function: `f(m, d)` of mujoco_warp.
    name: name of the FFI target.
    outputs: names of the Data fields that the function computes for a model; the others pass
      through.

  Returns:
    A pure function of a Model and a Data that returns a Data.
  """

  def call(m: Model, d: Data) -> Data:
    check(m, d)
    signature = _signature(m, d, name, tuple(outputs(m)))
    args = [_staged_leaf(m, leaf) for leaf in signature.leaves]
    args += [jnp.asarray(fields.lookup(d, field))[None] for field in signature.inputs]

    def over_worlds(rows: frozenset[int], arrays: batching.Arrays) -> batching.Arrays:
      batched = frozenset(signature.leaves[i] for i in rows)
      nworld = arrays[len(signature.leaves)].shape[0]
      plan = Plan(m.spec, m.opt.statics, d.sizes, nworld, batched, m.autoreset)
      return _launch(function, signature, plan, arrays)

    results = batching.batched(over_worlds, len(signature.leaves))(*args)
    return with_results(d, {n: x[0] for n, x in zip(signature.outputs, results, strict=True)})

  return call


def check(m: Model, d: Data) -> None:
  """Checks that a Model and a Data are of one world and belong together.

  Raises:
    TypeError: if they are no Model and Data.
    ValueError: for a batch that is not mapped over, a wrong shape or dtype, another model's Data.
  """
  if not isinstance(m, Model) or not isinstance(d, Data):
    raise TypeError(
      f"expected a Model and a Data of this package (put_model, make_data), got"
      f" {type(m).__name__} and {type(d).__name__}"
    )
  if m.spec.structure != d.sizes.structure:
    raise ValueError(
      "this Data was made for another model: make it with make_data(m) or put_data for this one"
    )
  mj_model = m.spec.mj_model
  for field in fields.model_leaves():
    _check_array(field, fields.lookup(m, field.name), leaf_shape(field, mj_model), "Model")
  extent = _Extent(mj_model, d.sizes.nconmax)
  for name, field in _FIELDS.items():
    _check_array(field, fields.lookup(d, name), field.shape(extent), "Data")


def _check_array(field: fields.Field, value: Any, shape: tuple[int, ...], owner: str) -> None:
  got = np.shape(value)
  if got != shape:
    hint = ""
    if got[len(got) - len(shape) :] == shape:
      axes = "(0, None)" if owner == "Model" else "(None, 0)"
      hint = f"; for a batch use jax.vmap, for example jax.vmap(mjx.step, in_axes={axes})"
    raise ValueError(f"{owner} field {field.name} has shape {got}, expected {shape}{hint}")
  if value.dtype != field.dtype:
    raise ValueError(
      f"{owner} field {field.name} has dtype {value.dtype}, expected {field.dtype}; `replace`"
      " converts"
    )


def _signature(m: Model, d: Data, name: str, outputs: tuple[str, ...]) -> Signature:
  mj_model = m.spec.mj_model
  extent = _Extent(mj_model, d.sizes.nconmax)

  def some(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(n for n in names if 0 not in _FIELDS[n].shape(extent))

  leaves = (f.name for f in fields.model_leaves() if 0 not in leaf_shape(f, mj_model))
  return Signature(name, tuple(leaves), some((*fields.STATE, *_ACCUMULATED)), some(outputs))


def _staged_leaf(m: Model, name: str) -> jax.Array:
  value = jnp.asarray(fields.lookup(m, name))
  staging = fields.STAGED_AS.get(name)
  return staging.convert(value) if staging else value


def _launch(
  function: Function, signature: Signature, plan: Plan, arrays: batching.Arrays
) -> batching.Arrays:
  """One FFI call for all worlds."""
  extent = _Extent(plan.spec.mj_model, plan.sizes.nconmax)
  results = [
    jax.ShapeDtypeStruct((plan.nworld, *_FIELDS[n].shape(extent)), _FIELDS[n].dtype)
    for n in signature.outputs
  ]
  first = len(signature.leaves)
  aliases = {
    first + i: signature.outputs.index(n)
    for i, n in enumerate(signature.inputs)
    if n in signature.outputs
  }

  def make(device: wp.Device) -> Program:
    with wp.ScopedDevice(device):
      w = Workspace(plan)
    inputs = [w.leaf(n) for n in signature.leaves] + [w.field(n) for n in signature.inputs]
    outputs = [w.field(n) for n in signature.outputs]
    return Program(tuple(inputs), tuple(outputs), lambda: w.run(function), keep=w)

  call = jax_program(
    signature.name,
    make,
    key=_digest(signature, plan),
    result_types=results,
    input_output_aliases=aliases,
  )
  return tuple(call(*arrays))


def _digest(signature: Signature, plan: Plan) -> str:
  """Identifies the program, in any process."""
  content = (
    signature.name,
    plan.spec.digest,
    tuple(plan.statics),
    tuple(plan.sizes),
    plan.nworld,
    sorted(plan.batched),
    plan.autoreset,
  )
  return hashlib.sha256(repr(content).encode()).hexdigest()[:32]
