"""The leaves of the model and the fields of Data by their names, and how kernels read them."""

from typing import Any

import mujoco_warp as mjw
import warp as wp

# What MuJoCo Warp keeps of a parameter, where that is another function of it.
STORED = {"opt.impratio": "opt.impratio_invsqrt"}


def stored(name: str) -> str:
  """The name of the field in which MuJoCo Warp keeps a parameter."""
  return STORED.get(name, name)


def parameter(m: mjw.Model, name: str) -> wp.array:
  """A field of the model by its dotted name, as MuJoCo Warp stores it."""
  out: Any = m
  for part in stored(name).split("."):
    out = getattr(out, part)
  return out


@wp.func
def of_world(leaf: wp.array2d[Any], world: int, i: int) -> Any:
  """Element i of a world's row."""
  return leaf[world % leaf.shape[0], i]


@wp.func
def of_world(leaf: wp.array[Any], world: int) -> Any:  # noqa: F811 (an overload)
  """The element of a world, of a field that is one number."""
  return leaf[world % leaf.shape[0]]
