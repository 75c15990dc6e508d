"""Vertices, edges and faces of height fields, by nearness.

MJWarp collides a height field as prisms, two a cell, whose tops are raised by the contact's margin.
Between neighbouring prisms there are walls, and these too can be what it finds. As in
`polytopes`, w and n are a point near the surface and its outward normal in the frame of the field,
and nothing is differentiated.
"""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import EDGE, FACE, POINT
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.polytopes import (
  CROSSING,
  NONE,
  segment_distance,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Feature, Surfaces
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False})

_REACH = wp.constant(1)  # cells around w that are searched
BESIDE = wp.constant(1.0e-3)  # how far beside a prism rounding may be, in its widths


@wp.func
def _top(s: Surfaces, data: int, column: int, row: int, margin: float) -> wp.vec3:
  """A grid point of the raised surface."""
  size = s.hfield_size[data]
  columns = s.hfield_ncol[data]
  rows = s.hfield_nrow[data]
  height = s.hfield_data[s.hfield_adr[data] + row * columns + column]
  return wp.vec3(
    size[0] * (2.0 * float(column) / float(columns - 1) - 1.0),
    size[1] * (2.0 * float(row) / float(rows - 1) - 1.0),
    size[2] * height + margin,
  )


@wp.func
def cell_under(s: Surfaces, data: int, w: wp.vec3) -> wp.vec2i:
  """The lower grid point of the cell under w."""
  size = s.hfield_size[data]
  columns = s.hfield_ncol[data]
  rows = s.hfield_nrow[data]
  column = int(wp.floor(0.5 * (w[0] / size[0] + 1.0) * float(columns - 1)))
  row = int(wp.floor(0.5 * (w[1] / size[1] + 1.0) * float(rows - 1)))
  return wp.vec2i(wp.clamp(column, 0, columns - 2), wp.clamp(row, 0, rows - 2))


@wp.func
def _corner(cell: wp.vec2i, triangle: int, j: int) -> wp.vec2i:
  """Grid point j (0, 1, 2) of one of the two triangles of a cell, which share their diagonal."""
  if triangle == 0 and j == 1:
    return cell
  if triangle == 1 and j == 1:
    return wp.vec2i(cell[0] + 1, cell[1])
  if j == 0:
    return wp.vec2i(cell[0] + 1, cell[1] + 1)
  if triangle == 0:
    return wp.vec2i(cell[0], cell[1] + 1)
  return cell


@wp.func
def _triangle_point(
  s: Surfaces, data: int, cell: wp.vec2i, triangle: int, j: int, margin: float
) -> wp.vec3:
  """Vertex j, cyclically, of a triangle of a cell."""
  point = _corner(cell, triangle, j % 3)
  return _top(s, data, point[0], point[1], margin)


@wp.func
def prism_vertex(s: Surfaces, data: int, cell: wp.vec3i, i: int, margin: float) -> wp.vec3:
  """Vertex i of prism (column, row, triangle): three above, then three below."""
  top = _triangle_point(s, data, wp.vec2i(cell[0], cell[1]), cell[2], i, margin)
  if i < 3:
    return top
  return wp.vec3(top[0], top[1], -s.hfield_size[data][3])


@wp.func
def near_prism(s: Surfaces, data: int, w: wp.vec3, k: int) -> wp.vec3i:
  """Prism k of the 18 in the cells around w; (-1, -1, -1) beyond the border."""
  cell = cell_under(s, data, w)
  column = cell[0] + k // 2 % 3 - 1
  row = cell[1] + k // 6 - 1
  if column < 0 or row < 0 or column >= s.hfield_ncol[data] - 1 or row >= s.hfield_nrow[data] - 1:
    return wp.vec3i(-1, -1, -1)
  return wp.vec3i(column, row, k % 2)


