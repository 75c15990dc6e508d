"""The structs that the kernels of the contact geometry share."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Geom:
  """A geom of one contact: its type, pose and size, and the axis z of its frame."""

  kind: int
  pos: wp.vec3
  rot: wp.mat33
  size: wp.vec3
  axis: wp.vec3


@struct
class ContactPlace:
  """Where a contact is: its distance, its point, and its frame as rows."""

  dist: float
  pos: wp.vec3
  frame: wp.mat33


@wp.func
def make_geom(kind: int, pos: wp.vec3, rot: wp.mat33, size: wp.vec3) -> Geom:
  """A Geom with its z axis filled in."""
  geom = Geom()
  geom.kind = kind
  geom.pos = pos
  geom.rot = rot
  geom.size = size
  geom.axis = wp.vec3(rot[0, 2], rot[1, 2], rot[2, 2])
  return geom


@wp.func
def load_geom(
  pool: ContactPool,
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  geom_size: wp.array2d[wp.vec3],
  i: int,
  j: int,
) -> Geom:
  """Geom j (0 or 1) of contact i."""
  g = pool.geom[i][j]
  w = pool.world[i]
  size = of_world(geom_size, w, g)
  return make_geom(pool.geom_type[g], geom_xpos[w, g], geom_xmat[w, g], size)


@wp.func
def make_contact(dist: float, pos: wp.vec3, frame: wp.mat33) -> ContactPlace:
  """A `ContactPlace` from its three parts."""
  contact = ContactPlace()
  contact.dist = dist
  contact.pos = pos
  contact.frame = frame
  return contact


@struct
class Feature:
  """What of a geom touches, in the frame of the geom; see `features`."""

  kind: int
  point: wp.vec3
  direction: wp.vec3
  normal: wp.vec3
  pad: float


@struct
class Frozen:
  """The features of every contact of the pool, and what is known of the normal there.

  The third and fourth of a contact say what a capsule or cylinder touches of the other geom, and
  with what, if its side is clipped. `start` and `inverse` are the normal and its Newton matrix.
  """

  rule: wp.array[int]
  kind: wp.array2d[int]
  point: wp.array2d[wp.vec3]
  direction: wp.array2d[wp.vec3]
  normal: wp.array2d[wp.vec3]
  pad: wp.array2d[float]
  start: wp.array[wp.vec3]
  inverse: wp.array[wp.mat22]


@struct
class Surfaces:
  """MJWarp's meshes and height fields, as the search for features reads them."""

  geom_dataid: wp.array2d[int]
  vertadr: wp.array[int]
  vertnum: wp.array[int]
  vert: wp.array[wp.vec3]
  polynum: wp.array[int]
  polyadr: wp.array[int]
  polynormal: wp.array[wp.vec3]
  polyvertadr: wp.array[int]
  polyvertnum: wp.array[int]
  polyvert: wp.array[int]
  hfield_size: wp.array[wp.vec4]
  hfield_nrow: wp.array[int]
  hfield_ncol: wp.array[int]
  hfield_adr: wp.array[int]
  hfield_data: wp.array[float]


@wp.func
def poison(
  world: int,
  geom: int,
  grad_geom_xpos: wp.array2d[wp.vec3],
  grad_geom_xmat: wp.array2d[wp.mat33],
  grad_geom_size: wp.array2d[wp.vec3],
):
  """Makes NaN of all that a contact without a rule has a gradient by."""
  unknown = wp.vec3(wp.nan, wp.nan, wp.nan)
  grad_geom_xpos[world, geom] = unknown
  grad_geom_xmat[world, geom] = wp.matrix_from_rows(unknown, unknown, unknown)
  if grad_geom_size.shape[0] > 0:
    grad_geom_size[world % grad_geom_size.shape[0], geom] = unknown
