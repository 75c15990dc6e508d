"""Warp's structs and kernels, as the type checker sees them."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import warp as wp

_Class = TypeVar("_Class", bound=type)

# `wp.spatial_vector` in the annotation of a struct: the type checker takes it for a function.
SpatialVector: Any = wp.spatial_vector

# What `@wp.kernel` makes of a function: for the type checker it stays one.
Kernel = Callable[..., None]


def struct(cls: _Class) -> _Class:
  """Makes a struct of Warp's from a class whose annotations are its fields.

  It is `wp.struct`, whose result no annotation could name: for the type checker it stays the class.
  """
  return cast(_Class, wp.struct(cls))
