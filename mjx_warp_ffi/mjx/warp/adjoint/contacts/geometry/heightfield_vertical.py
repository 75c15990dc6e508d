"""Contacts deep in a height field, where MJWarp measures along the field's vertical.

Where EPA ends at a triangle whose three points on a prism lie on its top and on its bottom, MJWarp
takes a point of the other geom instead (a vertex, or the lowest point under an end of a capsule)
and the point of the prism's top above or below it; beside the prism, one at the height of a corner.
The contact is those two points: the top or the height is the FACE of the field here, and the normal
is the vertical, up or down.
"""

import warp as wp
from mujoco_warp import GeomType

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import FACE, point_of, radius
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Feature, Geom
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Vertical:
  """A point of the other geom, and how far the top of the field is above it."""

  point: wp.vec3
  gap: float


@wp.func
def vertical_gap(a: Geom, b: Geom, fa: Feature, fb: Feature) -> Vertical:
  """The two points of a contact of field a with a point of b."""
  found = Vertical()
  found.point = point_of(b, fb)
  if b.kind == GeomType.SPHERE or b.kind == GeomType.CAPSULE:
    found.point = found.point - a.axis * radius(b, fb)
  n = a.rot @ fa.normal
  found.gap = wp.dot(point_of(a, fa) - found.point, n) / wp.dot(a.axis, n)
  return found


@wp.func
def plane_feature(point: wp.vec3, normal: wp.vec3) -> Feature:
  """A FACE by a point and a normal in the frame of the geom."""
  found = Feature()
  found.kind = FACE
  found.point = point
  found.normal = normal
  return found
