"""The search for what a contact lies on where no two single features explain it.

These are the triangles at which EPA stopped (`epa_triangle`), and the points that MJWarp takes deep
in a height field (`heightfield_vertical`).
"""

import warp as wp
from mujoco_warp import GeomType

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.candidates import ContactSide
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.convex import (
  Hint,
  triangle_contact,
  vertical_contact,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import scale
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.heightfield import (
  is_over,
  near_prism,
  prism_top,
  prism_vertex,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.heightfield_vertical import plane_feature
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.mismatch import SoughtContact, mismatch
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.polytopes import nearest_vertex, side_of
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Feature, Surfaces
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False})

MOST_PAIRS = wp.constant(4096)  # of vertices that are searched
NEAREST = 12  # differences of vertices of which all triangles are tried
_NONE_NEAR = wp.constant(1.0e30)

_indices = wp.types.vector(NEAREST, wp.int32)
_lengths = wp.types.vector(NEAREST, wp.float32)


@wp.func
def _vertex_count(kind: int, s: Surfaces, data: int) -> int:
  """How many vertices of a geom are searched; none where it is no polytope."""
  if kind == GeomType.BOX:
    return 8
  if kind == GeomType.HFIELD:
    return 6
  if kind == GeomType.MESH:
    return s.vertnum[data]
  return 0


@wp.func
def _vertex(side: ContactSide, s: Surfaces, i: int, cell: wp.vec3i) -> wp.vec3:
  """A vertex, in units of `scale`; that of a height field belongs to prism `cell`."""
  if side.geom.kind == GeomType.BOX:
    x = 2.0 * float(i & 1) - 1.0
    y = float(i & 2) - 1.0
    z = 0.5 * float(i & 4) - 1.0
    return wp.vec3(x, y, z)
  if side.geom.kind == GeomType.HFIELD:
    return prism_vertex(s, side.data, cell, i, side.margin)
  return s.vert[s.vertadr[side.data] + i]


@struct
class FeaturePair:
  """Two features and how badly the contact that they give explains MJWarp's."""

  fa: Feature
  fb: Feature
  score: float


