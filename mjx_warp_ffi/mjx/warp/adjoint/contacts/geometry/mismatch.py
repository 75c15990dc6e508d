"""How well a contact that features give explains the one that MJWarp found."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import ContactPlace
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False})

ROUNDING = wp.constant(5.0e-6)  # of positions, relative to the size of the geoms


@struct
class SoughtContact:
  """The contact of MJWarp's that features are to explain, and how well they can.

  `length` is the size of the geoms there, `noise` that of the normal, `depth_weight` what an error
  of the depth counts: on ellipsoids and cylinders EPA may stop far from the surface, with a good
  normal.
  """

  contact: ContactPlace
  length: float
  noise: float
  depth_weight: float


@wp.func
def mismatch(found: ContactPlace, sought: SoughtContact) -> float:
  """How far a contact is from MJWarp's, relative to the size of the geoms; 0 within rounding."""
  n = sought.contact.frame[0]
  turn = wp.length(found.frame[0] - n)
  offset = found.pos - sought.contact.pos
  depth = wp.abs(found.dist - sought.contact.dist) + wp.abs(wp.dot(offset, n))
  away = wp.length(offset - n * wp.dot(offset, n)) + sought.depth_weight * depth
  if wp.isnan(turn + away):
    return 1.0e30
  return wp.max(turn - sought.noise, 0.0) + wp.max(away / sought.length - ROUNDING, 0.0)
