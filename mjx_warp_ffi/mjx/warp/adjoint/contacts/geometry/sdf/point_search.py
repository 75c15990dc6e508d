"""MJWarp's search for the contacts of an SDF, run once more and written down.

From points spread over the boxes' overlap MJWarp goes downhill: `sdf_iterations` steps on one
function of the two distances, one step on their maximum. Each step is x - w1 s1 - w2 s2, where s1
and s2 are the slopes of the two fields and the weights w hold the length that a line search chose
from powers of two. Where the last point is there is a contact. `path` and `weight` keep the points
and the weights of the search that found a contact; the last weight says which of the two distances
the contact has. Which start that was is found by trying all of the pair's, since the pool does not
say.
"""

import warp as wp
from mujoco_warp._src import collision_sdf
from mujoco_warp._src.math import make_frame
from mujoco_warp._src.util_misc import halton

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.sdf.distance_field import (
  DistanceFields,
  Shape,
  make_shape,
  slope,
  value,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import ContactPlace, make_contact
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False, "max_unroll": 1})

SAME = wp.constant(1.0e-4)  # mismatch of two contacts, relative to the SDF's size, that are one
NONE = wp.constant(-1)
# MJWarp's: the square of a slope at which a step ends, the length at which a line search does, and
# how much of what the slope promises is enough.
_FLAT = wp.constant(1.0e-12)
_SHORTEST = wp.constant(1.0e-4)
_ENOUGH = wp.constant(0.1)


@struct
class Searches:
  """The pairs of geoms, the contacts of each, and the searches that found them.

  `first` and `following` chain the contacts of a pair; `start` is the number of a contact's start.
  """

  pair: wp.array[wp.vec2i]
  pair_of: wp.array2d[int]
  iterations: int
  longest: float  # twice the first step, as MJWarp's launch has it
  first: wp.array2d[int]
  following: wp.array[int]
  start: wp.array[int]
  path: wp.array2d[wp.vec3]
  weight: wp.array2d[wp.vec2]


@struct
class Duo:
  """Two geoms: their fields, and the pose of the second in the frame of the first."""

  a: Shape
  b: Shape
  rel_pos: wp.vec3
  rel_mat: wp.mat33
  pos: wp.vec3
  rot: wp.mat33


@struct
class Point:
  """A point of a search, in the frame of the second geom, and the distance there.

  `weight` is how much of the two slopes the step to it took away.
  """

  x: wp.vec3
  dist: float
  weight: wp.vec2


@wp.func
def make_duo(
  fields: DistanceFields,
  g: wp.vec2i,
  world: int,
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  geom_size: wp.array2d[wp.vec3],
) -> Duo:
  """The two geoms of a contact."""
  row = world % geom_size.shape[0]
  duo = Duo()
  duo.a = make_shape(fields, g[0], world, geom_size[row, g[0]])
  duo.b = make_shape(fields, g[1], world, geom_size[row, g[1]])
  to_first = wp.transpose(geom_xmat[world, g[0]])
  duo.rel_mat = to_first * geom_xmat[world, g[1]]
  duo.rel_pos = to_first * (geom_xpos[world, g[1]] - geom_xpos[world, g[0]])
  duo.pos = geom_xpos[world, g[1]]
  duo.rot = geom_xmat[world, g[1]]
  return duo


@wp.func
def corner(duo: Duo, center: wp.vec3, half: wp.vec3, axis: int, side: float) -> wp.vec3:
  """The corner of the second geom's box that is furthest along an axis of the first, or least."""
  out = center
  for j in range(3):
    if duo.rel_mat[axis, j] < 0.0:
      out[j] = center[j] - side * half[j]
    else:
      out[j] = center[j] + side * half[j]
  return out


@wp.func
def bound(
  fields: DistanceFields, duo: Duo, g: wp.vec2i, world: int, axis: int, side: float
) -> wp.vec4:
  """An end of the boxes' overlap along an axis of the first geom.

  Returns:
    The corner of the second geom's box that it comes from, and 1; or zeros, if from the first's.
  """
  row = world % fields.geom_aabb.shape[0]
  own = fields.geom_aabb[row, g[0], 0][axis] + side * fields.geom_aabb[row, g[0], 1][axis]
  half = fields.geom_aabb[row, g[1], 1]
  c = corner(duo, fields.geom_aabb[row, g[1], 0], half, axis, side)
  other = wp.dot(duo.rel_mat[axis], c) + duo.rel_pos[axis]
  if side * other < side * own:
    return wp.vec4(c[0], c[1], c[2], 1.0)
  return wp.vec4(0.0)


@wp.func
def share(k: int, axis: int) -> float:
  """How far start k lies between the ends of the boxes' overlap along an axis."""
  base = wp.int32(2)
  if axis == 1:
    base = 3
  elif axis == 2:
    base = 5
  return halton(k, base)


@wp.func
def start_in_first(fields: DistanceFields, duo: Duo, g: wp.vec2i, world: int, k: int) -> wp.vec3:
  """Start k in the frame of the first geom."""
  row = world % fields.geom_aabb.shape[0]
  box = collision_sdf.transform_aabb(
    fields.geom_aabb[row, g[1], 0],
    fields.geom_aabb[row, g[1], 1],
    duo.rel_pos,
    duo.rel_mat,
  )
  center = fields.geom_aabb[row, g[0], 0]
  half = fields.geom_aabb[row, g[0], 1]
  low = wp.max(center - half, box.min)
  high = wp.min(center + half, box.max)
  h = wp.vec3(share(k, 0), share(k, 1), share(k, 2))
  return low + wp.cw_mul(high - low, h)


@wp.func
def _joined(a: float, b: float, last: bool) -> float:
  """The function of the two distances that a step goes down."""
  if last:
    return wp.max(a, b)
  return a + b + wp.abs(wp.max(a, b))


