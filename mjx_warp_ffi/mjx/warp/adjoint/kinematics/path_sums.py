"""Sums over the nodes on the path to the root, and over those of a subtree, the adjoint of that."""

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import Topology
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape, world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

_DEEP = 32  # nodes on a path, on average: more are added one after the other


@struct
class Paths:
  """Where the nodes stand in the tree, and the points at which spatial vectors are added."""

  parent: wp.array[int]
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
  """The sum of the first `count` of four elements, all loaded before the first is awaited."""
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
def _sum_paths(
  paths: Paths,
  terms: wp.array3d[wp.spatial_vector],
  sums: wp.array3d[wp.spatial_vector],
):
  """The sum of the terms of a node and of those above it, a thread per row, world and node."""
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
def _walk_paths(
  paths: Paths,
  terms: wp.array3d[wp.spatial_vector],
  sums: wp.array3d[wp.spatial_vector],
):
  """The same, a thread per row and world."""
  row, world = wp.tid()
  for n in range(1, terms.shape[2]):
    sums[row, world, n] = sums[row, world, paths.parent[n]] + terms[row, world, n]


@wp.kernel(enable_backward=False)
def _sum_subtrees(
  paths: Paths,
  terms: wp.array3d[wp.spatial_vector],
  sums: wp.array3d[wp.spatial_vector],
):
  """Adds the sum over the subtree of a node, a thread per row, world and node."""
  row, i, j = wp.tid()
  world, n = world_and_item(i, j, paths.world_fastest)
  n += 1
  # in Warp += on an element is an atomic addition, which no other thread makes necessary here
  sums[row, world, n] = sums[row, world, n] + sum_subtree(paths, terms, row, world, n)


@wp.kernel(enable_backward=False)
def _walk_subtrees(
  paths: Paths,
  terms: wp.array3d[wp.spatial_vector],
  sums: wp.array3d[wp.spatial_vector],
):
  """The same, a thread per row and world; the sums take the place of the terms, too."""
  row, world = wp.tid()
  for i in range(1, terms.shape[2]):
    n = terms.shape[2] - i
    total = terms[row, world, n]
    sums[row, world, n] = sums[row, world, n] + total
    k = paths.parent[n]
    if k > 0:
      terms[row, world, k] = terms[row, world, k] + total


class PathSums:
  """Sums over paths for the nodes of a tape.

  A thread a node adds up its own path, which takes the time of one path, and the work of them all;
  on a CPU and in deep trees a thread a world walks from node to node.

  Args:
    top: the nodes.
    tape: where they are.
    points: origins of nodes, which the kernels take as constants.
    turns: orientations of nodes, likewise.

  Attributes:
    paths: for the kernels.
    walks: whether a thread a world walks: then `add_subtrees` overwrites the terms.
  """

  def __init__(self, top: Topology, tape: Tape, *, points: wp.array, turns: wp.array):
    """See the class."""
    self._dim, self._nworld = tape.dim(top.count - 1), tape.nworld
    chain = top.paths["chain"]
    self.walks = not tape.world_fastest or len(chain) > _DEEP * top.count
    ints = {k: wp.array(x, dtype=int, device=tape.device) for k, x in top.paths.items()}
    self.paths = tape.struct(
      Paths, points=points, turns=turns, world_fastest=tape.world_fastest, **ints
    )

  def sum_paths(self, terms: wp.array, sums: wp.array) -> None:
    """Launches the sums of (nrow, nworld, nnode) terms."""
    self._launch(_walk_paths if self.walks else _sum_paths, terms, sums)

  def add_subtrees(self, terms: wp.array, sums: wp.array) -> None:
    """Launches the adjoint, which adds sums over subtrees to `sums`."""
    self._launch(_walk_subtrees if self.walks else _sum_subtrees, terms, sums)

  def _launch(self, kernel: wp.Kernel, terms: wp.array, sums: wp.array) -> None:
    rows = terms.shape[0]
    dim = (rows, self._nworld) if self.walks else (rows, *self._dim)
    wp.launch(kernel, dim, inputs=[self.paths, terms], outputs=[sums])
