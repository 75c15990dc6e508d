"""Features of convex geoms, and the normal that two of them define.

A feature has one of five kinds. Points are given in units of the geom's size (`scale`), so that
they move with it; directions and normals are unit vectors.

  POINT      a vertex of a box, mesh or prism, the centre of a sphere, a point of an axis
  EDGE       a straight line: an edge, the axis of a capsule, the side of a cylinder
  FACE       a plane: a face of a box, mesh or prism, the cap of a cylinder
  RIM        the circle around the cap of a cylinder
  ELLIPSOID  its surface

Spheres, capsules and sides of cylinders have a radius around their point or line.

Between two such surfaces the normal n from the first to the second is where their separation
along n is stationary. A face fixes n. Otherwise two equations do, in the plane across n: an edge d
gives n . d = 0; where the other feature is no edge, the line between the witness points has no part
across n. Newton's method finds n in a kernel without derivatives; one more step of it with a
frozen matrix, `refined_normal`, has the value n and, by the implicit function theorem, its
derivatives.
"""

import warp as wp
from mujoco_warp import GeomType
from mujoco_warp._src.math import make_frame

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Feature, Geom

POINT = wp.constant(0)
EDGE = wp.constant(1)
FACE = wp.constant(2)
RIM = wp.constant(3)
ELLIPSOID = wp.constant(4)


@wp.func
def scale(geom: Geom) -> wp.vec3:
  """The lengths that a feature's point is given in."""
  if geom.kind == GeomType.BOX or geom.kind == GeomType.ELLIPSOID:
    return geom.size
  if geom.kind == GeomType.CAPSULE or geom.kind == GeomType.CYLINDER:
    return wp.vec3(geom.size[0], geom.size[0], geom.size[1])
  return wp.vec3(1.0, 1.0, 1.0)


@wp.func
def radius(geom: Geom, feature: Feature) -> float:
  """How far the surface is from the feature's point or line."""
  if geom.kind == GeomType.SPHERE or geom.kind == GeomType.CAPSULE:
    return geom.size[0] + feature.pad
  if geom.kind == GeomType.CYLINDER and (feature.kind == EDGE or feature.kind == POINT):
    return geom.size[0] + feature.pad
  return feature.pad


@wp.func
def point_of(geom: Geom, feature: Feature) -> wp.vec3:
  """The feature's point in the world."""
  return geom.pos + geom.rot @ wp.cw_mul(scale(geom), feature.point)


@wp.func
def support(geom: Geom, feature: Feature, n: wp.vec3) -> wp.vec3:
  """The point of the feature, without its radius, that is furthest along n."""
  if feature.kind == ELLIPSOID:
    q = wp.cw_mul(geom.size, wp.transpose(geom.rot) @ n)
    return geom.pos + geom.rot @ (wp.cw_mul(geom.size, q) / wp.length(q))
  if feature.kind == RIM:
    across = n - geom.axis * wp.dot(geom.axis, n)
    return point_of(geom, feature) + across * (geom.size[0] / wp.length(across))
  return point_of(geom, feature)


@wp.func
def support_rate(geom: Geom, feature: Feature, n: wp.vec3, rate: wp.vec3) -> wp.vec3:
  """The derivative of `support` along a change of n."""
  if feature.kind == ELLIPSOID:
    q = wp.cw_mul(geom.size, wp.transpose(geom.rot) @ n)
    dq = wp.cw_mul(geom.size, wp.transpose(geom.rot) @ rate)
    length = wp.length(q)
    turn = dq / length - q * (wp.dot(q, dq) / (length * length * length))
    return geom.rot @ wp.cw_mul(geom.size, turn)
  if feature.kind == RIM:
    across = n - geom.axis * wp.dot(geom.axis, n)
    change = rate - geom.axis * wp.dot(geom.axis, rate)
    length = wp.length(across)
    turn = change / length - across * (wp.dot(across, change) / (length * length * length))
    return turn * geom.size[0]
  return wp.vec3(0.0)


@wp.func
def residual(a: Geom, b: Geom, fa: Feature, fb: Feature, n: wp.vec3) -> wp.vec2:
  """The two equations for the normal, zero where n is right; neither feature is a face."""
  da = a.rot @ fa.direction
  db = b.rot @ fb.direction
  gap = support(b, fb, -n) - support(a, fa, n)
  if fa.kind == EDGE and fb.kind == EDGE:
    return wp.vec2(wp.dot(n, da), wp.dot(n, db))
  if fa.kind == EDGE:
    return wp.vec2(wp.dot(n, da), wp.dot(gap, wp.cross(n, da)))
  if fb.kind == EDGE:
    return wp.vec2(wp.dot(gap, wp.cross(n, db)), wp.dot(n, db))
  frame = make_frame(n)
  return wp.vec2(wp.dot(gap, frame[1]), wp.dot(gap, frame[2]))


@wp.func
def residual_rate(a: Geom, b: Geom, fa: Feature, fb: Feature, n: wp.vec3, rate: wp.vec3) -> wp.vec2:
  """The derivative of `residual` along a change of n across itself."""
  da = a.rot @ fa.direction
  db = b.rot @ fb.direction
  gap = support(b, fb, -n) - support(a, fa, n)
  change = support_rate(b, fb, -n, -rate) - support_rate(a, fa, n, rate)
  if fa.kind == EDGE and fb.kind == EDGE:
    return wp.vec2(wp.dot(rate, da), wp.dot(rate, db))
  if fa.kind == EDGE:
    across = wp.dot(change, wp.cross(n, da)) + wp.dot(gap, wp.cross(rate, da))
    return wp.vec2(wp.dot(rate, da), across)
  if fb.kind == EDGE:
    across = wp.dot(change, wp.cross(n, db)) + wp.dot(gap, wp.cross(rate, db))
    return wp.vec2(across, wp.dot(rate, db))
  frame = make_frame(n)
  depth = wp.dot(gap, n)
  return wp.vec2(
    wp.dot(change, frame[1]) - depth * wp.dot(rate, frame[1]),
    wp.dot(change, frame[2]) - depth * wp.dot(rate, frame[2]),
  )


@wp.func
def newton_inverse(a: Geom, b: Geom, fa: Feature, fb: Feature, n: wp.vec3) -> wp.mat22:
  """The inverse of the matrix of `residual_rate` along the two tangents; zero if singular."""
  frame = make_frame(n)
  one = residual_rate(a, b, fa, fb, n, frame[1])
  two = residual_rate(a, b, fa, fb, n, frame[2])
  det = one[0] * two[1] - two[0] * one[1]
  size = wp.max(wp.length(one), wp.length(two))
  if wp.abs(det) < 1.0e-10 * size * size + 1.0e-30:
    return wp.mat22(0.0, 0.0, 0.0, 0.0)
  return wp.mat22(two[1], -two[0], -one[1], one[0]) / det


@wp.func
def refined_normal(
  a: Geom, b: Geom, fa: Feature, fb: Feature, start: wp.vec3, inverse: wp.mat22
) -> wp.vec3:
  """The normal from a to b: a face's, or one Newton step from `start` with a frozen matrix."""
  if fa.kind == FACE:
    return a.rot @ fa.normal
  if fb.kind == FACE:
    return -(b.rot @ fb.normal)
  step = inverse @ residual(a, b, fa, fb, start)
  frame = make_frame(start)
  return wp.normalize(start - frame[1] * step[0] - frame[2] * step[1])
