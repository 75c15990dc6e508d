"""What mujoco_warp says of a model: support, its own options, default capacities."""

from __future__ import annotations

from typing import Any

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import io as mjw_io

from mjx_warp_ffi.mjx.warp import fields


def check_and_options(mj_model: mujoco.MjModel) -> dict[str, Any]:
  """The static options of a model as mujoco_warp sets them, once it has accepted the model.

  Raises:
    NotImplementedError: if mujoco_warp lacks a feature of the model; the text names it.
  """
  with wp.ScopedDevice("cpu"):
    model = mjw.put_model(mj_model)
  options = {}
  for name in fields.option_statics():
    value = getattr(model.opt, name)
    options[name] = bool(value) if isinstance(value, bool) else int(value)
  options["warn_overflow"] = 0  # Data.overflow says it; nothing is printed
  return options


def default_nconmax(mj_model: mujoco.MjModel, mj_data: mujoco.MjData | None = None) -> int:
  """Contacts of one world that suffice for most models of this kind."""
  return mjw_io._default_nconmax(mj_model, mj_data)


def default_njmax(mj_model: mujoco.MjModel, mj_data: mujoco.MjData | None = None) -> int:
  """Constraint rows of one world that suffice for most models of this kind."""
  return mjw_io._default_njmax(mj_model, mj_data)


def is_sparse(mj_model: mujoco.MjModel) -> bool:
  """Whether mujoco_warp keeps the constraint Jacobian of a model sparse."""
  return mjw_io.is_sparse(mj_model)
