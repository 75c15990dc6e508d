"""What a workspace is made for, and the identity of a program that works on one."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import mujoco

from mjx_warp_ffi.mjx.data.options import with_options
from mjx_warp_ffi.mjx.data.spec import Sizes, Spec


@dataclasses.dataclass(frozen=True)
class Plan:
  """Everything that decides which buffers a workspace has, and which kernels run on them.

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


def digest(content: tuple[Any, ...], plan: Plan) -> str:
  """A name for a program, the same in every process, by what it does and on which workspace."""
  workspace = (
    plan.spec.digest,
    tuple(plan.statics),
    tuple(plan.sizes),
    plan.nworld,
    sorted(plan.batched),
    plan.autoreset,
  )
  return hashlib.sha256(repr((content, workspace)).encode()).hexdigest()[:32]
