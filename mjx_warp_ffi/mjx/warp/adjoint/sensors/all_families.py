"""The families of sensors that are functions of the forward pass, in the order of their recording.

A new family is a file with an `OUTPUT` and a line here. Sensors that read contacts, rows or
actuator forces are recorded where these are.
"""

from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Output
from mjx_warp_ffi.mjx.warp.adjoint.sensors import (
  camera_projection,
  delayed_samples,
  frames,
  rangefinders,
)

FAMILIES: tuple[Output, ...] = (
  delayed_samples.OUTPUT,
  rangefinders.OUTPUT,
  frames.OUTPUT,
  camera_projection.OUTPUT,
)
