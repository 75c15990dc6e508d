"""Options that are compiled into a step: those of a model, and those that replace them."""

from __future__ import annotations

import copy
import functools
from typing import Any

import mujoco
import mujoco_warp as mjw

from mjx_warp_ffi.mjx.spec import Spec
from mjx_warp_ffi.mjx.warp import fields
from mjx_warp_ffi.third_party.warp import guard


def accepted(mj_model: mujoco.MjModel) -> mjw.Model:
  """The model as mujoco_warp has it.

  Raises:
    NotImplementedError: if mujoco_warp lacks a feature of the model; the text names it.
    ValueError: where another setting of the model helps.
  """
  with guard.tracing():
    return mjw.put_model(mj_model)


def with_options(mj_model: mujoco.MjModel, statics: Any) -> mujoco.MjModel:
  """A copy of a model that has these static options.

  More depends on them than mujoco_warp's options: which pairs of geoms may touch, and which buffers
  there are.
  """
  mj_model = copy.copy(mj_model)
  for name in fields.option_statics():
    if hasattr(mj_model.opt, name):
      setattr(mj_model.opt, name, getattr(statics, name))
  return mj_model


@functools.lru_cache(maxsize=64)
def check(spec: Spec, statics: Any) -> None:
  """Raises as `accepted` does if mujoco_warp cannot step a model with other static options."""
  accepted(with_options(spec.mj_model, statics))