@wp.func
def is_over(s: Surfaces, data: int, cell: wp.vec3i, w: wp.vec3) -> bool:
  """Whether w is above or below a prism, or beside it within rounding."""
  if cell[0] < 0:
    return False
  inside = wp.bool(True)
  middle = (
    prism_vertex(s, data, cell, 0, 0.0)
    + prism_vertex(s, data, cell, 1, 0.0)
    + prism_vertex(s, data, cell, 2, 0.0)
  ) / 3.0
  for j in range(3):
    p = prism_vertex(s, data, cell, j, 0.0)
    along = prism_vertex(s, data, cell, (j + 1) % 3, 0.0) - p
    wall = wp.vec3(along[1], -along[0], 0.0)
    depth = wp.dot(middle - p, wall)
    if wp.dot(w - p, wall) / depth < -BESIDE:
      inside = False
  return inside


@wp.func
def prism_top(s: Surfaces, data: int, cell: wp.vec3i, margin: float) -> wp.vec3:
  """The normal of the top of a prism."""
  p = prism_vertex(s, data, cell, 0, margin)
  q = prism_vertex(s, data, cell, 1, margin)
  r = prism_vertex(s, data, cell, 2, margin)
  return wp.normalize(wp.cross(q - p, r - p))


@struct
class Nearest:
  """The nearest feature so far, and how far it is: a length, or for faces a relative mismatch."""

  feature: Feature
  away: float


@wp.func
def _nearer(nearest: Nearest, kind: int, point: wp.vec3, way: wp.vec3, away: float) -> Nearest:
  """The nearer of two features; `way` is the direction of an edge or the normal of a face."""
  result = nearest
  if away < nearest.away:
    result.away = away
    result.feature.kind = kind
    result.feature.point = point
    if kind == EDGE:
      result.feature.direction = way
    if kind == FACE:
      result.feature.normal = way
  return result


@wp.func
def _in_triangle(
  nearest: Nearest, p: wp.vec3, q: wp.vec3, r: wp.vec3, k: int, w: wp.vec3, n: wp.vec3
) -> Nearest:
  """What of a triangle is nearer than `nearest`: k as in `terrain_feature`."""
  result = nearest
  size = wp.length(q - p)
  if k == 2:
    up = wp.normalize(wp.cross(q - p, r - p))
    if up[2] < 0.0:
      up = -up
    away = wp.abs(wp.dot(w - p, up)) + 0.01 * wp.length(w - (p + q + r) / 3.0)
    result = _nearer(result, FACE, p, up, away / size + wp.length(up - n))
  corners = wp.matrix_from_rows(p, q, r)
  for j in range(3):
    a = corners[j]
    b = corners[(j + 1) % 3]
    along = wp.normalize(b - a)
    if k == 0:
      result = _nearer(result, POINT, a, along, wp.length(w - a))
    if k == 1 and wp.abs(wp.dot(along, n)) < CROSSING:
      result = _nearer(result, EDGE, a, along, segment_distance(a, b, w))
    if k == 3:
      wall = wp.normalize(wp.vec3(along[1], -along[0], 0.0))
      if wp.dot(wall, n) < 0.0:
        wall = -wall
      away = segment_distance(wp.vec3(a[0], a[1], w[2]), wp.vec3(b[0], b[1], w[2]), w)
      result = _nearer(result, FACE, a, wall, away / size + wp.length(wall - n))
  return result


@wp.func
def terrain_feature(
  s: Surfaces, data: int, k: int, margin: float, w: wp.vec3, n: wp.vec3
) -> Feature:
  """The vertex (k = 0), edge (1), top (2) or wall (3) of a height field that is nearest to w."""
  nearest = Nearest()
  nearest.away = 1.0e30
  nearest.feature.kind = NONE
  cell = cell_under(s, data, w)
  columns = s.hfield_ncol[data]
  rows = s.hfield_nrow[data]
  for i in range(2 * _REACH + 1):
    for j in range(2 * _REACH + 1):
      near = wp.vec2i(cell[0] + i - _REACH, cell[1] + j - _REACH)
      if near[0] >= 0 and near[1] >= 0 and near[0] < columns - 1 and near[1] < rows - 1:
        for triangle in range(2):
          p = _triangle_point(s, data, near, triangle, 0, margin)
          q = _triangle_point(s, data, near, triangle, 1, margin)
          r = _triangle_point(s, data, near, triangle, 2, margin)
          nearest = _in_triangle(nearest, p, q, r, k, w, n)
  return nearest.feature
