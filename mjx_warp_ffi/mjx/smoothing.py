"""The address by which pickles from before it was in `data/` name this class."""

from mjx_warp_ffi.mjx.data.smoothing import ContactSmoothing as ContactSmoothing
