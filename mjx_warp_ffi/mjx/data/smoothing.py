"""How the backward pass may smooth contacts, so that gradients see them before bodies touch."""

from __future__ import annotations

import dataclasses
import math

from mjx_warp_ffi.mjx.data.pickles import Versioned, public


@public
@dataclasses.dataclass(frozen=True)
class ContactSmoothing(Versioned):
  """Contacts that act before bodies touch, and softer friction, in the backward pass alone.

  A step is the same with and without. Its gradient is that of a step in which a contact fades in
  over the distance `width` and pushes bodies apart there, and in which friction is softer; it is
  taken at the states that the step without goes through. The page "Smoothed contacts" of the
  documentation says how far such gradients are from the exact ones, and when they help.

  Attributes:
    width: the distance over which a contact fades in, in the unit of lengths.
    friction: the stiffness of friction, as a share of what it is: `opt.impratio` is multiplied by
      it. At 1 friction is as it is. In a pyramidal cone the normal force softens with it.

  Raises:
    ValueError: if `width` is not a positive number, or `friction` not one above 0 and up to 1.
  """

  width: float
  friction: float = 1.0

  def __post_init__(self):
    """Checks the values."""
    for name in ("width", "friction"):
      object.__setattr__(self, name, float(getattr(self, name)))
    if not (self.width > 0 and math.isfinite(self.width)):
      raise ValueError(f"width must be a positive length, got {self.width!r}")
    if not 0 < self.friction <= 1:
      raise ValueError(f"friction must be above 0 and at most 1, got {self.friction!r}")
