"""Distance fields of geoms with their derivatives: what the search for contacts of SDFs follows.

MJWarp takes a geom of type `sdf` from the octree of its mesh, and primitives from closed forms. It
steps along its own slopes, which are not always the derivatives of its values, so both are
differentiated: primitives by Warp, an octree in the cell where a point is. All is in the frame of
the geom.
"""

from typing import Any

import warp as wp
from mujoco_warp import GeomType
from mujoco_warp._src import collision_sdf
from mujoco_warp._src.types import vec8, vec8i

from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

# Loops are kept, and MJWarp's fields of meshes and plugins left out: each place that takes a
# distance or a slope holds the code of all shapes, for which compilers would need minutes.
wp.set_module_options({"enable_backward": False, "max_unroll": 1})

_STEP = wp.constant(1.0e-4)  # of MJWarp's differences around an octree

# The type checker takes a struct of MuJoCo Warp for a variable.
VolumeData: Any = collision_sdf.VolumeData


@struct
class DistanceFields:
  """What of MJWarp's Model says which distance field a geom has."""

  geom_type: wp.array[int]
  geom_aabb: wp.array3d[wp.vec3]
  geom_dataid: wp.array2d[int]
  mesh_octadr: wp.array[int]
  oct_child: wp.array[vec8i]
  oct_aabb: wp.array2d[wp.vec3]
  oct_coeff: wp.array[vec8]


@struct
class Shape:
  """The distance field of one geom."""

  kind: int
  size: wp.vec3
  volume: VolumeData


@wp.func
def make_shape(fields: DistanceFields, g: int, world: int, size: wp.vec3) -> Shape:
  """The distance field of a geom."""
  shape = Shape()
  shape.kind = fields.geom_type[g]
  shape.size = size
  if shape.kind == GeomType.SDF:
    root = fields.mesh_octadr[of_world(fields.geom_dataid, world, g)]
    shape.volume.center = fields.oct_aabb[root, 0]
    shape.volume.half_size = fields.oct_aabb[root, 1]
    shape.volume.oct_aabb = fields.oct_aabb
    shape.volume.oct_child = fields.oct_child
    shape.volume.oct_coeff = fields.oct_coeff
    shape.volume.root = root
  return shape


@wp.func
def value(s: Shape, p: wp.vec3) -> float:
  """MJWarp's distance."""
  if s.kind == GeomType.SDF:
    return collision_sdf.sample_volume_sdf(p, s.volume)
  if s.kind == GeomType.PLANE:
    return p[2]
  if s.kind == GeomType.SPHERE:
    return collision_sdf.sphere(p, s.size)
  if s.kind == GeomType.CAPSULE:
    return collision_sdf.capsule(p, s.size)
  if s.kind == GeomType.ELLIPSOID:
    return collision_sdf.ellipsoid(p, s.size)
  if s.kind == GeomType.CYLINDER:
    return collision_sdf.cylinder(p, s.size)
  return collision_sdf.box(p, s.size)


@wp.func
def _cell_slope(volume: collision_sdf.VolumeData, p: wp.vec3) -> wp.vec3:
  """The slope of an octree in the cell at p."""
  node, by = collision_sdf.find_oct(volume.oct_child, volume.oct_aabb, p, True, volume.root)
  if node < 0:
    return wp.vec3(0.0)
  coeff = volume.oct_coeff[node]
  return wp.vec3(wp.dot(by[0], coeff), wp.dot(by[1], coeff), wp.dot(by[2], coeff))


@wp.func
def _octree_slope(volume: collision_sdf.VolumeData, p: wp.vec3) -> wp.vec3:
  """MJWarp's slope of an octree: around it differences, along one axis after the other."""
  away, inside = collision_sdf.box_project(volume.center, volume.half_size, p)
  if away <= 0.0:
    return _cell_slope(volume, inside)
  found = wp.vec3(0.0)
  base = wp.float32(0.0)
  for j in range(4):
    moved = wp.vec3(p[0], p[1], p[2])
    if j > 0:
      moved[j - 1] = moved[j - 1] + _STEP
    there = collision_sdf.sample_volume_sdf(moved, volume)
    if j == 0:
      base = there
    else:
      found[j - 1] = (there - base) / _STEP
  return found


@wp.func
def slope(s: Shape, p: wp.vec3) -> wp.vec3:
  """MJWarp's slope of the distance."""
  if s.kind == GeomType.SDF:
    return _octree_slope(s.volume, p)
  if s.kind == GeomType.PLANE:
    return wp.vec3(0.0, 0.0, 1.0)
  if s.kind == GeomType.SPHERE:
    return collision_sdf.grad_sphere(p)
  if s.kind == GeomType.CAPSULE:
    return collision_sdf.grad_capsule(p, s.size)
  if s.kind == GeomType.ELLIPSOID:
    return collision_sdf.grad_ellipsoid(p, s.size)
  if s.kind == GeomType.CYLINDER:
    return collision_sdf.grad_cylinder(p, s.size)
  return collision_sdf.grad_box(p, s.size)


@wp.func
def _outward(p: wp.vec3, size: wp.vec3) -> wp.vec3:
  """MJWarp's slope in a box, every part of which is positive.

  Not through MJWarp's function, which multiplies in place: Warp's reverse mode is wrong there.
  """
  q = wp.abs(p)
  return wp.normalize(
    wp.vec3(size[0] / (size[0] - q[0]), size[1] / (size[1] - q[1]), size[2] / (size[2] - q[2]))
  )


