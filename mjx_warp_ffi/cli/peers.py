"""mujoco-mjx as a peer to be timed beside this package: the only import of it in the tools."""

from collections.abc import Callable
from typing import Any

import mujoco

from mjx_warp_ffi.cli import common


def make(
  mj_model: mujoco.MjModel, impl: str, *, naconmax: int | None, njmax: int | None
) -> tuple[Callable, Any, Any]:
  """mujoco-mjx's step, Model and Data of one world.

  Args:
    mj_model: the model.
    impl: "warp" or "jax".
    naconmax: contacts of all worlds together, for "warp".
    njmax: constraint rows a world, for "warp".

  Returns:
    The step function, the Model and the Data.

  Raises:
    ToolError: it is not installed, or refuses the model; the text says which.
  """
  try:
    from mujoco import mjx
  except ImportError as error:
    raise common.ToolError("not installed: pip install 'mjx-warp-ffi[peers]'") from error
  try:
    m = mjx.put_model(mj_model, impl=impl)
    if impl == "jax":
      return mjx.step, m, mjx.make_data(m)
    return mjx.step, m, mjx.make_data(mj_model, impl=impl, naconmax=naconmax, njmax=njmax)
  except (NotImplementedError, ValueError, RuntimeError) as error:
    raise common.ToolError(f"refuses: {error}") from error
