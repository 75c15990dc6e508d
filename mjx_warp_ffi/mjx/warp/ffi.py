"""From a MuJoCo Warp function to a function of a JAX Model and Data.

`Staged(mjw.step, ...)` is all that it takes to bring one more function of mujoco_warp to JAX: its
inputs are copied into a workspace, the function is captured in a graph once and replayed, its
results are copied out. `functions.computed.Computed` does it for a function with further arguments,
whose results are no fields of Data. Both make a `StagedCall`, as a backward call does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from flax import struct

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.enums import IMPLICIT, DisableBit, GainType
from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.data.types import Data, Model, leaf_shape, with_results
from mjx_warp_ffi.mjx.warp.staging import batching
from mjx_warp_ffi.mjx.warp.staging.plan import Plan
from mjx_warp_ffi.mjx.warp.staging.plan import digest as digest
from mjx_warp_ffi.mjx.warp.staging.staged_call import Built, StagedCall
from mjx_warp_ffi.mjx.warp.staging.workspace import EARLY, Workspace

Function = Callable[[mjw.Model, mjw.Data], None]

_INT = np.dtype(np.int32)
# Fields of our Data that mujoco_warp's does not have.
_OWN = (fields.Field("ncon", (), (), _INT), fields.Field("warning", (), (), _INT))
FIELDS = {
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
    arguments: further arguments, with their final shapes.
    results: results that are no fields of Data, with their final shapes.
    static: what else the function depends on.
    captured: whether it is replayed from a graph, or run as it is, for what no graph records.
  """

  name: str
  leaves: tuple[str, ...]
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  arguments: tuple[Array, ...] = ()
  results: tuple[Array, ...] = ()
  static: tuple[Any, ...] = ()
  captured: bool = True


@dataclasses.dataclass(frozen=True)
class Array:
  """An argument or a result that is no field of Data, without its world axis.

  Attributes:
    name: name, for messages.
    sizes: its dimensions: integers, or names of sizes of the model, of capacities, or of the
      arguments before it, which a dimension of unknown name defines.
    dtype: Warp dtype.
  """

  name: str
  sizes: tuple[str | int, ...]
  dtype: Any = float

  @property
  def field(self) -> fields.Field:
    """The array as a field, whose shape and dtype are those that JAX sees."""
    return fields.field(self.name, self.sizes, dtype=self.dtype)


@struct.dataclass
class Inputs:
  """What a step reads of a Data: state and inputs by field name, and the capacities."""

  arrays: dict[str, jax.Array]
  sizes: Sizes = struct.field(pytree_node=False)


def inputs_of(m: Model, d: Data) -> Inputs:
  """The inputs of a step, without the arrays that have no elements."""
  extent = Extent(m.spec.mj_model, d.sizes)
  names = (n for n in (*fields.STATE, *fields.ACCUMULATED) if 0 not in FIELDS[n].shape(extent))
  return Inputs({n: jnp.asarray(getattr(d, n)) for n in names}, d.sizes)


_BADCTRL = np.int32(1 << int(mujoco.mjtWarning.mjWARN_BADCTRL))


def with_checked_controls(m: Model, inputs: Inputs) -> Inputs:
  """The inputs with controls that MuJoCo Warp can take.

  Where a control of a world is bad, all of its controls become zero and its warning gets a bit, as
  in C MuJoCo; mujoco_warp would clamp NaN to the lower limit, and nobody would notice. Controls
  that an implicit step of mujoco_warp reads unclamped are clamped here.
  """
  if "ctrl" not in inputs.arrays:
    return inputs
  ctrl, warning = inputs.arrays["ctrl"], inputs.arrays["warning"]
  bad = ~jnp.all(jnp.abs(ctrl) < np.float32(mujoco.mjMAXVAL))
  checked = {
    "ctrl": _clamped(m, jnp.where(bad, jnp.zeros_like(ctrl), ctrl)),
    "warning": jnp.where(bad, warning | _BADCTRL, warning),
  }
  return dataclasses.replace(inputs, arrays=inputs.arrays | checked)


