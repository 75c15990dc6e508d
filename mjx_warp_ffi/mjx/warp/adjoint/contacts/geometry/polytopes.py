"""Faces, edges and vertices of boxes, meshes and 16-sided caps of cylinders, by nearness.

All in the frame of the geom: w is a point on or near its surface, n the outward normal there.
Nothing here is differentiated. The points of the features are in units of `scale`.
"""

import math

import warp as wp
from mujoco_warp import GeomType

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import EDGE, FACE, POINT
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Feature, Geom, Surfaces

wp.set_module_options({"enable_backward": False})

NONE = wp.constant(-1)
CROSSING = wp.constant(0.3)  # |n . d| beyond which an edge d cannot touch along n: noise is smaller

_SECTOR = wp.constant(math.pi / 8.0)  # MJWarp clips caps of cylinders as 16-gons


@wp.func
def side_of(x: float) -> float:
  """The sign of x, 1 at zero."""
  if x < 0.0:
    return -1.0
  return 1.0


@wp.func
def _unit(axis: int) -> wp.vec3:
  """A basis vector."""
  result = wp.vec3(0.0)
  result[axis] = 1.0
  return result


@wp.func
def box_vertex(w: wp.vec3) -> Feature:
  """The corner of a box in the octant of w."""
  found = Feature()
  found.kind = POINT
  found.point = wp.vec3(side_of(w[0]), side_of(w[1]), side_of(w[2]))
  return found


@wp.func
def box_edge(size: wp.vec3, w: wp.vec3, n: wp.vec3) -> Feature:
  """The edge of a box that is nearest to w, of those across n."""
  found = Feature()
  found.kind = NONE
  best = wp.float32(1.0e30)
  for j in range(3):
    offset = wp.abs(w) - size
    offset[j] = 0.0
    if wp.abs(n[j]) < CROSSING and wp.length(offset) < best:
      best = wp.length(offset)
      found.kind = EDGE
      found.direction = _unit(j)
      found.point = wp.vec3(side_of(w[0]), side_of(w[1]), side_of(w[2]))
      found.point[j] = 0.0
  return found


@wp.func
def box_face(w: wp.vec3, n: wp.vec3, size: wp.vec3) -> Feature:
  """The face of a box that n points out of; with the corner and the side nearest to w."""
  found = Feature()
  found.kind = FACE
  k = wp.int32(0)
  if wp.abs(n[1]) > wp.abs(n[k]):
    k = 1
  if wp.abs(n[2]) > wp.abs(n[k]):
    k = 2
  found.normal = _unit(k) * side_of(n[k])
  found.point = wp.vec3(side_of(w[0]), side_of(w[1]), side_of(w[2]))
  found.point[k] = side_of(n[k])
  i = (k + 1) % 3
  j = (k + 2) % 3
  if wp.abs(wp.abs(w[i]) - size[i]) < wp.abs(wp.abs(w[j]) - size[j]):
    found.direction = _unit(j)
  else:
    found.direction = _unit(i)
  return found


@wp.func
def segment_distance(p: wp.vec3, q: wp.vec3, w: wp.vec3) -> float:
  """How far w is from a segment."""
  along = q - p
  t = wp.clamp(wp.dot(w - p, along) / wp.max(wp.dot(along, along), 1.0e-20), 0.0, 1.0)
  return wp.length(w - p - along * t)


@wp.func
def mesh_vertex_at(s: Surfaces, data: int, poly: int, j: int) -> wp.vec3:
  """Vertex j of a polygon of a mesh, cyclically."""
  face = s.polyadr[data] + poly
  count = s.polyvertnum[face]
  return s.vert[s.vertadr[data] + s.polyvert[s.polyvertadr[face] + j % count]]


@wp.func
def mesh_vertex(s: Surfaces, data: int, w: wp.vec3) -> Feature:
  """The vertex of a mesh's polygons that is nearest to w."""
  found = Feature()
  found.kind = NONE
  best = wp.float32(1.0e30)
  for poly in range(s.polynum[data]):
    for j in range(s.polyvertnum[s.polyadr[data] + poly]):
      p = mesh_vertex_at(s, data, poly, j)
      if wp.length(p - w) < best:
        best = wp.length(p - w)
        found.kind = POINT
        found.point = p
  return found


