"""Cotangents of the sensors that read contacts, collected by contact of the pool.

Which contact a sensor reads is decided as MJWarp does, on the contacts that it found.
"""

import warp as wp
from mujoco_warp._src.ray import ray_geom
from mujoco_warp._src.types import ObjType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import SpatialVector, struct

wp.set_module_options({"enable_backward": False})


@struct
class TouchAndDistanceSensors:
  """Sensors of touch and of distances between geoms, and what they ask of the model."""

  which: wp.array[int]
  type: wp.array[int]
  objtype: wp.array[int]
  objid: wp.array[int]
  reftype: wp.array[int]
  refid: wp.array[int]
  adr: wp.array[int]
  cutoff: wp.array[float]
  body_geomnum: wp.array[int]
  body_geomadr: wp.array[int]
  geom_type: wp.array[int]
  geom_bodyid: wp.array[int]
  site_bodyid: wp.array[int]
  site_type: wp.array[int]
  site_size: wp.array[wp.vec3]
  pyramidal: bool


@struct
class ContactSeeds:
  """Cotangents by contact of the pool, with which its gradients start.

  Those of force and torque and of the velocity are in the frame of the contact.
  """

  dist: wp.array[float]
  pos: wp.array[wp.vec3]
  frame: wp.array[wp.mat33]
  force: wp.array[SpatialVector]
  velocity: wp.array[SpatialVector]


@wp.kernel
def touch(
  # Data in:
  site_xpos: wp.array2d[wp.vec3],
  site_xmat: wp.array2d[wp.mat33],
  efc_force: wp.array2d[float],
  # In:
  s: TouchAndDistanceSensors,
  pool: ContactPool,
  cot: wp.array2d[float],
  # Out:
  seeds: ContactSeeds,
):
  """Sums of normal forces in a zone, a thread per contact of the pool and sensor."""
  c, it = wp.tid()
  if c >= pool.nacon[0]:
    return
  k = s.which[it]
  site = s.objid[k]
  body = s.site_bodyid[site]
  g = pool.geom[c]
  b0 = s.geom_bodyid[g[0]]
  b1 = s.geom_bodyid[g[1]]
  r = pool.row[c, 0]
  if r < 0 or (body != b0 and body != b1):
    return
  world = pool.world[c]
  force = efc_force[world, r]
  if s.pyramidal:
    for e in range(1, 2 * (pool.dim[c] - 1)):
      force += efc_force[world, pool.row[c, e]]
  if force <= 0.0:
    return
  ray = wp.vec3(pool.frame[c][0, 0], pool.frame[c][0, 1], pool.frame[c][0, 2])
  if body == b1:
    ray = -ray
  size = s.site_size[site]
  kind = s.site_type[site]
  dist, _n = ray_geom(site_xpos[world, site], site_xmat[world, site], size, pool.pos[c], ray, kind)
  if dist >= 0.0:
    x = cot[world, s.adr[k]]
    wp.atomic_add(seeds.force, c, wp.spatial_vector(x, 0.0, 0.0, 0.0, 0.0, 0.0))


@wp.func
def _place(s: TouchAndDistanceSensors, k: int, g0: int, g1: int) -> int:
  """Where a pair of geoms stands among those that a sensor of distance looks at, or -1."""
  n1 = wp.int32(1)
  n2 = wp.int32(1)
  id1 = s.objid[k]
  id2 = s.refid[k]
  if s.objtype[k] == ObjType.BODY:
    n1 = s.body_geomnum[s.objid[k]]
    id1 = s.body_geomadr[s.objid[k]]
  if s.reftype[k] == ObjType.BODY:
    n2 = s.body_geomnum[s.refid[k]]
    id2 = s.body_geomadr[s.refid[k]]
  place = wp.int32(-1)
  if g0 >= id1 and g0 < id1 + n1 and g1 >= id2 and g1 < id2 + n2:
    place = (g0 - id1) * n2 + g1 - id2
  elif g1 >= id1 and g1 < id1 + n1 and g0 >= id2 and g0 < id2 + n2:
    place = (g1 - id1) * n2 + g0 - id2
  return place


