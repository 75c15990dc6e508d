"""The search for contacts of SDFs, backwards.

The start moves with the boxes' overlap, and each step takes slopes away that depend on where the
search is, on how the second geom lies in the frame of the first, and on sizes. The choices are
frozen: lengths of steps, which of the two distances is larger, cells of octrees, sides of boxes.
"""

import warp as wp
from mujoco_warp import GeomType
from mujoco_warp._src.math import make_frame

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.sdf.distance_field import (
  DistanceFields,
  primitive,
  primitive_along,
  slope,
  volume_bend,
  volume_slope,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.sdf.point_search import (
  Duo,
  Searches,
  bound,
  make_duo,
  share,
  start_in_first,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import poison
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False, "max_unroll": 1})


@struct
class Pull:
  """A gradient on its way back through a search.

  By its point, by the pose of the second geom in the frame of the first, and by the first's size.
  """

  x: wp.vec3
  pos: wp.vec3
  rot: wp.mat33
  size: wp.vec3


@struct
class PlaceGradient:
  """The gradients of a contact."""

  dist: float
  pos: wp.vec3
  frame: wp.mat33


@wp.func
def _normal_along(rot: wp.mat33, first: wp.vec3, second: wp.vec3, u: wp.vec3) -> wp.vec3:
  """MJWarp's normal for two slopes, along u, and two zeros: see `primitive` of the fields."""
  n = wp.normalize(wp.normalize(wp.transpose(rot) @ first) - wp.normalize(second))
  return wp.vec3(wp.dot(n, u), 0.0, 0.0)


@wp.func
def _frame_along(n: wp.vec3, u: wp.mat33) -> wp.vec3:
  """The contact frame of a normal, contracted with u, and two zeros."""
  return wp.vec3(wp.ddot(make_frame(n), u), 0.0, 0.0)


@struct
class Push:
  """Gradients of the fields at a point: of the two slopes, and of the two distances."""

  first: wp.vec3
  second: wp.vec3
  dist: wp.vec2


@wp.func
def _fields_back(pull: Pull, push: Push, duo: Duo, x: wp.vec3) -> Pull:
  """Adds what the fields pull at a point, in the frame of the second geom."""
  p = duo.rel_mat * x + duo.rel_pos
  by_point = wp.vec3(0.0)
  by_size = wp.vec3(0.0)
  if duo.a.kind == GeomType.SDF:
    by_point = volume_bend(duo.a.volume, p) @ push.first
    by_point += volume_slope(duo.a.volume, p) * push.dist[0]
  elif duo.a.kind == GeomType.PLANE:
    by_point = wp.vec3(0.0, 0.0, push.dist[0])
  else:  # no product with zero: a derivative may be infinite where it does not count
    if wp.length_sq(push.first) > 0.0:
      _kind, by_point, by_size, _s = wp.grad(primitive_along)(duo.a.kind, p, duo.a.size, push.first)
    if push.dist[0] != 0.0:
      _of_kind, more_point, more_size = wp.grad(primitive)(duo.a.kind, p, duo.a.size)
      by_point += more_point * push.dist[0]
      by_size += more_size * push.dist[0]
  out = pull
  out.pos = pull.pos + by_point
  out.rot = pull.rot + wp.outer(by_point, x)
  out.size = pull.size + by_size
  out.x = pull.x + wp.transpose(duo.rel_mat) @ by_point
  out.x += volume_bend(duo.b.volume, x) @ push.second
  out.x += volume_slope(duo.b.volume, x) * push.dist[1]
  return out


@wp.func
def _start_back(
  pull: Pull, fields: DistanceFields, duo: Duo, g: wp.vec2i, world: int, k: int
) -> Pull:
  """The start backwards: a point of the boxes' overlap, seen from the second geom."""
  out = pull
  inside = start_in_first(fields, duo, g, world, k)
  out.rot = out.rot + wp.outer(inside - duo.rel_pos, pull.x)
  by_start = duo.rel_mat @ pull.x
  out.pos = out.pos - by_start
  for axis in range(3):
    h = share(k, axis)
    for end in range(2):
      side = float(2 * end - 1)
      weight = by_start[axis] * (float(1 - end) + side * h)
      found = bound(fields, duo, g, world, axis, side)
      if found[3] > 0.0:
        out.pos[axis] = out.pos[axis] + weight
        for j in range(3):
          out.rot[axis, j] = out.rot[axis, j] + weight * found[j]
  return out