def _clamped(m: Model, ctrl: jax.Array) -> jax.Array:
  """The controls, clamped to their limits where an implicit step of mujoco_warp does not do it.

  It reads them unclamped for the derivative of a force with respect to the velocity, where a
  control multiplies a gain.
  """
  mjm, statics = m.spec.mj_model, m.opt.statics
  if statics.integrator not in IMPLICIT or statics.disableflags & DisableBit.CLAMPCTRL:
    return ctrl
  gains = np.isin(mjm.actuator_gaintype, (GainType.AFFINE, GainType.MUSCLE))
  read = gains & (mjm.actuator_actadr < 0) & (mjm.actuator_ctrladr >= 0)
  read &= mjm.actuator_ctrllimited != 0
  if mjm.nhistory or not np.any(read):  # delayed controls are clamped when they are read
    return ctrl
  at = mjm.actuator_ctrladr[read]
  low, high = m.actuator_ctrlrange[read].T
  return ctrl.at[at].set(jnp.clip(ctrl[at], low, high))


class Extent:
  """Sizes by name: those of the model, and the capacities of a Data."""

  def __init__(self, mj_model: mujoco.MjModel, sizes: Sizes):
    self._mj_model = mj_model
    self.nconmax = sizes.nconmax
    self.njmax = sizes.njmax

  def __getattr__(self, name: str) -> int:
    return getattr(self._mj_model, name)

  def bound(self, array: Array, shape: tuple[int, ...]) -> Array:
    """The array with the dimensions of a shape, which becomes the size of names not yet known.

    Raises:
      ValueError: if the shape is another one.
    """
    item = array.field.item
    dims = shape[: len(shape) - len(item)]
    if len(dims) != len(array.sizes) or shape[len(dims) :] != item:
      want = ", ".join(str(s) for s in (*array.sizes, *item))
      raise ValueError(f"{array.name} has shape {shape}, expected ({want})")
    for name, size in zip(array.sizes, dims, strict=True):
      if isinstance(name, str) and not hasattr(self, name):
        setattr(self, name, size)
      expected = getattr(self, name) if isinstance(name, str) else name
      if size != expected:
        raise ValueError(f"{array.name} has shape {shape}, expected {name}={expected}, not {size}")
    return dataclasses.replace(array, sizes=dims)

  def fixed(self, array: Array) -> Array:
    """The array with numbers in the place of the names of its dimensions."""
    dims = tuple(getattr(self, s) if isinstance(s, str) else s for s in array.sizes)
    return dataclasses.replace(array, sizes=tuple(int(s) for s in dims))


@dataclasses.dataclass(frozen=True)
class Staged:
  """A function of mujoco_warp as a function of one world that `vmap` batches.

  Attributes:
    function: `f(m, d)` of mujoco_warp.
    name: name of the FFI target.
    outputs: gives the names of the Data fields that the function computes for a model; the others
      pass through.
    times: how often the function runs in one call.
  """

  function: Function
  name: str
  outputs: Callable[[Model], tuple[str, ...]]
  times: int = 1

  def __call__(self, m: Model, d: Data) -> Data:
    """The Data with the function's results; checks Model and Data first."""
    check(m, d)
    return with_results(d, self.results(m, with_checked_controls(m, inputs_of(m, d))))

  def results(self, m: Model, inputs: Inputs) -> dict[str, jax.Array]:
    """The results by field name, for inputs that were checked."""
    signature = signature_of(m, inputs, name=self.name, outputs=tuple(self.outputs(m)))
    signature = dataclasses.replace(signature, static=(self.times,))

    def run(w: Workspace) -> None:
      w.run(self.function, self.times)

    results = call(run, signature, m=m, inputs=inputs, autoreset=m.autoreset)
    return dict(zip(signature.outputs, results, strict=True))


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
  extent = Extent(mj_model, d.sizes)
  for name, field in FIELDS.items():
    _check_array(field, fields.lookup(d, name), field.shape(extent), "Data")


