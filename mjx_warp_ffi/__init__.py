"""MuJoCo Warp as JAX functions: jit, vmap, scan and grad, on CPU and GPU."""

from mjx_warp_ffi._versions import __version__ as __version__
from mjx_warp_ffi.install import install as install
