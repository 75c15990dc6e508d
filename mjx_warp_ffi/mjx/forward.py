"""The step and the forward dynamics."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope
from mjx_warp_ffi.mjx.warp.functions import forward as backend
from mjx_warp_ffi.mjx.warp.functions.substeps import differentiable_steps
from mjx_warp_ffi.mjx.warp.gradient.vjp import differentiable

_forward = differentiable(backend.forward, Scope.FORWARD)


def step(m: Model, d: Data, *, substeps: int = 1) -> Data:
  """Advances one world by one time step, as mj_step does; batch it with `jax.vmap`.

  Several steps under the same controls are one call, which copies arguments and results once. They
  are all recorded in one graph: for hundreds of steps, put a loop around it.

  Args:
    m: the model.
    d: state, inputs and capacities.
    substeps: number of time steps.

  Returns:
    The Data after the step, or after the last one. Positions and other results are those of the
    state before the integration, as in MuJoCo.

  Raises:
    ValueError: for a wrong shape or dtype, a Data of another model, or less than one substep.
    TypeError: for other types.
  """
  return _steps(_checked(substeps), None)(m, d)


def advance(m: Model, d: Data, *, substeps: int, results: tuple[str, ...]) -> Data:
  """As `step`, but of the results only those of these names are brought back with the state."""
  return _steps(_checked(substeps), results)(m, d)


def _checked(substeps: int) -> int:
  if isinstance(substeps, bool) or not hasattr(substeps, "__index__") or substeps < 1:
    raise ValueError(f"substeps must be an integer of at least 1, got {substeps!r}")
  return int(substeps)


@functools.lru_cache(maxsize=256)
def _steps(substeps: int, results: tuple[str, ...] | None) -> Callable[[Model, Data], Data]:
  staged = dataclasses.replace(backend.step, times=substeps)
  if results is not None:
    outputs = functools.partial(backend.state_outputs, also=results)
    staged = dataclasses.replace(staged, outputs=outputs)
  return differentiable_steps(staged)


def forward(m: Model, d: Data) -> Data:
  """Computes all results of one world at its state, without advancing it, as mj_forward does.

  Args:
    m: the model.
    d: state, inputs and capacities.

  Returns:
    The Data with its results filled.

  Raises:
    ValueError: as `step`.
    TypeError: as `step`.
  """
  return _forward(m, d)
