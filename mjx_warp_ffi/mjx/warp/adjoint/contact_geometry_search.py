"""The search for the triangle at which EPA stopped; see `contact_geometry_triangle`."""

import warp as wp
from mujoco_warp import GeomType

from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry_feature import scale
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry_side import Side
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry_terrain import prism_vertex
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry_types import Contact, Feature, Surfaces

wp.set_module_options({"enable_backward": False})

MOST_PAIRS = wp.constant(4096)  # of vertices that are searched

_BOX = wp.constant(int(GeomType.BOX))
_MESH = wp.constant(int(GeomType.MESH))
_HFIELD = wp.constant(int(GeomType.HFIELD))


@wp.func
def _vertex_count(kind: int, s: Surfaces, data: int) -> int:
  """How many vertices of a geom are searched; none where it is no polytope."""
  if kind == _BOX:
    return 8
  if kind == _HFIELD:
    return 6
  if kind == _MESH:
    return s.vertnum[data]
  return 0


@wp.func
def _vertex(side: Side, s: Surfaces, i: int, cell: wp.vec3i) -> wp.vec3:
  """A vertex, in units of `scale`; that of a height field belongs to prism `cell`."""
  if side.geom.kind == _BOX:
    x = 2.0 * float(i & 1) - 1.0
    y = float(i & 2) - 1.0
    z = 0.5 * float(i & 4) - 1.0
    return wp.vec3(x, y, z)
  if side.geom.kind == _HFIELD:
    return prism_vertex(s, side.data, cell, i, side.margin)
  return s.vert[s.vertadr[side.data] + i]


@wp.func
def _take(feature: Feature, slot: int, vertex: wp.vec3) -> Feature:
  """The feature with one of its three vertices replaced."""
  changed = feature
  if slot == 0:
    changed.point = vertex
  elif slot == 1:
    changed.direction = vertex
  else:
    changed.normal = vertex
  return changed


@wp.struct
class Pair:
  """Two features and how far the least fitting of their three differences is from the plane."""

  fa: Feature
  fb: Feature
  worst: float


@wp.func
def find_triangle(a: Side, b: Side, s: Surfaces, cell: wp.vec3i, truth: Contact) -> Pair:
  """The three differences of vertices nearest to the plane of a contact, not in one line."""
  pair = Pair()
  pair.worst = 1.0e30
  count = _vertex_count(b.geom.kind, s, b.data)
  total = _vertex_count(a.geom.kind, s, a.data) * count
  if total > MOST_PAIRS:
    return pair
  first = wp.vec3(0.0)
  second = wp.vec3(0.0)
  taken = wp.vec2i(-1, -1)
  for slot in range(3):
    best = wp.float32(1.0e30)
    index = wp.int32(-1)
    for k in range(total):
      va = _vertex(a, s, k // count, cell)
      vb = _vertex(b, s, k % count, cell)
      difference = (
        a.geom.pos
        - b.geom.pos
        + a.geom.rot @ wp.cw_mul(scale(a.geom), va)
        - b.geom.rot @ wp.cw_mul(scale(b.geom), vb)
      )
      away = wp.abs(wp.dot(truth.frame[0], difference) + truth.dist)
      if k == taken[0] or k == taken[1]:
        away = 1.0e30
      if slot == 2:
        side = wp.normalize(second - first)
        if wp.length(wp.cross(side, difference - first)) < 1.0e-3 * wp.length(second - first):
          away = 1.0e30
      if away < best:
        best = away
        index = k
        pair.fa = _take(pair.fa, slot, va)
        pair.fb = _take(pair.fb, slot, vb)
        if slot == 0:
          first = difference
        if slot == 1:
          second = difference
    if slot < 2:
      taken[slot] = index
    pair.worst = best
  return pair
