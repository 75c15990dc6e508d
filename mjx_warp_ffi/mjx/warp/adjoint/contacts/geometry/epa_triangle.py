"""Contacts of polytopes at which EPA stopped early, as functions of the triangle it stopped at.

EPA expands a polytope of differences a - b of vertices of the two geoms, and its contact is the
projection of the origin to the nearest triangle. Mostly that is a face against a vertex or an edge
against an edge. Where it is neither, which happens on height fields, the triangle is found again:
its three differences are those that lie in the plane across the normal at the depth of the contact.
The features hold three vertices each, in the fields `point`, `direction` and `normal`.
"""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import scale
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Feature, Geom
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Projection:
  """The projection of the origin to a triangle of differences."""

  normal: wp.vec3
  dist: float
  pos: wp.vec3


@wp.func
def _vertices(geom: Geom, feature: Feature) -> wp.mat33:
  """The three vertices of a feature in the world, in rows."""
  s = scale(geom)
  return wp.matrix_from_rows(
    geom.pos + geom.rot @ wp.cw_mul(s, feature.point),
    geom.pos + geom.rot @ wp.cw_mul(s, feature.direction),
    geom.pos + geom.rot @ wp.cw_mul(s, feature.normal),
  )


@wp.func
def triangle_projection(a: Geom, b: Geom, fa: Feature, fb: Feature, like: wp.vec3) -> Projection:
  """Distance, midpoint and normal (turned to `like`) by the triangle of vertices of a less b."""
  va = _vertices(a, fa)
  vb = _vertices(b, fb)
  d0 = va[0] - vb[0]
  e1 = va[1] - vb[1] - d0
  e2 = va[2] - vb[2] - d0
  cross = wp.cross(e1, e2)
  area = wp.length_sq(cross)
  n = wp.normalize(cross)
  if wp.dot(n, like) < 0.0:
    n = -n
  foot = n * wp.dot(n, d0)
  # weights of the three corners at the foot of the origin
  t1 = wp.dot(wp.cross(foot - d0, e2), cross) / area
  t2 = wp.dot(wp.cross(e1, foot - d0), cross) / area
  wa = va[0] + (va[1] - va[0]) * t1 + (va[2] - va[0]) * t2
  wb = vb[0] + (vb[1] - vb[0]) * t1 + (vb[2] - vb[0]) * t2
  found = Projection()
  found.normal = n
  # the padding of b, on a height field with a margin, is along the normal of a contact this flat
  found.dist = -wp.dot(n, d0) - fb.pad
  found.pos = 0.5 * (wa + wb - n * fb.pad)
  return found
