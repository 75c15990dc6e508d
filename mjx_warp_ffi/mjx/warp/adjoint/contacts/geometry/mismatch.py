"""How well a contact that features give explains the one that MJWarp found."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Contact

wp.set_module_options({"enable_backward": False})

ROUNDING = wp.constant(5.0e-6)  # of positions, relative to the size of the geoms


@wp.struct
class Truth:
  """MJWarp's contact, the size of the geoms there, and how noisy it is.

  `noise` is that of the normal, `depth_weight` what an error of the depth counts: on ellipsoids and
  cylinders EPA may stop far from the surface, with a good normal.
  """

  contact: Contact
  length: float
  noise: float
  depth_weight: float


@wp.func
def mismatch(found: Contact, truth: Truth) -> float:
  """How far a contact is from MJWarp's, relative to the size of the geoms; 0 within rounding."""
  n = truth.contact.frame[0]
  turn = wp.length(found.frame[0] - n)
  offset = found.pos - truth.contact.pos
  depth = wp.abs(found.dist - truth.contact.dist) + wp.abs(wp.dot(offset, n))
  away = wp.length(offset - n * wp.dot(offset, n)) + truth.depth_weight * depth
  if wp.isnan(turn + away):
    return 1.0e30
  return wp.max(turn - truth.noise, 0.0) + wp.max(away / truth.length - ROUNDING, 0.0)
