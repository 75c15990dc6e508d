"""The address by which pickles name these classes, whatever file holds them.

In pickles from before it was in `data/`, `Spec` is what a Model holds: an `AcceptedSpec` today.
"""

from mjx_warp_ffi.mjx.data.spec import Sizes as Sizes
from mjx_warp_ffi.mjx.warp.models.acceptance import AcceptedSpec as AcceptedSpec
from mjx_warp_ffi.mjx.warp.models.acceptance import AcceptedSpec as Spec

__all__ = ("AcceptedSpec", "Sizes", "Spec")