@wp.func
def mesh_edge(s: Surfaces, data: int, w: wp.vec3, n: wp.vec3) -> Feature:
  """The edge of a mesh's polygons that is nearest to w, of those across n."""
  found = Feature()
  found.kind = NONE
  best = wp.float32(1.0e30)
  for poly in range(s.polynum[data]):
    for j in range(s.polyvertnum[s.polyadr[data] + poly]):
      p = mesh_vertex_at(s, data, poly, j)
      q = mesh_vertex_at(s, data, poly, j + 1)
      along = wp.normalize(q - p)
      away = segment_distance(p, q, w)
      if wp.abs(wp.dot(along, n)) < CROSSING and away < best:
        best = away
        found.kind = EDGE
        found.point = p
        found.direction = along
  return found


@wp.func
def mesh_face(s: Surfaces, data: int, w: wp.vec3, n: wp.vec3, corner: bool) -> Feature:
  """The polygon of a mesh that n points out of; with the corner or the side nearest to w."""
  found = Feature()
  found.kind = NONE
  best = wp.float32(-2.0)
  face = wp.int32(0)
  for poly in range(s.polynum[data]):
    along = wp.dot(s.polynormal[s.polyadr[data] + poly], n)
    if along > best:
      best = along
      face = poly
  if best < 0.0:
    return found
  found.kind = FACE
  found.normal = s.polynormal[s.polyadr[data] + face]
  flat = w - found.normal * wp.dot(w - mesh_vertex_at(s, data, face, 0), found.normal)
  best = wp.float32(1.0e30)
  for j in range(s.polyvertnum[s.polyadr[data] + face]):
    p = mesh_vertex_at(s, data, face, j)
    q = mesh_vertex_at(s, data, face, j + 1)
    away = segment_distance(p, q, flat)
    if corner:
      away = wp.length(p - flat)
    if away < best:
      best = away
      found.point = p
      found.direction = wp.normalize(q - p)
  return found


@wp.func
def cap_face(w: wp.vec3, n: wp.vec3, corner: bool) -> Feature:
  """A cap of a cylinder as a 16-gon; with the corner or the side nearest to w."""
  found = Feature()
  found.kind = FACE
  found.normal = wp.vec3(0.0, 0.0, side_of(n[2]))
  sector = wp.floor(wp.atan2(w[1], w[0]) / _SECTOR)
  if corner:
    sector = wp.floor(wp.atan2(w[1], w[0]) / _SECTOR + 0.5)
  angle = sector * _SECTOR
  found.point = wp.vec3(wp.cos(angle), wp.sin(angle), side_of(n[2]))
  middle = angle + 0.5 * _SECTOR
  found.direction = wp.vec3(-wp.sin(middle), wp.cos(middle), 0.0)
  return found


@wp.func
def nearest_vertex(geom: Geom, s: Surfaces, data: int, w: wp.vec3) -> Feature:
  """The vertex of a box or mesh that is nearest to w."""
  if geom.kind == GeomType.BOX:
    return box_vertex(w)
  return mesh_vertex(s, data, w)


@wp.func
def nearest_edge(geom: Geom, s: Surfaces, data: int, w: wp.vec3, n: wp.vec3) -> Feature:
  """The edge of a box or mesh that is nearest to w, of those across n."""
  if geom.kind == GeomType.BOX:
    return box_edge(geom.size, w, n)
  return mesh_edge(s, data, w, n)


@wp.func
def facing(geom: Geom, s: Surfaces, data: int, w: wp.vec3, n: wp.vec3, corner: bool) -> Feature:
  """The face of a box, mesh or cylinder that n points out of."""
  if geom.kind == GeomType.BOX:
    return box_face(w, n, geom.size)
  if geom.kind == GeomType.MESH:
    return mesh_face(s, data, w, n, corner)
  return cap_face(w, n, corner)


@wp.func
def crossing_edge(geom: Geom, s: Surfaces, data: int, n: wp.vec3) -> wp.vec3:
  """The direction of the edge of a box or mesh that is most across n; zero for others."""
  found = wp.vec3(0.0)
  best = wp.float32(CROSSING)
  if geom.kind == GeomType.BOX:
    for j in range(3):
      if wp.abs(n[j]) < best:
        best = wp.abs(n[j])
        found = _unit(j)
  if geom.kind == GeomType.MESH:
    for poly in range(s.polynum[data]):
      for j in range(s.polyvertnum[s.polyadr[data] + poly]):
        p = mesh_vertex_at(s, data, poly, j)
        along = wp.normalize(mesh_vertex_at(s, data, poly, j + 1) - p)
        if wp.abs(wp.dot(along, n)) < best:
          best = wp.abs(wp.dot(along, n))
          found = along
  return found
