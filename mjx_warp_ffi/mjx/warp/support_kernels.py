"""Kernels that lay out what mujoco_warp holds packed: matrices, rows, forces and distances."""

from __future__ import annotations

import warp as wp
from mujoco_warp._src import math as mjw_math
from mujoco_warp._src import support as mjw_support
from mujoco_warp._src import types as mjw_types


@wp.kernel(enable_backward=False)
def world_body(
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
  xmat: wp.array2d[wp.mat33],
  xipos: wp.array2d[wp.vec3],
  ximat: wp.array2d[wp.mat33],
):
  """The pose of the world body: the identity, a thread a world."""
  world = wp.tid()
  xpos[world, 0] = wp.vec3()
  xquat[world, 0] = wp.quat(1.0, 0.0, 0.0, 0.0)
  xmat[world, 0] = wp.identity(n=3, dtype=float)
  xipos[world, 0] = wp.vec3()
  ximat[world, 0] = wp.identity(n=3, dtype=float)


@wp.kernel(enable_backward=False)
def symmetric(
  rownnz: wp.array[int],
  rowadr: wp.array[int],
  colind: wp.array[int],
  packed: wp.array2d[float],
  timestep: wp.array[float],
  is_rate: bool,
  out: wp.array3d[float],
):
  """A symmetric matrix from its packed lower half, a thread per world and row.

  If it is a rate, the packed numbers are those of a matrix times minus the time step.
  """
  world, i = wp.tid()
  factor = 1.0
  if is_rate:
    factor = -1.0 / timestep[world % timestep.shape[0]]
  for k in range(rownnz[i]):
    adr = rowadr[i] + k
    j = colind[adr]
    value = packed[world, adr] * factor
    out[world, i, j] = value
    out[world, j, i] = value


@wp.kernel(enable_backward=False)
def shared_pattern(
  rownnz: wp.array[int],
  rowadr: wp.array[int],
  colind: wp.array[int],
  packed: wp.array2d[float],
  out: wp.array3d[float],
):
  """A matrix from packed rows whose columns all worlds share, a thread per world and row."""
  world, i = wp.tid()
  for k in range(rownnz[i]):
    adr = rowadr[i] + k
    out[world, i, colind[adr]] = packed[world, adr]


@wp.kernel(enable_backward=False)
def own_pattern(
  rownnz: wp.array2d[int],
  rowadr: wp.array2d[int],
  colind: wp.array2d[int],
  packed: wp.array2d[float],
  out: wp.array3d[float],
):
  """A matrix from packed rows with columns of their own, a thread per world and row."""
  world, i = wp.tid()
  for k in range(rownnz[world, i]):
    adr = rowadr[world, i] + k
    out[world, i, colind[world, adr]] = packed[world, adr]


@wp.kernel(enable_backward=False)
def row_jacobian(
  nefc: wp.array[int],
  is_sparse: bool,
  nv: int,
  rownnz: wp.array2d[int],
  rowadr: wp.array2d[int],
  colind: wp.array3d[int],
  packed: wp.array3d[float],
  out: wp.array3d[float],
):
  """The Jacobian of the constraint rows, a thread per world and row."""
  world, row = wp.tid()
  if row >= nefc[world]:
    return
  if is_sparse:
    for k in range(rownnz[world, row]):
      adr = rowadr[world, row] + k
      out[world, row, colind[world, 0, adr]] = packed[world, 0, adr]
  else:
    for j in range(nv):
      out[world, row, j] = packed[world, row, j]


@wp.kernel(enable_backward=False)
def row_values(nefc: wp.array[int], packed: wp.array2d[float], out: wp.array2d[float]):
  """Numbers of the constraint rows, zero in the padding, a thread per world and row."""
  world, row = wp.tid()
  if row < nefc[world]:
    out[world, row] = packed[world, row]
  else:
    out[world, row] = 0.0


@wp.kernel(enable_backward=False)
def row_labels(nefc: wp.array[int], packed: wp.array2d[int], out: wp.array2d[int]):
  """Integers of the constraint rows, -1 in the padding, a thread per world and row."""
  world, row = wp.tid()
  if row < nefc[world]:
    out[world, row] = packed[world, row]
  else:
    out[world, row] = -1


