"""The search for contacts of SDFs, backwards.

The start moves with the boxes' overlap, and each step takes slopes away that depend on where the
search is, on how the second geom lies in the frame of the first, and on sizes. The choices are
frozen: lengths of steps, which of the two distances is larger, cells of octrees, sides of boxes.
"""

import warp as wp
from mujoco_warp._src.math import make_frame

from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry.sdf_field import (
  PLANE,
  SDF,
  Fields,
  primitive,
  primitive_along,
  slope,
  value,
  volume_bend,
  volume_slope,
)
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry.sdf_search import (
  Duo,
  Searches,
  bound,
  make_duo,
  share,
  start_in_first,
)
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry.types import Pool

wp.set_module_options({"enable_backward": False})


@wp.struct
class Pull:
  """A gradient on its way back through a search.

  By its point, by the pose of the second geom in the frame of the first, and by the first's size.
  """

  x: wp.vec3
  pos: wp.vec3
  rot: wp.mat33
  size: wp.vec3


@wp.struct
class Seeds:
  """The gradients of a contact."""

  dist: float
  pos: wp.vec3
  frame: wp.mat33


@wp.func
def _normal_along(rot: wp.mat33, first: wp.vec3, second: wp.vec3, u: wp.vec3) -> wp.vec3:
  """MJWarp's normal for two slopes, along u, and two zeros: see `_primitive` of the fields."""
  n = wp.normalize(wp.normalize(wp.transpose(rot) @ first) - wp.normalize(second))
  return wp.vec3(wp.dot(n, u), 0.0, 0.0)


@wp.func
def _frame_along(n: wp.vec3, u: wp.mat33) -> wp.vec3:
  """The contact frame of a normal, contracted with u, and two zeros."""
  return wp.vec3(wp.ddot(make_frame(n), u), 0.0, 0.0)


@wp.func
def _through_point(pull: Pull, duo: Duo, x: wp.vec3, by_point: wp.vec3, by_size: wp.vec3) -> Pull:
  """Adds what comes from a point in the frame of the first geom, and from its size."""
  out = pull
  out.pos = pull.pos + by_point
  out.rot = pull.rot + wp.outer(by_point, x)
  out.x = pull.x + wp.transpose(duo.params.rel_mat) @ by_point
  out.size = pull.size + by_size
  return out


@wp.func
def _contact_back(duo: Duo, x: wp.vec3, dist: float, normal: wp.vec3) -> Pull:
  """What the distance and the normal, in the frame of the second geom, pull at the last point."""
  rel = duo.params.rel_mat
  p = rel * x + duo.params.rel_pos
  d_rot, d_first, d_second, _n = wp.grad(_normal_along)(
    rel, slope(duo.a, p), slope(duo.b, x), normal
  )
  pull = Pull()
  pull.rot = d_rot
  pull.x = volume_bend(duo.b.volume, x) @ d_second
  by_point = wp.vec3(0.0)
  by_size = wp.vec3(0.0)
  from_first = value(duo.a, p) > value(duo.b, x)
  if duo.a.kind == SDF:
    by_point = volume_bend(duo.a.volume, p) @ d_first
    if from_first:
      by_point = by_point + volume_slope(duo.a.volume, p) * dist
  elif duo.a.kind == PLANE:
    if from_first:
      by_point = wp.vec3(0.0, 0.0, dist)
  else:
    _k, by_point, by_size, _s = wp.grad(primitive_along)(duo.a.kind, p, duo.a.size, d_first)
    if from_first:
      _m, more_point, more_size = wp.grad(primitive)(duo.a.kind, p, duo.a.size)
      by_point = by_point + more_point * dist
      by_size = by_size + more_size * dist
  if not from_first:
    pull.x = pull.x + volume_slope(duo.b.volume, x) * dist
  return _through_point(pull, duo, x, by_point, by_size)


