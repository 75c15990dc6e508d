"""The derivative of a staged function: a custom_vjp, whose rule `Model.gradient` chooses.

The residual of a step is its input state and the solved acceleration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from mjx_warp_ffi.mjx.data import fields, types
from mjx_warp_ffi.mjx.data.types import Data, Model, with_results
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope
from mjx_warp_ffi.mjx.warp.ffi import (
  FIELDS,
  Inputs,
  Staged,
  check,
  inputs_of,
  with_checked_controls,
)
from mjx_warp_ffi.mjx.warp.gradient import analytic, differences, reset_vjp
from mjx_warp_ffi.mjx.warp.gradient.reverse_only import reverse_once, reverse_only
from mjx_warp_ffi.third_party.warp.signature.arguments import varying_alike

Results = dict[str, jax.Array]

# Only rendering and the broadphase read these leaves: the gradient of a step is zero.
_WITHOUT_GRADIENT = ("mat_", "geom_rgba", "geom_rbound", "geom_aabb")
_WITHOUT_GRADIENT += (
  "light_attenuation",
  "light_cutoff",
  "light_exponent",
  "light_ambient",
  "light_diffuse",
)
_WITHOUT_GRADIENT += ("light_specular",)


def differentiable(
  staged: Staged, scope: Scope, *, rows: bool = True, reads: tuple[str, ...] = ()
) -> Callable[[Model, Data], Data]:
  """A staged function with the derivative that `Model.gradient` asks for.

  Args:
    staged: the function.
    scope: where in a step its results lie.
    rows: whether it deals with contacts and constraint rows.
    reads: fields of a Data that it reads beside the state and the inputs.

  Returns:
    A function of a Model and a Data that returns a Data.
  """
  return on_data(differentiable_results(staged, scope), rows=rows, reads=reads)


def on_data(
  results: Callable[[Model, Inputs], Results], *, rows: bool = True, reads: tuple[str, ...] = ()
) -> Callable[[Model, Data], Data]:
  """The function of a Model and a Data that puts the results of checked inputs into the Data.

  Args:
    results: differentiable results by name, of a Model and inputs.
    rows: as for `differentiable`.
    reads: as for `differentiable`.
  """

  def call(m: Model, d: Data) -> Data:
    check(m, d)
    inputs = with_checked_controls(m, inputs_of(m, d))
    more = {n: jnp.asarray(getattr(d, n)) for n in reads if getattr(d, n).size}
    inputs = dataclasses.replace(inputs, arrays=inputs.arrays | more)
    if not rows:
      inputs = dataclasses.replace(inputs, sizes=inputs.sizes.without_rows())
    with reverse_only():
      return with_results(d, results(m, inputs))

  return call


def differentiable_results(staged: Staged, scope: Scope) -> Callable[[Model, Inputs], Results]:
  """The results by name of a staged function that computes a part of a step, with a derivative.

  If that part has an acceleration, it is among the results: the backward pass starts from it.
  """
  integrate = scope is Scope.STEP

  @jax.custom_vjp
  def results(m: Model, inputs: Inputs) -> Results:
    return staged.results(m, inputs)

  def forward(m: Any, inputs: Any) -> Any:
    leaves = tuple(f.name for f in fields.model_leaves() if _moves(fields.lookup(m, f.name)))
    moving = tuple(n for n, x in inputs.arrays.items() if _moves(x))
    m, inputs = jax.tree.map(lambda x: x.value, (m, inputs))
    rule = _rule(staged, scope, m, inputs, (leaves, moving))
    once = jax.tree.map(reverse_once, (m, inputs))
    if integrate and m.autoreset:
      out, reset = reset_vjp.with_reset(staged, once[0], inputs=once[1])
      inputs = reset_vjp.healthy(m, inputs, reset=reset)
    else:
      out, reset = staged.results(*once), None
    # a model without degrees of freedom has none
    qacc = out.get(scope.acceleration) if scope.acceleration else inputs.arrays.get("qacc")
    return out, (m, inputs, qacc, reset, rule)

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
  return lambda m, inputs: results(*varying_alike((m, inputs)))


def is_float(name: str) -> bool:
  """Whether a result can have a cotangent."""
  return name not in FIELDS or np.issubdtype(FIELDS[name].dtype, np.inexact)


def _moves(primal: Any) -> bool:
  """Whether a derivative along this array is asked for."""
  return primal.perturbed and np.issubdtype(primal.value.dtype, np.inexact)


def _rule(
  staged: Staged,
  scope: Scope,
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
  if m.contact_smoothing is not None and m.gradient != "analytic":
    raise NotImplementedError(
      f"contact_smoothing belongs to gradient='analytic', this Model has {m.gradient!r}"
    )
  leaves, arrays = moving
  read = tuple(
    n for n in leaves if fields.lookup(m, n).size and not n.startswith(_WITHOUT_GRADIENT)
  )
  if m.gradient == "fd":
    return Differences(staged, read, arrays)
  if not m.nv:
    raise NotImplementedError(
      "no analytic gradient for: a model without degrees of freedom. Differences have one:"
      " gradient='fd'"
    )
  return analytic.rule_of(staged.name, m, inputs=inputs, parameters=read, scope=scope)


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
    self, m: Model, inputs: Inputs, *, qacc: jax.Array | None, cotangents: Results, in_loop: bool
  ) -> Results:
    """The gradients by name."""
    m, inputs = jax.tree.map(reverse_once, (m, inputs))
    # from its solution the solver goes nowhere, and adds no noise to the differences
    solved = {} if qacc is None else {"qacc_warmstart": reverse_once(qacc)}
    return differences.fd_vjp(
      lambda m, arrays: self.staged.results(m, Inputs(arrays, inputs.sizes)),
      m,
      inputs=inputs.arrays | solved,
      cotangents=jax.tree.map(reverse_once, cotangents),
      wanted=(*self.parameters, *self.inputs),
    )
