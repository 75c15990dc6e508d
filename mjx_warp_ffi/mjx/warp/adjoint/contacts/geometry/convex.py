"""Contacts of the pairs that MJWarp solves with GJK and EPA, as functions of frozen features.

A few rules give a contact from its features (`classify` finds rule and features):

* SINGLE: one pair of witness points, on the features that fix the normal.
* CLIPPED: one of several contacts of two faces, or of a face and an edge. MJWarp clips one polygon
  (or edge) against the sides of the reference face. A contact is then a vertex of the clipped
  polygon: VERTEX, one of its own; CUT, where its edge crosses a side of the reference face; CORNER,
  over a corner of the reference face. It is projected to the reference face along the face's
  normal, and from there measured along the normal of the contact: that of the reference face, or,
  for two faces in GJK and EPA, that of the second geom's face (a MJWarp convention: the two are
  within 5 degrees).
* TRIANGLE: the projection of the origin to three differences of vertices, see `epa_triangle`.
* VERTICAL: a point and what is above or below it, see `heightfield_vertical`.
"""

import warp as wp
from mujoco_warp import GeomType

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.epa_triangle import triangle_projection
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import (
  EDGE,
  FACE,
  point_of,
  radius,
  refined_normal,
  support,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.heightfield_vertical import vertical_gap
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import (
  ContactPlace,
  Feature,
  Frozen,
  Geom,
  load_geom,
  make_contact,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

# The rule of a contact. CLIPPED is 2 + 3 * which + how, where `which` is the reference face: the
# first geom's with the normal of the second's (0), the first's (1), the second's (2).
UNKNOWN = wp.constant(-1)  # keeps MJWarp's values, and its gradient is not known
ELSEWHERE = wp.constant(0)  # a closed form of `primitives`
SINGLE = wp.constant(1)
CLIPPED = wp.constant(2)
TRIANGLE = wp.constant(11)
VERTICAL = wp.constant(12)
VERTEX = wp.constant(0)
CUT = wp.constant(1)
CORNER = wp.constant(2)


@struct
class Hint:
  """What of a contact is known and constant besides its features.

  `normal` is MJWarp's, which chose the tangents; `start` and `inverse` give the normal of a single
  contact; where a side of a capsule or cylinder is clipped, `start` is the way from its axis to the
  surface, `touched` what of the other geom it was found to touch (a face, an edge or a vertex), and
  `touching` with what (its side, or an end of its axis).
  """

  normal: wp.vec3
  start: wp.vec3
  inverse: wp.mat22
  touched: Feature
  touching: Feature


@wp.func
def _contact(dist: float, pos: wp.vec3, n: wp.vec3, like: wp.vec3) -> ContactPlace:
  """A contact with MJWarp's choice of tangents, and of the normal's sign, for a normal `like` n.

  The sign is the other one where a height field's raised surface is near, but not touched.
  """
  if wp.dot(n, like) < 0.0:
    n = -n
  reference = wp.vec3(0.0, 0.0, 1.0)
  if wp.abs(like[1]) < 0.5:
    reference = wp.vec3(0.0, 1.0, 0.0)
  tangent = wp.normalize(reference - n * wp.dot(n, reference))
  return make_contact(dist, pos, wp.matrix_from_rows(n, tangent, wp.cross(n, tangent)))


@wp.func
def single_contact(a: Geom, b: Geom, fa: Feature, fb: Feature, hint: Hint) -> ContactPlace:
  """The contact of two features by the normal that they define."""
  n = refined_normal(a, b, fa, fb, hint.start, hint.inverse)
  pa = support(a, fa, n)
  pb = support(b, fb, -n)
  dist = wp.dot(pb - pa, n) - radius(a, fa) - radius(b, fb)
  pos = wp.vec3(0.0)
  if fa.kind == FACE or (fa.kind == EDGE and fb.kind != EDGE):
    pos = pb - n * (radius(b, fb) + 0.5 * dist)
  elif fa.kind == EDGE and fb.kind == EDGE:
    da = a.rot @ fa.direction
    db = b.rot @ fb.direction
    along = wp.dot(da, db)
    s = (wp.dot(da, pb - pa) - along * wp.dot(db, pb - pa)) / (1.0 - along * along)
    pos = pa + da * s + n * (radius(a, fa) + 0.5 * dist)
  else:
    pos = pa + n * (radius(a, fa) + 0.5 * dist)
  return _contact(dist, pos, n, hint.normal)


@wp.func
def _touch_normal(a: Geom, b: Geom, hint: Hint) -> wp.vec3:
  """The normal where capsule or cylinder b touches an edge or a vertex of a, from b outwards."""
  edge = a.rot @ hint.touched.direction
  away = point_of(a, hint.touched) - point_of(b, hint.touching)
  n = away
  if hint.touching.kind == EDGE and hint.touched.kind == EDGE:
    n = wp.cross(b.axis, edge)
  elif hint.touching.kind == EDGE:
    n = away - b.axis * wp.dot(b.axis, away)
  elif hint.touched.kind == EDGE:
    n = away - edge * wp.dot(edge, away)
  if wp.dot(n, hint.start) < 0.0:
    n = -n
  return wp.normalize(n)


@wp.func
def _side_offset(a: Geom, b: Geom, fa: Feature, fb: Feature, hint: Hint) -> wp.vec3:
  """From the axis of capsule or cylinder b to the line on its side that is clipped.

  MJWarp takes the line through its first witness point. The normal there is not that of the face
  if it found b to touch an edge or a vertex of a.
  """
  if b.kind != GeomType.CAPSULE and not (b.kind == GeomType.CYLINDER and fb.kind == EDGE):
    return wp.vec3(0.0)
  n = -(a.rot @ fa.normal)
  if hint.touched.kind != FACE:
    n = _touch_normal(a, b, hint)
  across = n - b.axis * wp.dot(b.axis, n)
  if b.kind == GeomType.CYLINDER:
    return wp.normalize(across) * b.size[0]
  # a capsule's line is that of the inflated capsule, taken back along the normal of the face
  return across * (b.size[0] + fb.pad) + a.rot @ fa.normal * fb.pad


@wp.func
def _clipped_point(a: Geom, b: Geom, fa: Feature, fb: Feature, how: int, hint: Hint) -> wp.vec3:
  """A vertex of what is left of b's face or edge over the face of a."""
  normal = a.rot @ fa.normal
  corner = point_of(a, fa)
  if how == CORNER:
    other = b.rot @ fb.normal
    height = wp.dot(point_of(b, fb) - corner, other) / wp.dot(normal, other)
    return corner + normal * height
  point = point_of(b, fb) + _side_offset(a, b, fa, fb, hint)
  if how == VERTEX:
    return point
  side = wp.cross(a.rot @ fa.direction, normal)
  line = b.rot @ fb.direction
  return point + line * (wp.dot(corner - point, side) / wp.dot(line, side))


@wp.func
def clipped_contact(
  a: Geom, b: Geom, fa: Feature, fb: Feature, rule: int, hint: Hint
) -> ContactPlace:
  """A contact on the face of a, which is the second geom if the rule says so."""
  which = (rule - CLIPPED) // 3
  v = _clipped_point(a, b, fa, fb, (rule - CLIPPED) % 3, hint)
  normal = a.rot @ fa.normal
  inward = -normal
  if which == 0:
    inward = b.rot @ fb.normal
  height = wp.dot(v - point_of(a, fa), normal)
  foot = v - normal * height
  dist = -height * wp.dot(normal, inward)
  pos = foot - inward * (0.5 * dist)
  if which == 2:
    return _contact(dist, pos, inward, hint.normal)
  return _contact(dist, pos, -inward, hint.normal)


@wp.func
def triangle_contact(a: Geom, b: Geom, fa: Feature, fb: Feature, hint: Hint) -> ContactPlace:
  """The contact at the triangle of differences of vertices where EPA stopped."""
  found = triangle_projection(a, b, fa, fb, hint.normal)
  return _contact(found.dist, found.pos, found.normal, hint.normal)


@wp.func
def vertical_contact(a: Geom, b: Geom, fa: Feature, fb: Feature, hint: Hint) -> ContactPlace:
  """The contact of a point of b with what is above or below it of height field a."""
  found = vertical_gap(a, b, fa, fb)
  pos = found.point + a.axis * (0.5 * found.gap)
  return _contact(-wp.abs(found.gap), pos, a.axis, hint.normal)


@wp.func
def load_feature(frozen: Frozen, i: int, j: int) -> Feature:
  """The feature of geom j of contact i; those of a `Hint` for j = 2 and 3."""
  feature = Feature()
  feature.kind = frozen.kind[i, j]
  feature.point = frozen.point[i, j]
  feature.direction = frozen.direction[i, j]
  feature.normal = frozen.normal[i, j]
  feature.pad = frozen.pad[i, j]
  return feature


@wp.kernel(enable_backward=True)
def convex_contacts(
  # In:
  pool: ContactPool,
  frozen: Frozen,
  # Data in:
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  # Model:
  geom_size: wp.array2d[wp.vec3],
  # Out:
  dist_out: wp.array[float],
  pos_out: wp.array[wp.vec3],
  frame_out: wp.array[wp.mat33],
):
  """Evaluates the contacts that have a rule."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  rule = frozen.rule[i]
  if rule == ELSEWHERE:
    return
  if rule == UNKNOWN:
    dist_out[i] = pool.dist[i]
    pos_out[i] = pool.pos[i]
    frame_out[i] = pool.frame[i]
    return
  a = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 0)
  b = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 1)
  fa = load_feature(frozen, i, 0)
  fb = load_feature(frozen, i, 1)
  hint = Hint()
  hint.normal = pool.frame[i][0]
  hint.start = frozen.start[i]
  hint.inverse = frozen.inverse[i]
  hint.touched = load_feature(frozen, i, 2)
  hint.touching = load_feature(frozen, i, 3)
  contact = ContactPlace()
  if rule == SINGLE:
    contact = single_contact(a, b, fa, fb, hint)
  elif rule == TRIANGLE:
    contact = triangle_contact(a, b, fa, fb, hint)
  elif rule == VERTICAL:
    contact = vertical_contact(a, b, fa, fb, hint)
  elif rule >= CLIPPED + 6:
    contact = clipped_contact(b, a, fb, fa, rule, hint)
  else:
    contact = clipped_contact(a, b, fa, fb, rule, hint)
  dist_out[i] = contact.dist
  pos_out[i] = contact.pos
  frame_out[i] = contact.frame


@wp.kernel(enable_backward=False)
def refine_contacts(
  # Data out:
  pool: ContactPool,
  # In:
  frozen: Frozen,
  dist: wp.array[float],
  pos: wp.array[wp.vec3],
  frame: wp.array[wp.mat33],
):
  """Replaces MJWarp's contacts by those that `convex_contacts` gave."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  if frozen.rule[i] != ELSEWHERE and frozen.rule[i] != UNKNOWN:
    pool.dist[i] = dist[i]
    pool.pos[i] = pos[i]
    pool.frame[i] = frame[i]