@wp.func
def _difference(a: ContactSide, b: ContactSide, s: Surfaces, k: int, cell: wp.vec3i) -> wp.vec3:
  """Difference k of a vertex of a and one of b, in the world."""
  count = _vertex_count(b.geom.kind, s, b.data)
  va = wp.cw_mul(scale(a.geom), _vertex(a, s, k // count, cell))
  vb = wp.cw_mul(scale(b.geom), _vertex(b, s, k % count, cell))
  return a.geom.pos - b.geom.pos + a.geom.rot @ va - b.geom.rot @ vb


@wp.func
def _nearest_differences(
  a: ContactSide, b: ContactSide, s: Surfaces, cell: wp.vec3i, sought: SoughtContact
) -> _indices:
  """The differences of vertices nearest to the plane of a contact; -1 where there are no more."""
  found = _indices()
  away = _lengths()
  for j in range(NEAREST):
    found[j] = -1
    away[j] = _NONE_NEAR
  total = _vertex_count(a.geom.kind, s, a.data) * _vertex_count(b.geom.kind, s, b.data)
  if total > MOST_PAIRS:
    total = 0
  for k in range(total):
    n = sought.contact.frame[0]
    off = wp.abs(wp.dot(n, _difference(a, b, s, k, cell)) + sought.contact.dist)
    index = wp.int32(k)
    for j in range(NEAREST):  # those that are further move up
      if off < away[j]:
        other = away[j]
        away[j] = off
        off = other
        moved = found[j]
        found[j] = index
        index = moved
  return found


@wp.func
def _take(
  a: ContactSide, b: ContactSide, s: Surfaces, cell: wp.vec3i, triple: wp.vec3i
) -> FeaturePair:
  """Two features of three vertices each, those of three differences."""
  count = _vertex_count(b.geom.kind, s, b.data)
  pair = FeaturePair()
  pair.fa.point = _vertex(a, s, triple[0] // count, cell)
  pair.fa.direction = _vertex(a, s, triple[1] // count, cell)
  pair.fa.normal = _vertex(a, s, triple[2] // count, cell)
  pair.fb.point = _vertex(b, s, triple[0] % count, cell)
  pair.fb.direction = _vertex(b, s, triple[1] % count, cell)
  pair.fb.normal = _vertex(b, s, triple[2] % count, cell)
  if a.geom.kind == GeomType.HFIELD:
    pair.fb.pad = 0.5 * a.margin
  return pair


@wp.func
def _best_triangle(
  a: ContactSide,
  b: ContactSide,
  s: Surfaces,
  cell: wp.vec3i,
  sought: SoughtContact,
  best: FeaturePair,
) -> FeaturePair:
  """The triangle of differences that explains a contact best, of those nearest to its plane."""
  result = best
  near = _nearest_differences(a, b, s, cell, sought)
  hint = Hint()
  hint.normal = sought.contact.frame[0]
  some = wp.int32(NEAREST)  # a number that the compiler does not see, or it unrolls the loops
  for i in range(some):
    for j in range(i):
      for k in range(j):
        if near[i] >= 0 and result.score > 0.0:
          pair = _take(a, b, s, cell, wp.vec3i(near[i], near[j], near[k]))
          score = mismatch(triangle_contact(a.geom, b.geom, pair.fa, pair.fb, hint), sought)
          if score < result.score:
            result = pair
            result.score = score
  return result


@wp.func
def find_triangle(
  a: ContactSide, b: ContactSide, s: Surfaces, sought: SoughtContact
) -> FeaturePair:
  """The vertices of two polytopes whose differences a contact lies on."""
  best = FeaturePair()
  best.score = _NONE_NEAR
  if a.geom.kind != GeomType.HFIELD:
    return _best_triangle(a, b, s, wp.vec3i(0, 0, 0), sought, best)
  prisms = wp.int32(18)
  for k in range(prisms):  # a point on an edge may be of the prism on either side
    cell = near_prism(s, a.data, a.w, k)
    if best.score > 0.0 and is_over(s, a.data, cell, a.w):
      best = _best_triangle(a, b, s, cell, sought, best)
  return best


@wp.func
def find_vertical(
  a: ContactSide, b: ContactSide, s: Surfaces, sought: SoughtContact
) -> FeaturePair:
  """The top of a prism of height field a, or the height of a corner, and the point of b there."""
  best = FeaturePair()
  best.score = _NONE_NEAR
  kind = b.geom.kind
  fb = Feature()
  if kind == GeomType.BOX or kind == GeomType.MESH:
    if a.margin > 0.0:  # it moves the vertex along an unknown direction
      return best
    fb = nearest_vertex(b.geom, s, b.data, b.w)
  elif kind == GeomType.CAPSULE:
    fb.point = wp.vec3(0.0, 0.0, side_of(b.w[2]))
  elif kind != GeomType.SPHERE:
    return best
  fb.pad = 0.5 * a.margin
  hint = Hint()
  hint.normal = sought.contact.frame[0]
  prisms = wp.int32(18)
  for k in range(prisms):
    cell = near_prism(s, a.data, a.w, k)
    tops = wp.int32(4)
    for j in range(tops):
      corner = prism_vertex(s, a.data, cell, j % 3, a.margin)
      fa = plane_feature(corner, wp.vec3(0.0, 0.0, 1.0))
      if j == 3:
        fa.normal = prism_top(s, a.data, cell, a.margin)
      if cell[0] >= 0 and best.score > 0.0:
        score = mismatch(vertical_contact(a.geom, b.geom, fa, fb, hint), sought)
        if score < best.score:
          best.score = score
          best.fa = fa
          best.fb = fb
  return best