@wp.func
def _is_zero(seeds: PlaceGradient) -> bool:
  """Whether nothing depends on a contact."""
  most = wp.abs(seeds.dist) + wp.length(seeds.pos) + wp.ddot(seeds.frame, seeds.frame)
  return most == 0.0


@wp.func
def _search_back(
  searches: Searches, duo: Duo, i: int, dist: float, normal: wp.vec3, pos: wp.vec3
) -> Pull:
  """From contact i to the start of its search, in the frame of the second geom."""
  pull = Pull()
  for j in range(searches.iterations + 2):  # the contact, then the steps that led to it
    at = searches.iterations + 1 - j
    here = searches.path[at, i]
    weight = searches.weight[at, i]
    first = slope(duo.a, duo.rel_mat * here + duo.rel_pos)
    push = Push()
    if j == 0:
      by_rot, to_slope, to_other, _n = wp.grad(_normal_along)(
        duo.rel_mat, first, slope(duo.b, here), normal
      )
      pull.rot = by_rot
      push.first = to_slope
      push.second = to_other
      pull.x = pos
      push.dist = weight * dist
    else:
      if weight[0] != 0.0:
        pull.rot = pull.rot - wp.outer(first, pull.x) * weight[0]
        push.first = duo.rel_mat @ pull.x * (-weight[0])
      push.second = pull.x * (-weight[1])
    pull = _fields_back(pull, push, duo, here)
  return pull


@wp.kernel
def searches_backward(
  # In:
  fields: DistanceFields,
  pool: ContactPool,
  searches: Searches,
  # Data in:
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  # Model:
  geom_size: wp.array2d[wp.vec3],
  # In:
  grad_dist: wp.array[float],
  grad_pos: wp.array[wp.vec3],
  grad_frame: wp.array[wp.mat33],
  # Out:
  grad_geom_xpos: wp.array2d[wp.vec3],
  grad_geom_xmat: wp.array2d[wp.mat33],
  grad_geom_size: wp.array2d[wp.vec3],
):
  """Adds the gradients of the poses and sizes, a thread a contact; NaN where none is known."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  g = pool.geom[i]
  if g[0] < 0 or g[1] < 0:
    return
  seeds = PlaceGradient()
  seeds.dist = grad_dist[i]
  seeds.pos = grad_pos[i]
  seeds.frame = grad_frame[i]
  if searches.pair_of[g[0], g[1]] < 0 or _is_zero(seeds):
    return
  world = pool.world[i]
  if searches.start[i] < 0:
    poison(world, g[0], grad_geom_xpos, grad_geom_xmat, grad_geom_size)
    poison(world, g[1], grad_geom_xpos, grad_geom_xmat, grad_geom_size)
    return
  duo = make_duo(fields, g, world, geom_xpos, geom_xmat, geom_size)
  steps = searches.iterations + 1
  x = searches.path[steps, i]
  n = pool.frame[i][0]
  by_frame, _u = wp.grad(_frame_along)(n, seeds.frame)
  by_normal = by_frame - seeds.pos * (0.5 * pool.dist[i])
  to_second = wp.transpose(duo.rot)
  by_dist = seeds.dist - 0.5 * wp.dot(seeds.pos, n)
  pull = _search_back(searches, duo, i, by_dist, to_second @ by_normal, to_second @ seeds.pos)
  pull = _start_back(pull, fields, duo, g, world, searches.start[i])
  first_mat = geom_xmat[world, g[0]]
  apart = duo.pos - geom_xpos[world, g[0]]
  by_pos = first_mat @ pull.pos
  wp.atomic_add(grad_geom_xpos, world, g[0], -by_pos)
  wp.atomic_add(grad_geom_xpos, world, g[1], by_pos + seeds.pos)
  by_first = duo.rot @ wp.transpose(pull.rot) + wp.outer(apart, pull.pos)
  by_second = first_mat @ pull.rot + wp.outer(seeds.pos, x) + wp.outer(by_normal, to_second @ n)
  wp.atomic_add(grad_geom_xmat, world, g[0], by_first)
  wp.atomic_add(grad_geom_xmat, world, g[1], by_second)
  if grad_geom_size.shape[0] > 0:
    wp.atomic_add(grad_geom_size, world % grad_geom_size.shape[0], g[0], pull.size)
