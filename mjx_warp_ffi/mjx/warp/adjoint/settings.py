"""What an adjoint may be told besides what it differentiates."""

import dataclasses

from mjx_warp_ffi.mjx.smoothing import ContactSmoothing


@dataclasses.dataclass(frozen=True)
class Settings:
  """The options of an adjoint.

  Attributes:
    polish: whether to take one Newton step from the acceleration that the forward solve gave, for
      an error of that solve is some thirty times larger in the gradient. It costs a recompute of
      the smooth forces, and by default is left out where the forward solve converges, unless forces
      of constraints are outputs; where it may not, or had other rows, one that does comes first.
    smoothing: how contacts are smoothed; by default they are not.
    world_fastest: the layout of the intermediate arrays; by default that which suits the device.
  """

  polish: bool | None = None
  smoothing: ContactSmoothing | None = None
  world_fastest: bool | None = None


DEFAULT = Settings()
