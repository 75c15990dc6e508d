"""The outputs that are recorded once all forces are, in the order in which that is done."""

from mjx_warp_ffi.mjx.warp.adjoint.outputs import cameras, energy, motion_axes, poses
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Output

OUTPUTS: tuple[Output, ...] = (poses.OUTPUT, energy.OUTPUT, motion_axes.OUTPUT, cameras.OUTPUT)