@wp.kernel(enable_backward=False)
def contact_labels(
  ncon: wp.array[int],
  order: wp.array2d[int],
  efc_address: wp.array2d[int],
  out: wp.array2d[int],
):
  """The number of the contact of each of its rows, a thread per world and contact."""
  world, i = wp.tid()
  if i >= ncon[world]:
    return
  c = order[world, i]
  for k in range(efc_address.shape[1]):
    row = efc_address[c, k]
    if row >= 0 and row < out.shape[1]:
      out[world, row] = i


@wp.kernel(enable_backward=False)
def contact_forces(
  cone: int,
  frame: wp.array[wp.mat33],
  friction: wp.array[mjw_types.vec5],
  condim: wp.array[int],
  efc_address: wp.array2d[int],
  adhesion: wp.array[float],
  force: wp.array2d[float],
  njmax: int,
  nacon: wp.array[int],
  ncon: wp.array[int],
  order: wp.array2d[int],
  out: wp.array2d[wp.spatial_vector],
):
  """Force and torque of each contact in its frame, zero in the padding; a thread a contact."""
  world, i = wp.tid()
  result = wp.spatial_vector()
  if i < ncon[world]:
    result = mjw_support.contact_force_fn(
      cone,
      frame,
      friction,
      condim,
      efc_address,
      adhesion,
      force,
      njmax,
      nacon,
      world,
      order[world, i],
      False,  # not in the axes of the world
    )
  out[world, i] = result


@wp.kernel(enable_backward=False)
def nearest(found: wp.array4d[float], dist: wp.array2d[float], fromto: wp.array3d[float]):
  """The nearest of what was found for a pair."""
  world, k = wp.tid()
  best = wp.int32(0)
  for i in range(found.shape[2]):
    if found[world, k, i, 0] < found[world, k, best, 0]:
      best = i
  x = found[world, k, best, 0]
  dist[world, k] = x
  for j in range(3):
    half = 0.5 * x * found[world, k, best, 4 + j]
    fromto[world, k, j] = found[world, k, best, 1 + j] - half
    fromto[world, k, 3 + j] = found[world, k, best, 1 + j] + half


@wp.kernel(enable_backward=False)
def nearest_adjoint(
  ngeom: int,
  nxn_pairid: wp.array[wp.vec2i],
  contact_dist: wp.array[float],
  contact_frame: wp.array[wp.mat33],
  contact_geom: wp.array[wp.vec2i],
  worldid: wp.array[int],
  slot: wp.array[int],
  nacon: wp.array[int],
  found: wp.array4d[float],
  cot_dist: wp.array2d[float],
  cot_fromto: wp.array3d[float],
  grad_dist: wp.array[float],
  grad_pos: wp.array[wp.vec3],
  grad_frame: wp.array[wp.mat33],
):
  """The cotangents of the nearest of what was found for a pair, as those of a contact."""
  c = wp.tid()
  if c >= nacon[0]:
    return
  g = contact_geom[c]
  pair = mjw_math.upper_tri_index(ngeom, wp.min(g[0], g[1]), wp.max(g[0], g[1]))
  world, k = worldid[c], nxn_pairid[pair][1]
  best = wp.int32(0)
  for i in range(found.shape[2]):
    if found[world, k, i, 0] < found[world, k, best, 0]:
      best = i
  x, y, z, d = wp.vec3(0.0), wp.vec3(0.0), wp.vec3(0.0), wp.float32(0.0)
  if slot[c] == best:
    x = wp.vec3(cot_fromto[world, k, 0], cot_fromto[world, k, 1], cot_fromto[world, k, 2])
    y = wp.vec3(cot_fromto[world, k, 3], cot_fromto[world, k, 4], cot_fromto[world, k, 5])
    n = wp.vec3(contact_frame[c][0, 0], contact_frame[c][0, 1], contact_frame[c][0, 2])
    z = 0.5 * contact_dist[c] * (y - x)
    d = cot_dist[world, k] + 0.5 * wp.dot(n, y - x)
  grad_dist[c] = d
  grad_pos[c] = x + y
  grad_frame[c] = wp.matrix_from_rows(z, wp.vec3(0.0), wp.vec3(0.0))


@wp.kernel(enable_backward=False)
def rows_of_worlds(rows: wp.array2d[wp.vec3], out: wp.array2d[wp.vec3]):
  """A row a world of what has that or one for all."""
  world, i = wp.tid()
  out[world, i] = rows[world % rows.shape[0], i]