@wp.func
def _step_back(pull: Pull, duo: Duo, x: wp.vec3, weight: wp.vec2) -> Pull:
  """One step of the search backwards, from the point `x` before it."""
  out = pull
  rel = duo.params.rel_mat
  u = pull.x
  if weight[0] != 0.0:
    p = rel * x + duo.params.rel_pos
    along = rel @ u * (-weight[0])
    by_point = wp.vec3(0.0)
    by_size = wp.vec3(0.0)
    if duo.a.kind == SDF:
      by_point = volume_bend(duo.a.volume, p) @ along
    elif duo.a.kind != PLANE:
      _k, by_point, by_size, _s = wp.grad(primitive_along)(duo.a.kind, p, duo.a.size, along)
    out = _through_point(out, duo, x, by_point, by_size)
    out.rot = out.rot - wp.outer(slope(duo.a, p), u) * weight[0]
  if weight[1] != 0.0:
    out.x = out.x - volume_bend(duo.b.volume, x) @ u * weight[1]
  return out


@wp.func
def _start_back(pull: Pull, fields: Fields, duo: Duo, g: wp.vec2i, world: int, k: int) -> Pull:
  """The start backwards: a point of the boxes' overlap, seen from the second geom."""
  out = pull
  inside = start_in_first(fields, duo, g, world, k)
  out.rot = out.rot + wp.outer(inside - duo.params.rel_pos, pull.x)
  by_start = duo.params.rel_mat @ pull.x
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
def _is_zero(seeds: Seeds) -> bool:
  """Whether nothing depends on a contact."""
  most = wp.abs(seeds.dist) + wp.length(seeds.pos) + wp.ddot(seeds.frame, seeds.frame)
  return most == 0.0


@wp.kernel
def searches_backward(
  fields: Fields,
  pool: Pool,
  searches: Searches,
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  geom_size: wp.array2d[wp.vec3],
  grad_dist: wp.array[float],
  grad_pos: wp.array[wp.vec3],
  grad_frame: wp.array[wp.mat33],
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
  seeds = Seeds()
  seeds.dist = grad_dist[i]
  seeds.pos = grad_pos[i]
  seeds.frame = grad_frame[i]
  if searches.pair_of[g[0], g[1]] < 0 or _is_zero(seeds):
    return
  world = pool.worldid[i]
  if searches.start[i] < 0:
    unknown = wp.vec3(wp.nan, wp.nan, wp.nan)
    grad_geom_xpos[world, g[0]] = unknown
    grad_geom_xpos[world, g[1]] = unknown
    return
  duo = make_duo(fields, g, world, geom_xpos, geom_xmat, geom_size)
  steps = searches.iterations + 1
  x = searches.path[steps, i]
  n = pool.frame[i][0]
  by_frame, _u = wp.grad(_frame_along)(n, seeds.frame)
  by_normal = by_frame - seeds.pos * (0.5 * pool.dist[i])
  to_second = wp.transpose(duo.rot)
  by_dist = seeds.dist - 0.5 * wp.dot(seeds.pos, n)
  pull = _contact_back(duo, x, by_dist, to_second @ by_normal)
  pull.x = pull.x + to_second @ seeds.pos
  for j in range(steps):
    before = steps - 1 - j
    pull = _step_back(pull, duo, searches.path[before, i], searches.weight[before, i])
  pull = _start_back(pull, fields, duo, g, world, searches.start[i])
  first = geom_xmat[world, g[0]]
  apart = duo.pos - geom_xpos[world, g[0]]
  by_pos = first @ pull.pos
  wp.atomic_add(grad_geom_xpos, world, g[0], -by_pos)
  wp.atomic_add(grad_geom_xpos, world, g[1], by_pos + seeds.pos)
  by_first = duo.rot @ wp.transpose(pull.rot) + wp.outer(apart, pull.pos)
  by_second = first @ pull.rot + wp.outer(seeds.pos, x) + wp.outer(by_normal, to_second @ n)
  wp.atomic_add(grad_geom_xmat, world, g[0], by_first)
  wp.atomic_add(grad_geom_xmat, world, g[1], by_second)
  if grad_geom_size.shape[0] > 0:
    wp.atomic_add(grad_geom_size, world % grad_geom_size.shape[0], g[0], pull.size)
