"""What of a geom may touch, near the witness point of a contact."""

import warp as wp
from mujoco_warp import GeomType

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.convex import CORNER, CUT, VERTEX
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import (
  EDGE,
  ELLIPSOID,
  FACE,
  POINT,
  RIM,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.heightfield import terrain_feature
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.polytopes import (
  NONE,
  facing,
  nearest_edge,
  nearest_vertex,
  side_of,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Feature, Geom, Surfaces
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False})

ALIGNED = wp.constant(0.996)  # cosine beyond which MJWarp clips two faces against each other


@struct
class ContactSide:
  """A geom of a contact with its mesh, and the witness point and outward normal in its frame."""

  geom: Geom
  data: int
  margin: float
  w: wp.vec3
  n: wp.vec3


@wp.func
def simple_feature(kind: int, point: wp.vec3, direction: wp.vec3, normal: wp.vec3) -> Feature:
  """A Feature from its parts."""
  found = Feature()
  found.kind = kind
  found.point = point
  found.direction = direction
  found.normal = normal
  return found


@wp.func
def single_candidate(side: ContactSide, s: Surfaces, k: int) -> Feature:
  """The k-th feature that a single contact may be on.

  Point or surface (0), edge (1), face (2); the wall of a prism, or a point of an axis (3).
  """
  zero = wp.vec3(0.0)
  up = wp.vec3(0.0, 0.0, 1.0)
  end = wp.vec3(0.0, 0.0, side_of(side.w[2]))
  kind = side.geom.kind
  if kind == GeomType.BOX or kind == GeomType.MESH:
    if k == 3:
      return simple_feature(NONE, zero, zero, zero)
    if k == 0:
      return nearest_vertex(side.geom, s, side.data, side.w)
    if k == 1:
      return nearest_edge(side.geom, s, side.data, side.w, side.n)
    return facing(side.geom, s, side.data, side.w, side.n, True)
  if kind == GeomType.HFIELD:
    return terrain_feature(s, side.data, k, side.margin, side.w, side.n)
  if kind == GeomType.PLANE and k == 2:
    return simple_feature(FACE, zero, zero, up)
  if kind == GeomType.SPHERE and k == 0:
    return simple_feature(POINT, zero, zero, zero)
  if kind == GeomType.ELLIPSOID and k == 0:
    return simple_feature(ELLIPSOID, zero, zero, zero)
  if kind == GeomType.CAPSULE and k == 0:
    return simple_feature(POINT, end, zero, zero)
  if kind == GeomType.CYLINDER and k == 0:
    return simple_feature(RIM, end, zero, zero)
  if (kind == GeomType.CAPSULE or kind == GeomType.CYLINDER) and k == 1:
    return simple_feature(EDGE, zero, up, zero)
  if (kind == GeomType.CAPSULE or kind == GeomType.CYLINDER) and k == 3:
    return simple_feature(POINT, up * (side.w[2] / side.geom.size[1]), zero, zero)
  if kind == GeomType.CYLINDER and k == 2:
    return facing(side.geom, s, side.data, side.w, side.n, True)
  return simple_feature(NONE, zero, zero, zero)


@wp.func
def is_flat(kind: int) -> bool:
  """Whether MJWarp clips the faces of a type of geom."""
  return kind == GeomType.BOX or kind == GeomType.MESH or kind == GeomType.CYLINDER


@wp.func
def is_round(kind: int) -> bool:
  """Whether EPA only approximates a type of geom."""
  return kind == GeomType.ELLIPSOID or kind == GeomType.CYLINDER


@wp.func
def clipped_candidate(side: ContactSide, s: Surfaces, v: wp.vec3, how: int) -> Feature:
  """What of a geom is clipped against a face of the other: a vertex, an edge or a face."""
  kind = side.geom.kind
  zero = wp.vec3(0.0)
  up = wp.vec3(0.0, 0.0, 1.0)
  flat = is_flat(kind)
  if kind == GeomType.CYLINDER and wp.abs(side.n[2]) < ALIGNED:
    flat = False
  if flat:
    if how == CORNER or kind == GeomType.CYLINDER:
      return facing(side.geom, s, side.data, v, side.n, how != CUT)
    if how == VERTEX:
      return nearest_vertex(side.geom, s, side.data, v)
    return nearest_edge(side.geom, s, side.data, v, zero)  # across n or not
  if (kind == GeomType.CAPSULE or kind == GeomType.CYLINDER) and how == VERTEX:
    return simple_feature(EDGE, wp.vec3(0.0, 0.0, side_of(v[2])), up, zero)
  if (kind == GeomType.CAPSULE or kind == GeomType.CYLINDER) and how == CUT:
    return simple_feature(EDGE, zero, up, zero)
  return simple_feature(NONE, zero, zero, zero)


@wp.func
def make_side(geom: Geom, data: int, margin: float, w: wp.vec3, n: wp.vec3) -> ContactSide:
  """A ContactSide from world coordinates."""
  side = ContactSide()
  side.geom = geom
  side.data = data
  side.margin = margin
  side.w = wp.transpose(geom.rot) @ (w - geom.pos)
  side.n = wp.transpose(geom.rot) @ n
  return side
