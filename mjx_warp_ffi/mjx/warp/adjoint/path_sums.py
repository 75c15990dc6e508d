"""Sums over the nodes on the path to the root, and over those of a subtree, the adjoint of that."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.tape import world_and_item


@wp.struct
class Paths:
  """Where the nodes stand in the tree, and the points at which spatial vectors are added."""

  body: wp.array[int]  # that the node is part of
  above: wp.array[int]  # the parent of that body
  first: wp.array[int]  # the first node of that body
  root: wp.array[int]  # the first node on the path from the world
  end: wp.array[int]  # of the nodes of the subtree
  start: wp.array[int]  # in `chain` the node and those above it are from start[n] to start[n + 1]
  chain: wp.array[int]
  points: wp.array2d[wp.vec3]  # origins of nodes, as constants
  turns: wp.array2d[wp.quat]  # orientations of nodes, as constants
  world_fastest: bool  # see `Tape`


@wp.func
def _sum_four(
  x: wp.array3d[wp.spatial_vector],
  row: int,
  world: int,
  k: wp.vec4i,
  count: int,
) -> wp.spatial_vector:
  """The sum of the first of four elements; all are loaded before the first is awaited."""
  a = x[row, world, k[0]]
  b = x[row, world, k[1]]
  c = x[row, world, k[2]]
  d = x[row, world, k[3]]
  if count > 1:
    a += b
  if count > 2:
    a += c
  if count > 3:
    a += d
  return a


@wp.func
def sum_subtree(
  paths: Paths, x: wp.array3d[wp.spatial_vector], row: int, world: int, n: int
) -> wp.spatial_vector:
  """The sum over the nodes of a subtree."""
  total = wp.spatial_vector()
  last = paths.end[n] - 1
  for k in range(n, last + 1, 4):
    at = wp.vec4i(k, wp.min(k + 1, last), wp.min(k + 2, last), wp.min(k + 3, last))
    total += _sum_four(x, row, world, at, last + 1 - k)
  return total


@wp.kernel(enable_backward=False)
def sum_paths(
  paths: Paths,
  terms: wp.array3d[wp.spatial_vector],
  sums: wp.array3d[wp.spatial_vector],
):
  """The sum of the terms of a node and of those above it, a thread per row and node."""
  row, i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  total = wp.spatial_vector()
  last = paths.start[n + 1] - 1
  for k in range(paths.start[n], last + 1, 4):
    at = wp.vec4i(
      paths.chain[k],
      paths.chain[wp.min(k + 1, last)],
      paths.chain[wp.min(k + 2, last)],
      paths.chain[wp.min(k + 3, last)],
    )
    total += _sum_four(terms, row, world, at, last + 1 - k)
  sums[row, world, n] = total


@wp.kernel(enable_backward=False)
def sum_paths_adjoint(
  paths: Paths,
  cotangents: wp.array3d[wp.spatial_vector],
  gradients: wp.array3d[wp.spatial_vector],
):
  """Adds to the gradients of the terms, a thread per row and node."""
  row, i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  gradients[row, world, n] += sum_subtree(paths, cotangents, row, world, n)
