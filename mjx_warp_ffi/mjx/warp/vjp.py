"""The derivative of a staged function: a custom_vjp over the adjoint step.

The residual of a step is its input state and the solved acceleration. The backward call stages
them in, recomputes what the solver started from, and runs the adjoint, all in one graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import warp as wp
from jax.custom_derivatives import SymbolicZero

from mjx_warp_ffi.mjx import types
from mjx_warp_ffi.mjx.types import Data, Model, with_results
from mjx_warp_ffi.mjx.warp import batching, fd, fields, report, reset_vjp
from mjx_warp_ffi.mjx.warp.adjoint import sensor_rules, supported
from mjx_warp_ffi.mjx.warp.adjoint.contact_outputs import FORCE
from mjx_warp_ffi.mjx.warp.adjoint.step import OUTPUTS, RATES, REPORTS, STATE, StepAdjoint
from mjx_warp_ffi.mjx.warp.ffi import (
  FIELDS,
  Inputs,
  Staged,
  check,
  digest,
  inputs_of,
  with_checked_controls,
)
from mjx_warp_ffi.mjx.warp.workspace import Plan, Workspace
from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.program import Program, jax_program

Results = dict[str, jax.Array]

_FORWARD_MODE = (
  "the step has first derivatives in reverse mode only: for forward mode use mjx.step_jvp, for"
  " Jacobians mjx.transition_fd"
)
# Only rendering and the search for pairs read these leaves: the gradient of a step is zero.
_DRAWN = ("mat_", "light_", "cam_fovy", "cam_intrinsic", "geom_rgba", "geom_rbound", "geom_aabb")
_TRACKED = ("cam_pos0", "cam_poscom0", "cam_mat0")  # only poses without a rule depend on them
_ALTERNATIVE = "mjx.put_model(m, gradient='fd') differentiates everything by central differences"


@jax.custom_jvp
def reverse_once(x: jax.Array) -> jax.Array:
  """The identity, which refuses to be differentiated."""
  return x


@reverse_once.defjvp
def _reverse_twice(primals: Any, tangents: Any) -> Any:
  raise NotImplementedError(_FORWARD_MODE)


@dataclasses.dataclass(frozen=True)
class Wanted:
  """What one backward call takes and gives, known when it is traced.

  Attributes:
    name: name of the function.
    integrate: whether the function is a step, or the forward dynamics.
    leaves: model leaves that all worlds may share.
    parameters: model leaves that get a gradient.
    inputs: Data fields that are passed.
    cotangents: outputs that have a cotangent with a rule.
    unruled: outputs that have a cotangent without a rule, known to be zero or not only when run.
  """

  name: str
  integrate: bool
  leaves: tuple[str, ...]
  parameters: tuple[str, ...]
  inputs: tuple[str, ...]
  cotangents: tuple[str, ...]
  unruled: tuple[str, ...]

  @property
  def gradients(self) -> tuple[str, ...]:
    """Names of the gradients that come back."""
    return (*(n for n in STATE if n in self.inputs), *self.parameters)


def differentiable(staged: Staged, *, integrate: bool) -> Callable[[Model, Data], Data]:
  """A staged function with the derivative that `Model.gradient` asks for.

  Args:
    staged: the step or the forward dynamics.
    integrate: whether it is a step.

  Returns:
    A function of a Model and a Data that returns a Data.
  """
  results = differentiable_results(staged, integrate=integrate)

  def call(m: Model, d: Data) -> Data:
    check(m, d)
    with reverse_only():
      return with_results(d, results(m, with_checked_controls(inputs_of(m, d))))

  return call


@contextlib.contextmanager
def reverse_only() -> Iterator[None]:
  """Says what to use instead of forward mode, where JAX refuses it."""
  try:
    yield
  except TypeError as error:
    if "forward-mode" in str(error):
      raise NotImplementedError(_FORWARD_MODE) from error
    raise


def differentiable_results(
  staged: Staged, *, integrate: bool
) -> Callable[[Model, Inputs], Results]:
  """The results by name of a staged function, which is the step or contains the forward dynamics.

  They include `qacc`, from which the backward pass starts.
  """

  @jax.custom_vjp
  def results(m: Model, inputs: Inputs) -> Results:
    return staged.results(m, inputs)

  def forward(m: Any, inputs: Any) -> Any:
    leaves = tuple(f.name for f in fields.model_leaves() if _moves(fields.lookup(m, f.name)))
    moving = tuple(n for n, x in inputs.arrays.items() if _moves(x))
    m, inputs = jax.tree.map(lambda x: x.value, (m, inputs))
    rule = _rule(staged, integrate, m, inputs, (leaves, moving))
    once = jax.tree.map(reverse_once, (m, inputs))
    if integrate and m.autoreset:
      out, reset = reset_vjp.noted(staged, once[0], inputs=once[1])
      inputs = reset_vjp.healthy(m, inputs, reset=reset)
    else:
      out, reset = staged.results(*once), None
    return out, (m, inputs, out["qacc"], reset, rule)

  def backward(residual: Any, cotangents: dict[str, Any]) -> Any:
    m, inputs, qacc, reset, rule = residual
    given = {
      n: ct for n, ct in cotangents.items() if is_float(n) and not isinstance(ct, SymbolicZero)
    }
    dense = len(given) == sum(is_float(n) for n in cotangents)
    given, through = (given, {}) if reset is None else reset_vjp.split(given, reset)
    gradients = rule.gradients(m, inputs, qacc=qacc, cotangents=given, in_loop=dense)
    gradients = reset_vjp.joined(gradients, through)
    nothing = jax.tree.map(lambda _: None, m)
    m_ct = types.replace_leaves(nothing, {n: gradients[n] for n in rule.parameters})
    return m_ct, Inputs({n: gradients.get(n) for n in inputs.arrays}, inputs.sizes)

  results.defvjp(forward, backward, symbolic_zeros=True)
  return results


def is_float(name: str) -> bool:
  """Whether a result can have a cotangent."""
  return name not in FIELDS or np.issubdtype(FIELDS[name].dtype, np.inexact)


def _moves(primal: Any) -> bool:
  """Whether a derivative along this array is asked for."""
  return primal.perturbed and np.issubdtype(primal.value.dtype, np.inexact)


def _rule(
  staged: Staged,
  integrate: bool,
  m: Model,
  inputs: Inputs,
  moving: tuple[tuple[str, ...], tuple[str, ...]],
) -> Any:
  """The rule of a Model for a derivative along some leaves and some inputs."""
  if m.gradient == "none":
    raise NotImplementedError(
      f"{staged.name} was differentiated, but this Model was put with gradient='none': put it with"
      " gradient='analytic' or 'fd'"
    )
  leaves, arrays = moving
  unread = _DRAWN if m.gradient == "fd" else (*_DRAWN, *_TRACKED)
  drawn = tuple(n for n in leaves if fields.lookup(m, n).size and not n.startswith(unread))
  if m.gradient == "fd":
    return Differences(staged, drawn, arrays)
  return Analytic(_wanted(staged.name, integrate, m, inputs, drawn))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Differences:
  """Central differences of the whole function.

  Attributes:
    staged: the function.
    parameters: model leaves that get a gradient.
    inputs: Data fields that get one.
  """

  staged: Staged
  parameters: tuple[str, ...]
  inputs: tuple[str, ...]

  def gradients(
    self, m: Model, inputs: Inputs, *, qacc: jax.Array, cotangents: Results, in_loop: bool
  ) -> Results:
    """The gradients by name."""
    m, inputs = jax.tree.map(reverse_once, (m, inputs))
    return fd.fd_vjp(
      lambda m, arrays: self.staged.results(m, Inputs(arrays, inputs.sizes)),
      m,
      # from its solution the solver goes nowhere, and adds no noise to the differences
      inputs=inputs.arrays | {"qacc_warmstart": reverse_once(qacc)},
      cotangents=jax.tree.map(reverse_once, cotangents),
      wanted=(*self.parameters, *self.inputs),
    )


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Analytic:
  """The adjoint step.

  Attributes:
    wanted: what the backward call takes and gives.
  """

  wanted: Wanted

  @property
  def parameters(self) -> tuple[str, ...]:
    """Model leaves that get a gradient."""
    return self.wanted.parameters

  def gradients(
    self, m: Model, inputs: Inputs, *, qacc: jax.Array, cotangents: Results, in_loop: bool
  ) -> Results:
    """The gradients by name.

    Raises:
      NotImplementedError: outside a loop, for the cotangent of a result without a rule.
    """
    given = dict(cotangents)
    if "qacc_warmstart" in given:  # which is the acceleration of this step
      warmstart = given.pop("qacc_warmstart")
      given["qacc"] = given["qacc"] + warmstart if "qacc" in given else warmstart
    if not in_loop:
      check_outputs(given, integrate=self.wanted.integrate)
    rules = _rules(self.wanted.integrate)
    unruled = tuple(n for n in given if n not in rules)
    ruled = tuple(n for n in rules if n in given)
    wanted = dataclasses.replace(self.wanted, cotangents=ruled, unruled=unruled)
    _check_rules(Plan(m.spec, m.opt.statics, inputs.sizes, 1, frozenset()), wanted)
    # the carry of a loop has a cotangent for everything: that it is zero shows only at run time
    nonzero = [jnp.any(given[n] != 0) for n in unruled]
    silent = sum(sensor_rules.unruled(m.spec.mj_model, m.opt.integrator).values(), [])
    if "sensordata" in ruled and silent:  # some sensors have a rule, and these have not
      unruled += ("sensordata",)
      nonzero.append(jnp.any(given["sensordata"][np.array(silent)] != 0))
      wanted = dataclasses.replace(wanted, unruled=unruled)
    found = [jnp.stack(nonzero).astype(jnp.int32)] if unruled else []
    gradients = _gradients(wanted, m, inputs, (qacc, *(given[n] for n in ruled), *found))
    for bad in found:
      poisoned = jnp.any(bad != 0)
      gradients = {n: jnp.where(poisoned, jnp.nan, x) for n, x in gradients.items()}
    if "time" in given:
      gradients["time"] = given["time"] + gradients["time"]
    return gradients


def _rules(integrate: bool) -> tuple[str, ...]:
  """The results that can have a cotangent."""
  return (*(OUTPUTS if integrate else RATES), *REPORTS, FORCE)


def check_outputs(names: Iterable[str], *, integrate: bool = True) -> None:
  """Raises NotImplementedError if a result that has a cotangent has no analytic rule."""
  rules = _rules(integrate)
  unruled = [n for n in names if n not in (*rules, "qacc_warmstart")]
  if unruled:
    raise NotImplementedError(
      f"no analytic gradient from {', '.join(unruled)}; these have one: {', '.join(rules[:-1])}."
      f" {_ALTERNATIVE}"
    )


def _wanted(
  name: str, integrate: bool, m: Model, inputs: Inputs, parameters: tuple[str, ...]
) -> Wanted:
  """Checks at trace time that a derivative exists."""
  unruled = sorted(set(parameters) - supported.PARAMETERS)
  if unruled:
    ruled = sorted(supported.PARAMETERS)
    raise NotImplementedError(
      f"no analytic gradient with respect to {', '.join(unruled)}; these leaves of Model have one:"
      f" {', '.join(ruled)}. Differentiate with respect to those alone, or: {_ALTERNATIVE}"
    )
  leaves = (f.name for f in fields.model_leaves() if fields.lookup(m, f.name).size)
  wanted = Wanted(
    name=name,
    integrate=integrate,
    leaves=tuple(n for n in leaves if n not in parameters),
    parameters=parameters,
    inputs=tuple(inputs.arrays),
    cotangents=(),
    unruled=(),
  )
  _check_rules(Plan(m.spec, m.opt.statics, inputs.sizes, 1, frozenset()), wanted)
  return wanted


@functools.lru_cache(maxsize=64)
def _check_rules(plan: Plan, wanted: Wanted) -> None:
  """Builds the adjoint on the CPU, which refuses what it has no rule for, by name."""
  with runtime.quiet(), wp.ScopedDevice("cpu"):
    w = Workspace(plan)
    _adjoint(w, wanted)


def _adjoint(w: Workspace, wanted: Wanted) -> StepAdjoint:
  return StepAdjoint(
    w.plan.spec.mj_model,
    w.m,
    d=w.d,
    wrt=wanted.parameters,
    outputs=tuple(n for n in wanted.cotangents if n in REPORTS or n == FORCE),
    integrate=wanted.integrate,
  )


def _cotangent(w: Workspace, adjoint: StepAdjoint, *, name: str) -> wp.array:
  """The array for a cotangent of all worlds."""
  array = adjoint.cotangents[name]
  if not name.startswith("contact"):
    return array
  # the adjoint has contacts in MJWarp's pool
  words = array.capacity // 4 // max(1, array.shape[0])
  by_world = wp.zeros((w.d.nworld, w.contacts.nconmax, words), dtype=float)
  adjoint.stage.after_recompute.insert(0, lambda: w.contacts.to_pool(by_world, array))
  return by_world


def _gradients(
  wanted: Wanted, m: Model, inputs: Inputs, cotangents: Sequence[jax.Array]
) -> Results:
  """One backward call.

  `cotangents` are the solved acceleration, the cotangents, and where there are results without a
  rule, which of theirs are not zero.
  """
  shared = [fields.lookup(m, n) for n in wanted.leaves]
  own = [fields.lookup(m, n) for n in wanted.parameters]
  own += [inputs.arrays[n] for n in wanted.inputs]
  args = [reverse_once(x) for x in (*shared, *(x[None] for x in (*own, *cotangents)))]

  def over_worlds(rows: frozenset[int], arrays: batching.Arrays) -> batching.Arrays:
    batched = frozenset(wanted.leaves[i] for i in rows) | frozenset(wanted.parameters)
    nworld = arrays[len(wanted.leaves)].shape[0]
    plan = Plan(m.spec, m.opt.statics, inputs.sizes, nworld, batched)
    return _launch(wanted, plan, arrays)

  results = batching.batched(over_worlds, len(shared))(*args)
  return {n: x[0] for n, x in zip(wanted.gradients, results, strict=True)}


def _launch(wanted: Wanted, plan: Plan, arrays: batching.Arrays) -> batching.Arrays:
  """One FFI call for all worlds."""

  def make(device: wp.Device) -> Program:
    with wp.ScopedDevice(device):
      w = Workspace(plan)
      adjoint = _adjoint(w, wanted)
      inputs = [w.leaf(n) for n in (*wanted.leaves, *wanted.parameters)]
      inputs += [w.field(n) for n in wanted.inputs] + [w.d.qacc]
      inputs += [_cotangent(w, adjoint, name=n) for n in wanted.cotangents]
    outputs = [adjoint.gradients[n] for n in wanted.gradients]
    with wp.ScopedDevice(device):
      notes = report.Notes(wanted.unruled, plan.nworld) if wanted.unruled else None
    inputs += [notes.nonzero] if notes else []

    def body() -> None:
      w.begin()
      adjoint.launch()
      if notes:
        notes.launch()

    return Program(tuple(inputs), tuple(outputs), body, keep=(w, adjoint, notes))

  own = arrays[len(wanted.leaves) :][: len(wanted.parameters) + len(wanted.inputs)]
  arguments = dict(zip((*wanted.parameters, *wanted.inputs), own, strict=True))
  results = [jax.ShapeDtypeStruct(arguments[n].shape, np.float32) for n in wanted.gradients]
  key = digest(dataclasses.astuple(wanted), plan)
  call = jax_program(f"{wanted.name}_adjoint", make, key=key, result_types=results)
  return tuple(call(*arrays))
