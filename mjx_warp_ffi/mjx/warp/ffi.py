"""From a MuJoCo Warp function to a function of a JAX Model and Data.

`Staged(mjw.step, ...)` is all that it takes to bring one more function of mujoco_warp to JAX: its
inputs are staged into a workspace, the function is captured in a graph once and replayed, its
results are staged out. `computed.Computed` does it for a function with further arguments, whose
results are no fields of Data.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
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
from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.data.types import Data, Model, leaf_shape, with_results
from mjx_warp_ffi.mjx.data.warp_enums import DisableBit, GainType, IntegratorType
from mjx_warp_ffi.mjx.warp.staging import batching
from mjx_warp_ffi.mjx.warp.staging.packing import Packing
from mjx_warp_ffi.mjx.warp.staging.plan import Plan
from mjx_warp_ffi.mjx.warp.staging.workspace import EARLY, Workspace
from mjx_warp_ffi.third_party.warp.launchers.staged import Early, GraphMode
from mjx_warp_ffi.third_party.warp.program import Program, jax_program

Function = Callable[[mjw.Model, mjw.Data], None]

_IMPLICIT = (IntegratorType.IMPLICIT, IntegratorType.IMPLICITFAST)

_INT = np.dtype(np.int32)
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
  """The inputs of a step, those that have elements."""
  extent = Extent(m.spec.mj_model, d.sizes)
  names = (n for n in (*fields.STATE, *fields.ACCUMULATED) if 0 not in FIELDS[n].shape(extent))
  return Inputs({n: jnp.asarray(getattr(d, n)) for n in names}, d.sizes)


_BADCTRL = np.int32(1 << int(mujoco.mjtWarning.mjWARN_BADCTRL))


def with_checked_controls(m: Model, inputs: Inputs) -> Inputs:
  """Zero for all controls of a world where one is bad, and the bit for it, as C MuJoCo does.

  mujoco_warp would clamp NaN to the lower limit, and nobody would notice. The controls that it
  forgets to clamp are clamped here.
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
  """The controls within their limits where an implicit step of mujoco_warp reads them unclamped.

  It does so for the derivative of a force by the velocity, where a control multiplies a gain.
  """
  mjm, statics = m.spec.mj_model, m.opt.statics
  if statics.integrator not in _IMPLICIT or statics.disableflags & DisableBit.CLAMPCTRL:
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
  """Sizes by name: of the model, or of a Data."""

  def __init__(self, mj_model: mujoco.MjModel, sizes: Sizes):
    self._mj_model = mj_model
    self.nconmax = sizes.nconmax
    self.njmax = sizes.njmax

  def __getattr__(self, name: str) -> int:
    return getattr(self._mj_model, name)

  def bound(self, array: Array, shape: tuple[int, ...]) -> Array:
    """The array with the dimensions of an actual shape, which defines unknown ones.

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
    """The array with known dimensions."""
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
  count = len(signature.leaves)
  args = [fields.lookup(m, leaf) for leaf in signature.leaves]
  args += [x[None] for x in (*(inputs.arrays[n] for n in signature.inputs), *further)]

  def over_worlds(rows: frozenset[int], arrays: batching.Arrays) -> batching.Arrays:
    batched = frozenset(signature.leaves[i] for i in rows)
    nworld = arrays[count].shape[0]
    plan = Plan(m.spec, m.opt.statics, inputs.sizes, nworld, batched, autoreset)
    return launch(run, signature, plan=plan, arrays=arrays)

  return tuple(x[0] for x in batching.batched(over_worlds, count)(*args))


def launch(
  run: Callable[..., None], signature: Signature, *, plan: Plan, arrays: batching.Arrays
) -> batching.Arrays:
  """One FFI call for all worlds: `run(workspace, *arguments, *results)` between the copies."""
  extent = Extent(plan.spec.mj_model, plan.sizes)
  outputs = [FIELDS[n] for n in signature.outputs] + [r.field for r in signature.results]
  results = [jax.ShapeDtypeStruct((plan.nworld, *f.shape(extent)), f.dtype) for f in outputs]
  packing = Packing(signature.leaves, plan.batched)
  aliases = {
    len(packing) + i: signature.outputs.index(n)
    for i, n in enumerate(signature.inputs)
    if n in signature.outputs
  }

  def make(device: wp.Device) -> Program:
    early = Early(i for i, n in enumerate(signature.outputs) if n in EARLY)
    with wp.ScopedDevice(device):
      w = Workspace(plan, hand_out=early.hand_out)
      extra = [_empty(a, plan.nworld) for a in (*signature.arguments, *signature.results)]
    given, made = extra[: len(signature.arguments)], extra[len(signature.arguments) :]
    inputs = packing.places([w.leaf(n) for n in signature.leaves])
    inputs += [w.field(n) for n in signature.inputs]
    outputs = [w.field(n) for n in signature.outputs]
    body = functools.partial(run, w, *extra)
    places = (*inputs, *given), (*outputs, *made)
    # Functions with results of their own keep what their first run prepares in `memo`. The physics
    # begins with what is copied in, and with flags that it clears itself.
    physics = not signature.results
    return Program(*places, body, early=early, rehearsal=physics, keep=(w, extra))

  program = jax_program(
    signature.name,
    make,
    key=digest((signature.name, signature.outputs, signature.static), plan),
    result_types=results,
    input_output_aliases=aliases,
    graph_mode=GraphMode.WARP_STAGED if signature.captured else GraphMode.NONE,
  )
  leaves, others = arrays[: len(signature.leaves)], arrays[len(signature.leaves) :]
  return tuple(program(*packing.arguments(leaves), *others))


def _empty(array: Array, nworld: int) -> wp.array:
  return wp.empty((nworld, *array.sizes), dtype=array.dtype)


def digest(content: tuple[Any, ...], plan: Plan) -> str:
  """Identifies a program, in any process: what it does, and on which workspace."""
  workspace = (
    plan.spec.digest,
    tuple(plan.statics),
    tuple(plan.sizes),
    plan.nworld,
    sorted(plan.batched),
    plan.autoreset,
  )
  return hashlib.sha256(repr((content, workspace)).encode()).hexdigest()[:32]
