"""Capsule and box: up to two spheres on the capsule's axis, each against the box.

MJWarp puts a sphere at the point of the axis nearest to the box and, if the capsule lies along the
box, a second one further on. In units of the half axis these points are at s1 and s2, and each
comes from one of a few formulas. Warp's reverse mode through MJWarp's search for them gives wrong
derivatives with respect to the size of the box, so a kernel without one finds which formula gave
the points, and `capsule_box` evaluates that formula alone.

A code is code1 + 32 code2. With p + s h the axis in the frame of the box and b its half sizes:
  code1: s1 is an end (0, 1), nearest to edge j (2 + 4 j + signs), nearest to a corner (14 + signs)
  code2: s2 is an end (0, 1), where the axis crosses a plane x_k = +-b_k (2 + 2 k + sign), or as far
         from s1 as the box is wide along k (8 + 2 k + sign)
It is -1 where no formula fits; the contact is then NaN.
"""

import warp as wp
from mujoco_warp import GeomType
from mujoco_warp._src import collision_primitive_core as core
from mujoco_warp._src.math import make_frame

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import (
  ContactPlace,
  Geom,
  load_geom,
  make_contact,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool

NEARNESS = wp.constant(1.0e-5)  # weight of how near a feature is, beside how well it fits
MISFIT = wp.constant(1.0e-3)  # beyond which no formula counts as found

_TINY = wp.constant(1.0e-12)


@wp.func
def _corner(signs: int, size: wp.vec3) -> wp.vec3:
  """A corner of a box of half sizes `size`; bit k of `signs` is set for +size[k]."""
  # by a product: Warp's reverse mode through `corner[0] = size[0]` under an `if` is wrong
  x = 2.0 * float(signs & 1) - 1.0
  y = float(signs & 2) - 1.0
  z = 0.5 * float(signs & 4) - 1.0
  return wp.cw_mul(wp.vec3(x, y, z), size)


@wp.func
def _edge_signs(code: int) -> int:
  """The corner at one end of an edge, of code 4 j + two sign bits of the other axes."""
  bits = code & 3
  if code < 4:
    return bits << 1
  if code < 8:
    return (bits & 1) | ((bits & 2) << 1)
  return bits


@wp.func
def _first(code: int, p: wp.vec3, h: wp.vec3, size: wp.vec3) -> float:
  """The parameter s1 of the first sphere."""
  if code < 2:
    return 2.0 * float(code) - 1.0
  if code >= 14:
    to_corner = _corner(code - 14, size) - p
    return wp.dot(h, to_corner) / wp.max(wp.dot(h, h), _TINY)
  j = (code - 2) // 4
  to_edge = _corner(_edge_signs(code - 2), size) - p
  across = wp.dot(h, h) - h[j] * h[j]
  return (wp.dot(h, to_edge) - h[j] * to_edge[j]) / wp.max(across, _TINY)


@wp.func
def _second(code: int, s1: float, p: wp.vec3, h: wp.vec3, size: wp.vec3) -> float:
  """The parameter s2 of the second sphere."""
  if code < 2:
    return 2.0 * float(code) - 1.0
  sign = 2.0 * float(code & 1) - 1.0
  k = ((code - 2) // 2) % 3
  slope = h[k]
  if wp.abs(slope) < _TINY:
    return 1.0e6
  if code < 8:
    return (sign * size[k] - p[k]) / slope
  return s1 + sign * 2.0 * size[k] / wp.abs(slope)


@wp.func
def _sphere(a: Geom, b: Geom, s: float) -> ContactPlace:
  """The sphere at s on the axis of capsule `a` against box `b`."""
  center = a.pos + a.axis * (a.size[1] * s)
  dist, pos, normal = core.sphere_box(center, a.size[0], b.pos, b.rot, b.size)
  return make_contact(dist, pos, make_frame(normal))


@wp.func
def capsule_box(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A capsule and a box, the contact of `slot` by the formulas of `code`."""
  p = wp.transpose(b.rot) @ (a.pos - b.pos)
  h = wp.transpose(b.rot) @ a.axis * a.size[1]
  s = _first(code & 31, p, h, b.size)
  if slot == 1:
    s = _second(code >> 5, s, p, h, b.size)
  if code < 0:
    s = wp.nan
  return _sphere(a, b, s)


@wp.func
def _parameter(a: Geom, dist: float, pos: wp.vec3, normal: wp.vec3) -> float:
  """Where on the axis of capsule `a` the sphere of a contact sits."""
  center = pos - normal * (a.size[0] + 0.5 * dist)
  return wp.dot(center - a.pos, a.axis) / wp.max(a.size[1], _TINY)


@wp.func
def _find_first(s: float, p: wp.vec3, h: wp.vec3, size: wp.vec3) -> int:
  """The code of the formula that gives `s`; of those that do, of the nearest feature."""
  best = wp.float32(1.0e30)
  found = wp.int32(0)
  point = p + s * h
  for code in range(22):
    error = wp.abs(_first(code, p, h, size) - s)
    away = wp.float32(0.0)
    if code >= 2:
      corner = _corner(code - 14, size)
      if code < 14:
        corner = _corner(_edge_signs(code - 2), size)
      offset = corner - point
      if code < 14:
        offset[(code - 2) // 4] = 0.0
      away = wp.length(offset) / wp.length(size)
    if error + NEARNESS * away < best:
      best = error + NEARNESS * away
      found = code
  return found


@wp.func
def _find_second(s: float, s1: float, p: wp.vec3, h: wp.vec3, size: wp.vec3) -> int:
  """The code of the formula that gives `s`."""
  best = wp.float32(1.0e30)
  found = wp.int32(0)
  for code in range(14):
    error = wp.abs(_second(code, s1, p, h, size) - s)
    if error < best:
      best = error
      found = code
  return found


@wp.kernel(enable_backward=False)
def capsule_box_codes(
  # In:
  pool: ContactPool,
  # Data in:
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  # Model:
  geom_size: wp.array2d[wp.vec3],
  # Out:
  code_out: wp.array[int],
):
  """Finds which formulas gave the contacts of capsules with boxes."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  g = pool.geom[i]
  if g[0] < 0 or g[1] < 0:
    return
  if pool.geom_type[g[0]] != GeomType.CAPSULE or pool.geom_type[g[1]] != GeomType.BOX:
    return
  a = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 0)
  b = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 1)
  dist, pos, normal = core.capsule_box(a.pos, a.axis, a.size[0], a.size[1], b.pos, b.rot, b.size)
  p = wp.transpose(b.rot) @ (a.pos - b.pos)
  h = wp.transpose(b.rot) @ a.axis * a.size[1]
  s1 = _parameter(a, dist[0], pos[0], normal[0])
  first = _find_first(s1, p, h, b.size)
  misfit = wp.abs(_first(first, p, h, b.size) - s1)
  second = wp.int32(0)
  if pool.slot[i] == 1:
    s1 = _first(first, p, h, b.size)
    s2 = _parameter(a, dist[1], pos[1], normal[1])
    second = _find_second(s2, s1, p, h, b.size)
    misfit = wp.abs(_second(second, s1, p, h, b.size) - s2)
  code_out[i] = first + 32 * second
  if misfit > MISFIT:
    code_out[i] = -1