@wp.func
def advance(duo: Duo, x: wp.vec3, last: bool, longest: float) -> Point:
  """One step of the search, and in it the line search, which halves until it goes down enough."""
  p = duo.rel_mat * x + duo.rel_pos
  a = value(duo.a, p)
  b = value(duo.b, x)
  first = wp.transpose(duo.rel_mat) * slope(duo.a, p)
  second = slope(duo.b, x)
  weight = wp.vec2(0.0, 1.0)
  way = second
  if a > b:
    weight = wp.vec2(1.0, 0.0)
    way = first
  if not last:  # summed in MJWarp's order: the last bit decides where a search turns
    sign = wp.sign(wp.max(a, b))
    way = second + first + way * sign
    weight = weight * sign + wp.vec2(1.0, 1.0)
  point = Point()
  point.x = x
  point.dist = _joined(a, b, last)
  steep = wp.dot(way, way)
  if steep < _FLAT:
    return point
  length = wp.float32(longest)
  found = wp.vec3(0.0)
  dist = wp.float32(0.0)
  searching = wp.bool(True)
  while searching:
    length *= 0.5
    found = x - way * length
    dist = _joined(value(duo.a, duo.rel_mat * found + duo.rel_pos), value(duo.b, found), last)
    searching = length > _SHORTEST and dist - point.dist > -_ENOUGH * length * steep
  if dist <= point.dist:
    point.x = found
    point.dist = dist
    point.weight = weight * length
  return point


@wp.func
def contact_at(duo: Duo, point: Point) -> ContactPlace:
  """The contact at the end of a search."""
  p = duo.rel_mat * point.x + duo.rel_pos
  first = wp.normalize(wp.transpose(duo.rel_mat) * slope(duo.a, p))
  n = duo.rot * wp.normalize(first - wp.normalize(slope(duo.b, point.x)))
  pos = duo.rot * point.x + duo.pos
  return make_contact(point.dist, pos - n * point.dist / 2.0, make_frame(n))


@wp.kernel
def chain_contacts(pool: ContactPool, searches: Searches):
  """Chains the contacts of each pair, a thread a contact."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  g = pool.geom[i]
  searches.start[i] = NONE
  if g[0] < 0 or g[1] < 0:
    return
  pair = searches.pair_of[g[0], g[1]]
  if pair >= 0:
    searches.following[i] = wp.atomic_exch(searches.first, pool.world[i], pair, i)


@wp.func
def _claim(
  pool: ContactPool, searches: Searches, first: int, k: int, c: ContactPlace, length: float
) -> bool:
  """Takes the contact of a chain that start k found; False where another start was faster."""
  best = wp.int32(NONE)
  least = wp.float32(SAME * length)
  j = wp.int32(first)
  while j >= 0:
    if wp.atomic_cas(searches.start, j, NONE, NONE) == NONE:  # a plain read may be an old one
      away = wp.abs(pool.dist[j] - c.dist) + wp.length(pool.pos[j] - c.pos)
      away += length * wp.length(pool.frame[j][0] - c.frame[0])
      if away < least:
        least = away
        best = j
    j = searches.following[j]
  if best < 0:
    return True
  return wp.atomic_cas(searches.start, best, NONE, k) == NONE


@wp.kernel
def find_starts(
  # In:
  fields: DistanceFields,
  pool: ContactPool,
  searches: Searches,
  # Data in:
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  # Model:
  geom_size: wp.array2d[wp.vec3],
):
  """Says which contact each start led to, a thread per world, pair and start."""
  world, pair, k = wp.tid()
  first = searches.first[world, pair]
  if first < 0:
    return
  g = searches.pair[pair]
  duo = make_duo(fields, g, world, geom_xpos, geom_xmat, geom_size)
  inside = start_in_first(fields, duo, g, world, k)
  to_second = wp.transpose(duo.rot)
  outside = geom_xmat[world, g[0]] * inside + geom_xpos[world, g[0]]
  point = Point()
  point.x = to_second * (outside - duo.pos)
  for j in range(searches.iterations + 1):
    point = advance(duo, point.x, j == searches.iterations, searches.longest)
  contact = contact_at(duo, point)
  length = wp.max(fields.geom_aabb[world % fields.geom_aabb.shape[0], g[1], 1])
  while not _claim(pool, searches, first, k, contact, length):
    pass


@wp.kernel
def trace_searches(
  # In:
  fields: DistanceFields,
  pool: ContactPool,
  searches: Searches,
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
  """Writes down the search that found a contact, a thread a contact of the pool."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  g = pool.geom[i]
  if g[0] < 0 or g[1] < 0:
    return
  if searches.pair_of[g[0], g[1]] < 0:
    return
  dist_out[i] = pool.dist[i]
  pos_out[i] = pool.pos[i]
  frame_out[i] = pool.frame[i]
  k = searches.start[i]
  if k < 0:
    return
  world = pool.world[i]
  duo = make_duo(fields, g, world, geom_xpos, geom_xmat, geom_size)
  inside = start_in_first(fields, duo, g, world, k)
  outside = geom_xmat[world, g[0]] * inside + geom_xpos[world, g[0]]
  x = wp.transpose(duo.rot) * (outside - duo.pos)
  searches.path[0, i] = x
  for j in range(searches.iterations + 1):
    point = advance(duo, x, j == searches.iterations, searches.longest)
    x = point.x
    searches.path[j + 1, i] = x
    searches.weight[j, i] = point.weight
  larger = wp.vec2(0.0, 1.0)
  if value(duo.a, duo.rel_mat * x + duo.rel_pos) > value(duo.b, x):
    larger = wp.vec2(1.0, 0.0)
  searches.weight[searches.iterations + 1, i] = larger
