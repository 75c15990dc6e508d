"""The step and the forward dynamics."""

from __future__ import annotations

from mjx_warp_ffi.mjx.types import Data, Model
from mjx_warp_ffi.mjx.warp import forward as backend
from mjx_warp_ffi.mjx.warp.vjp import differentiable

_step = differentiable(backend.step, integrate=True)
_forward = differentiable(backend.forward, integrate=False)


def step(m: Model, d: Data) -> Data:
  """Advances one world by one time step, as mj_step does; batch it with `jax.vmap`.

  Args:
    m: the model.
    d: state, inputs and capacities.

  Returns:
    The Data after the step. Positions and other results are those of the state before the
    integration, as in MuJoCo.

  Raises:
    ValueError: for a wrong shape or dtype, or a Data of another model.
    TypeError: for other types.
  """
  return _step(m, d)


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
