"""Kernels whose tiles lie in shared memory, for test_guard.py."""

import warp as wp


@wp.kernel(enable_backward=False)
def transposed(x: wp.array3d[float], y: wp.array3d[float]):
  """Each matrix transposed, by way of two tiles."""
  i = wp.tid()
  tile = wp.tile_load(x[i], shape=(16, 16), storage="shared")
  other = wp.tile_zeros(shape=(16, 16), dtype=float, storage="shared")
  wp.tile_assign(other, wp.tile_transpose(tile), offset=(0, 0))
  wp.tile_store(y[i], other)


def transposing(x: wp.array3d[float], y: wp.array3d[float]):
  """Launches it, a block a matrix."""
  wp.launch_tiled(transposed, dim=x.shape[0], inputs=[x], outputs=[y], block_dim=32)
