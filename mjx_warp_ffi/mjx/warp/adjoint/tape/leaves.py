"""How a kernel reads a field of the model, which has one row for all worlds, or one for each."""

from typing import Any

import warp as wp


@wp.func
def of_world(leaf: wp.array2d[Any], world: int, i: int) -> Any:
  """Element i of a world's row."""
  return leaf[world % leaf.shape[0], i]


@wp.func
def of_world(leaf: wp.array[Any], world: int) -> Any:  # noqa: F811 (an overload)
  """The element of a world, of a field that is one number."""
  return leaf[world % leaf.shape[0]]
