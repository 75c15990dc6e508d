"""Sums and differences of generalised vectors."""

import warp as wp


@wp.kernel
def add(a: wp.array2d[float], b: wp.array2d[float], out: wp.array2d[float]):
  """The sum of two vectors a world."""
  world, i = wp.tid()
  out[world, i] = a[world, i] + b[world, i]


@wp.kernel
def subtract(a: wp.array2d[float], b: wp.array2d[float], out: wp.array2d[float]):
  """The difference of two vectors a world."""
  world, i = wp.tid()
  out[world, i] = a[world, i] - b[world, i]


@wp.kernel
def negate(a: wp.array2d[float], out: wp.array2d[float]):
  """The opposite of a vector a world."""
  world, i = wp.tid()
  out[world, i] = -a[world, i]
