"""Programs of one small kernel, for their tests and what these run in other processes."""

import warp as wp

from mjx_warp_ffi.third_party import warp as ffi

# The modes with fixed buffers.
MODES = [ffi.GraphMode.NONE, ffi.GraphMode.WARP_STAGED, ffi.GraphMode.WARP_STAGED_EX]


@wp.kernel(enable_backward=False)
def affine(x: wp.array(dtype=float), offset: float, y: wp.array(dtype=float)):
  i = wp.tid()
  y[i] = 2.0 * x[i] + offset


def affine_program(device, size=5, offset=1.0):
  """Buffers for x and for y = 2 x + offset, and the launch between them."""
  x = wp.zeros(size, dtype=float, device=device)
  y = wp.zeros(size, dtype=float, device=device)

  def body():
    wp.launch(affine, dim=size, inputs=[x, offset], outputs=[y])

  return ffi.Program((x,), (y,), body)
