"""Several steps in one call, and their derivative.

Without a derivative the steps are one graph. With one they are a loop of differentiable steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero

from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope
from mjx_warp_ffi.mjx.warp.ffi import Inputs, Staged
from mjx_warp_ffi.mjx.warp.functions.forward import state_outputs
from mjx_warp_ffi.mjx.warp.gradient import analytic, vjp
from mjx_warp_ffi.third_party.warp.signature.arguments import varying_alike

Results = dict[str, jax.Array]
Step = Callable[[Model, Inputs], Results]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Moving:
  """Which leaves of a Model and its inputs are differentiated, and how.

  Attributes:
    gradient: how, as `Model.gradient` says.
    smoothed: whether contacts are smoothed.
    tree: structure of the arguments.
    mask: for each leaf, whether it is differentiated.
  """

  gradient: str
  smoothed: bool
  tree: Any
  mask: tuple[bool, ...]

  def joined(self, moving: list[Any], still: list[Any]) -> Any:
    """The arguments, or their cotangents, from leaves that are differentiated and the others."""
    leaves = iter(moving), iter(still)
    return self.tree.unflatten([next(leaves[0 if moves else 1]) for moves in self.mask])


def differentiable_steps(staged: Staged) -> Callable[[Model, Data], Data]:
  """As `vjp.differentiable`, for a function that runs `staged.times` steps in a row."""
  if staged.times == 1:
    return vjp.differentiable(staged, Scope.STEP)
  last = dataclasses.replace(staged, times=1)
  between = dataclasses.replace(last, outputs=state_outputs)
  one, last = (vjp.differentiable_results(s, Scope.STEP) for s in (between, last))
  return vjp.on_data(_several(staged, one=one, last=last))


def _several(staged: Staged, *, one: Step, last: Step) -> Step:
  """The results of several steps in a row.

  Without a derivative the steps are one call. With one each step is a call, and keeps what its own
  backward pass reads.

  Args:
    staged: all of the steps.
    one: a step but the last, with its derivative; only the state is needed of it.
    last: the last step, with its derivative.

  Returns:
    A function of a Model and the inputs that returns the results of the last step.
  """

  @jax.custom_vjp
  def results(m: Model, inputs: Inputs) -> Results:
    return staged.results(m, inputs)

  def forward(m: Any, inputs: Any) -> Any:
    primals, tree = jax.tree.flatten((m, inputs), is_leaf=lambda x: hasattr(x, "perturbed"))
    inexact = (np.issubdtype(x.value.dtype, np.inexact) for x in primals)
    mask = tuple(x.perturbed and y for x, y in zip(primals, inexact, strict=True))
    moving = _Moving(m.gradient, m.contact_smoothing is not None, tree, mask)
    values = [x.value for x in primals]
    moved = [x for x, moves in zip(values, moving.mask, strict=True) if moves]
    still = [x for x, moves in zip(values, moving.mask, strict=True) if not moves]

    def in_turn(*moved: jax.Array) -> Results:
      m, inputs = moving.joined(list(moved), still)
      return last(m, _advanced(one, m, inputs=inputs, count=staged.times - 1))

    out, pull = jax.vjp(in_turn, *moved)
    return out, (pull, moving)

  def backward(residual: Any, cotangents: Any) -> Any:
    pull, moving = residual
    inexact = [n for n in cotangents if vjp.is_float(n)]
    given = [n for n in inexact if not isinstance(cotangents[n], SymbolicZero)]
    if moving.gradient == "analytic" and len(given) < len(inexact):
      # in a loop all have a cotangent, most of them zero
      named = (n for n in given if n != "qacc_warmstart")
      analytic.check_outputs(named, smoothed=moving.smoothed)
    found = pull(varying_alike({n: _dense(ct) for n, ct in cotangents.items()}))
    return moving.joined(list(found), [None] * len(moving.mask))

  results.defvjp(forward, backward, symbolic_zeros=True)
  return lambda m, inputs: results(*varying_alike((m, inputs)))


def _advanced(one: Step, m: Model, *, inputs: Inputs, count: int) -> Inputs:
  """The inputs after a number of steps; a loop carries only those that a step changes."""
  changed = jax.eval_shape(one, m, inputs)
  still = {n: x for n, x in inputs.arrays.items() if n not in changed}

  def advance(state: Results, _: None) -> tuple[Results, None]:
    out = one(m, Inputs(still | state, inputs.sizes))
    return {n: out[n] for n in state}, None

  state = {n: x for n, x in inputs.arrays.items() if n in changed}
  state, _ = jax.lax.scan(advance, state, length=count)
  return Inputs(still | state, inputs.sizes)


def _dense(cotangent: Any) -> Any:
  """A cotangent as an array."""
  if isinstance(cotangent, SymbolicZero):
    return np.zeros(cotangent.aval.shape, cotangent.aval.dtype)
  return cotangent
