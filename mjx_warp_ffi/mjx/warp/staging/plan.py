"""What a workspace is made for: the key under which it is kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import mujoco

from mjx_warp_ffi.mjx.data.options import with_options
from mjx_warp_ffi.mjx.data.spec import Sizes, Spec


@dataclasses.dataclass(frozen=True)
class Plan:
  """Everything that decides the buffers and the code of a workspace.

  Attributes:
    spec: static part of the model.
    statics: static options.
    sizes: capacities.
    nworld: number of worlds.
    batched: names of the model leaves that have a row for each world.
    autoreset: whether worlds with a bad state are reset.
  """

  spec: Spec
  statics: Any
  sizes: Sizes
  nworld: int
  batched: frozenset[str]
  autoreset: bool = False

  def mj_model(self) -> mujoco.MjModel:
    """The model with the options of the plan."""
    return with_options(self.spec.mj_model, self.statics)