@wp.func
def _box(p: wp.vec3, size: wp.vec3) -> float:
  """The distance of a box; inside it is measured along the slope."""
  room = size - wp.abs(p)
  if wp.min(room) <= 0.0:
    return collision_sdf.box(p, size)
  n = _outward(p, size)
  return -wp.min(wp.min(room[0] / n[0], room[1] / n[1]), room[2] / n[2])


@wp.func
def _box_slope(p: wp.vec3, size: wp.vec3) -> wp.vec3:
  """MJWarp's slope of a box."""
  if wp.min(size - wp.abs(p)) <= 0.0:
    return collision_sdf.grad_box(p, size)
  n = _outward(p, size)
  return wp.vec3(n[0] * wp.sign(p[0]), n[1] * wp.sign(p[1]), n[2] * wp.sign(p[2]))


@wp.func
def primitive(kind: int, p: wp.vec3, size: wp.vec3) -> wp.vec3:
  """The distance of a primitive, and two zeros: `wp.grad` fails for functions of one number."""
  dist = wp.float32(0.0)
  if kind == GeomType.SPHERE:
    dist = collision_sdf.sphere(p, size)
  elif kind == GeomType.CAPSULE:
    dist = collision_sdf.capsule(p, size)
  elif kind == GeomType.ELLIPSOID:
    dist = collision_sdf.ellipsoid(p, size)
  elif kind == GeomType.CYLINDER:
    dist = collision_sdf.cylinder(p, size)
  else:
    dist = _box(p, size)
  return wp.vec3(dist, 0.0, 0.0)


@wp.func
def primitive_along(kind: int, p: wp.vec3, size: wp.vec3, u: wp.vec3) -> wp.vec3:
  """MJWarp's slope of a primitive along u, and two zeros."""
  s = wp.vec3(0.0)
  if kind == GeomType.SPHERE:
    s = collision_sdf.grad_sphere(p)
  elif kind == GeomType.CAPSULE:
    s = collision_sdf.grad_capsule(p, size)
  elif kind == GeomType.ELLIPSOID:
    s = collision_sdf.grad_ellipsoid(p, size)
  elif kind == GeomType.CYLINDER:
    s = collision_sdf.grad_cylinder(p, size)
  else:
    s = _box_slope(p, size)
  return wp.vec3(wp.dot(s, u), 0.0, 0.0)


@wp.func
def _bend(volume: collision_sdf.VolumeData, p: wp.vec3) -> wp.mat33:
  """The second derivatives of the cell of an octree at p: linear along each axis alone."""
  node, _ = collision_sdf.find_oct(volume.oct_child, volume.oct_aabb, p, False, volume.root)
  bend = wp.mat33(0.0)
  if node >= 0:
    low = volume.oct_aabb[node, 0] - volume.oct_aabb[node, 1]
    edge = volume.oct_aabb[node, 1] * 2.0
    c = wp.cw_div(p - low, edge)
    coeff = volume.oct_coeff[node]
    for j in range(8):
      x = float(2 * (j & 1) - 1)
      y = float((j & 2) - 1)
      z = float((j & 4) // 2 - 1)
      # the weights of the two corners of an edge add up to one, and change alike
      wx = 0.5 + x * (c[0] - 0.5)
      wy = 0.5 + y * (c[1] - 0.5)
      wz = 0.5 + z * (c[2] - 0.5)
      bend[0, 1] = bend[0, 1] + coeff[j] * x * y * wz / (edge[0] * edge[1])
      bend[0, 2] = bend[0, 2] + coeff[j] * x * z * wy / (edge[0] * edge[2])
      bend[1, 2] = bend[1, 2] + coeff[j] * y * z * wx / (edge[1] * edge[2])
  bend[1, 0] = bend[0, 1]
  bend[2, 0] = bend[0, 2]
  bend[2, 1] = bend[1, 2]
  return bend


@wp.func
def volume_bend(volume: collision_sdf.VolumeData, p: wp.vec3) -> wp.mat33:
  """The second derivatives of an octree, around which the distance to its box is added."""
  away, inside = collision_sdf.box_project(volume.center, volume.half_size, p)
  bend = _bend(volume, inside)
  if away > 0.0:
    r = p - volume.center
    out = wp.max(wp.abs(r) - volume.half_size, wp.vec3(0.0))
    mask = wp.vec3(0.0)
    for j in range(3):
      if out[j] > 0.0:
        mask[j] = 1.0
        out[j] = out[j] * wp.sign(r[j])
    way = out / away
    kept = wp.diag(wp.vec3(1.0) - mask)
    bend = kept @ bend @ kept + (wp.diag(mask) - wp.outer(way, way)) / away
  return bend


@wp.func
def volume_slope(volume: collision_sdf.VolumeData, p: wp.vec3) -> wp.vec3:
  """The derivative of the value of an octree."""
  away, inside = collision_sdf.box_project(volume.center, volume.half_size, p)
  found = _cell_slope(volume, inside)
  if away > 0.0:
    r = p - volume.center
    out = wp.max(wp.abs(r) - volume.half_size, wp.vec3(0.0))
    for j in range(3):
      if out[j] > 0.0:
        found[j] = out[j] * wp.sign(r[j]) / away
  return found
