"""Which of the passive forces a model has."""

import mujoco_warp as mjw
from mujoco_warp._src.types import DisableBit


def springs_act(m: mjw.Model) -> bool:
  """Whether forces of springs are computed."""
  return not m.opt.disableflags & DisableBit.SPRING


def dampers_act(m: mjw.Model) -> bool:
  """Whether forces of dampers are computed."""
  return not m.opt.disableflags & DisableBit.DAMPER


def passive_act(m: mjw.Model) -> bool:
  """Whether any passive force is computed: without springs and dampers there is none at all."""
  return springs_act(m) or dampers_act(m)