def _check_array(field: fields.Field, value: Any, shape: tuple[int, ...], owner: str) -> None:
  got = np.shape(value)
  if got != shape:
    hint = ""
    if got[len(got) - len(shape) :] == shape:
      axes = "(mjx.model_axes(m), 0)" if owner == "Model" else "(None, 0)"
      hint = f"; for a batch use jax.vmap, for example jax.vmap(mjx.step, in_axes={axes})"
    raise ValueError(f"{owner} field {field.name} has shape {got}, expected {shape}{hint}")
  if value.dtype != field.dtype:
    raise ValueError(
      f"{owner} field {field.name} has dtype {value.dtype}, expected {field.dtype}; `replace`"
      " converts"
    )


def signature_of(m: Model, inputs: Inputs, *, name: str, outputs: tuple[str, ...]) -> Signature:
  """The signature of a function of the state whose results are fields of Data."""
  mj_model = m.spec.mj_model
  extent = Extent(mj_model, inputs.sizes)
  leaves = (f.name for f in fields.model_leaves() if 0 not in leaf_shape(f, mj_model))
  some = (n for n in outputs if 0 not in FIELDS[n].shape(extent))
  return Signature(name, tuple(leaves), tuple(inputs.arrays), tuple(some))


def call(
  run: Callable[..., None],
  signature: Signature,
  *,
  m: Model,
  inputs: Inputs,
  further: Sequence[jax.Array] = (),
  autoreset: bool = False,
) -> batching.Arrays:
  """The results of one world, which `vmap` makes one call for all worlds.

  Args:
    run: as for `launch`.
    signature: of the function.
    m: the model.
    inputs: the fields of Data that the signature names.
    further: its further arguments.
    autoreset: whether worlds with a bad state are reset.

  Returns:
    The outputs of the signature, then its results.
  """

  def plan(nworld: int, batched: frozenset[str]) -> Plan:
    return Plan(m.spec, m.opt.statics, inputs.sizes, nworld, batched, autoreset)

  staged = _staged_call(run, signature, extent=Extent(m.spec.mj_model, inputs.sizes))
  return staged(m, inputs.arrays, further=further, plan=plan)


def launch(
  run: Callable[..., None], signature: Signature, *, plan: Plan, arrays: batching.Arrays
) -> batching.Arrays:
  """One FFI call for all worlds: `run(workspace, *arguments, *results)` between the copies."""
  extent = Extent(plan.spec.mj_model, plan.sizes)
  return _staged_call(run, signature, extent=extent).launch(plan, arrays)


def _staged_call(run: Callable[..., None], signature: Signature, *, extent: Extent) -> StagedCall:
  """The call of a function of the state, of further arguments, or both."""
  outputs = [FIELDS[n] for n in signature.outputs] + [r.field for r in signature.results]

  def build(w: Workspace) -> Built:
    given = [_empty(a, w.plan.nworld) for a in signature.arguments]
    made = [_empty(r, w.plan.nworld) for r in signature.results]
    results = [w.field(n) for n in signature.outputs] + made
    return Built(given, results, functools.partial(run, w, *given, *made))

  return StagedCall(
    signature.name,
    leaves=signature.leaves,
    inputs=signature.inputs,
    results=tuple(jax.ShapeDtypeStruct(f.shape(extent), f.dtype) for f in outputs),
    build=build,
    content=(signature.name, signature.outputs, signature.static),
    in_place={n: i for i, n in enumerate(signature.outputs) if n in signature.inputs},
    early=frozenset(i for i, n in enumerate(signature.outputs) if n in EARLY),
    # Functions with results of their own keep what their first run prepares in `memo`. The physics
    # begins with what is copied in, and with flags that it clears itself.
    rehearsal=not signature.results,
    captured=signature.captured,
  )


def _empty(array: Array, nworld: int) -> wp.array:
  return wp.empty((nworld, *array.sizes), dtype=array.dtype)