@wp.kernel
def nearest(s: TouchAndDistanceSensors, pool: ContactPool, best: wp.array2d[float]):
  """The smallest distance of each sensor, a thread per contact of the pool and sensor."""
  c, it = wp.tid()
  if c < pool.nacon[0]:
    if _place(s, s.which[it], pool.geom[c][0], pool.geom[c][1]) >= 0:
      wp.atomic_min(best, pool.world[c], it, pool.dist[c])


@wp.kernel
def first(
  s: TouchAndDistanceSensors, pool: ContactPool, best: wp.array2d[float], first: wp.array2d[int]
):
  """Which of those at the smallest distance MJWarp takes."""
  c, it = wp.tid()
  if c < pool.nacon[0]:
    place = _place(s, s.which[it], pool.geom[c][0], pool.geom[c][1])
    if place >= 0 and pool.dist[c] == best[pool.world[c], it]:
      wp.atomic_min(first, pool.world[c], it, 8 * place + pool.slot[c])


@wp.kernel
def distance(
  # In:
  s: TouchAndDistanceSensors,
  pool: ContactPool,
  best: wp.array2d[float],
  first: wp.array2d[int],
  cot: wp.array2d[float],
  # Out:
  seeds: ContactSeeds,
):
  """Distances of geoms, their directions and segments."""
  c, it = wp.tid()
  if c >= pool.nacon[0]:
    return
  world = pool.world[c]
  k = s.which[it]
  g = pool.geom[c]
  place = _place(s, k, g[0], g[1])
  gap = pool.dist[c]
  if place < 0 or gap != best[world, it] or 8 * place + pool.slot[c] != first[world, it]:
    return
  if gap >= s.cutoff[k]:
    return
  # the first geom of the contact is the sensor's, or its second
  swapped = s.objid[k] != g[0]
  if s.objtype[k] == ObjType.BODY:
    swapped = s.geom_bodyid[g[0]] != s.objid[k]
  side = wp.float32(1.0)
  if swapped:
    side = -1.0
  a = s.adr[k]
  if s.type[k] == SensorType.GEOMDIST:
    wp.atomic_add(seeds.dist, c, cot[world, a])
    return
  n = wp.vec3(pool.frame[c][0, 0], pool.frame[c][0, 1], pool.frame[c][0, 2])
  x = wp.vec3(cot[world, a], cot[world, a + 1], cot[world, a + 2])
  zero = wp.vec3(0.0)
  if s.type[k] == SensorType.GEOMNORMAL:
    if gap < 0.0:
      side = -side
    if gap != 0.0:
      wp.atomic_add(seeds.frame, c, wp.matrix_from_rows(side * x, zero, zero))
    return
  y = wp.vec3(cot[world, a + 3], cot[world, a + 4], cot[world, a + 5])
  along = side * (y - x)
  wp.atomic_add(seeds.pos, c, x + y)
  wp.atomic_add(seeds.dist, c, 0.5 * wp.dot(n, along))
  wp.atomic_add(seeds.frame, c, wp.matrix_from_rows(0.5 * gap * along, zero, zero))


@wp.kernel
def add_seeds(
  # Data in:
  nacon: wp.array[int],
  # In:
  seeds: ContactSeeds,
  # Out:
  dist: wp.array[float],
  pos: wp.array[wp.vec3],
  frame: wp.array[wp.mat33],
):
  """Adds the cotangents of the geometry to its gradients."""
  c = wp.tid()
  if c < nacon[0]:
    dist[c] = dist[c] + seeds.dist[c]
    pos[c] = pos[c] + seeds.pos[c]
    frame[c] = frame[c] + seeds.frame[c]
