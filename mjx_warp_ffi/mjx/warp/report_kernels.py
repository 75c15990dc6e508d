"""The kernel that notes which results had a cotangent without a rule."""

import warp as wp


@wp.kernel(enable_backward=False)
def note(nonzero: wp.array2d[int], which: wp.array[int], flags: wp.array[int]):
  """Sets flags, a thread per world and result."""
  world, i = wp.tid()
  if nonzero[world, i] != 0:
    wp.atomic_max(flags, which[i], 1)
