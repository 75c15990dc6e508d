"""Options that are compiled into a step: those of a model, and those that replace them."""

from __future__ import annotations

import copy
from typing import Any

import mujoco

from mjx_warp_ffi.mjx.data import fields


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
