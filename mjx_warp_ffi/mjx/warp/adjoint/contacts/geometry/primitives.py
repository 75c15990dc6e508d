"""Contacts of the pairs that MJWarp solves in closed form, differentiated through its functions.

The functions of `mujoco_warp._src.collision_primitive_core` are called again at the same poses, so
they take the same branches; the slot (`geomcollisionid`) says which of their contacts is meant.
Warp's reverse mode through them is right for the pairs below. Where it is not, the work is done
elsewhere: that of a capsule and a box in `capsule_box`, that of two boxes in `convex`.
"""

import functools
from collections.abc import Callable

import warp as wp
from mujoco_warp import GeomType
from mujoco_warp._src import collision_primitive_core as core
from mujoco_warp._src.math import make_frame

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.capsule_box import capsule_box
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import (
  ContactPlace,
  Geom,
  load_geom,
  make_contact,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel

UPRIGHT = wp.constant(1.0e-12)  # squared sine of the tilt below which a cylinder stands upright
HALF_SQRT3 = wp.constant(0.8660254037844386)


@wp.func
def plane_sphere(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A plane and a sphere."""
  dist, pos = core.plane_sphere(a.axis, a.pos, b.pos, b.size[0])
  return make_contact(dist, pos, make_frame(a.axis))


@wp.func
def plane_capsule(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A plane and an end of a capsule; the first tangent follows the capsule."""
  dist, pos, frame = core.plane_capsule(a.axis, a.pos, b.pos, b.axis, b.size[0], b.size[1])
  return make_contact(dist[slot], pos[slot], frame)


@wp.func
def plane_ellipsoid(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A plane and an ellipsoid."""
  dist, pos, normal = core.plane_ellipsoid(a.axis, a.pos, b.pos, b.rot, b.size)
  return make_contact(dist, pos, make_frame(normal))


@wp.func
def plane_cylinder(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A plane and one of four points on the rims of a cylinder.

  Not through MJWarp's function: its derivative is NaN where the cylinder stands upright. There the
  lowest point is MJWarp's choice, a fixed direction; its derivative is then that of the middle
  between the two sides of the kink.
  """
  n = a.axis
  radius = b.size[0]
  axis = b.axis
  if wp.dot(n, axis) > 0.0:
    axis = -axis
  down = axis * wp.dot(n, axis) - n
  side = wp.vec3(1.0, 0.0, 0.0)  # unit, from the axis to the lowest point of a rim
  if wp.length_sq(down) >= UPRIGHT:
    side = wp.normalize(down)
  tip = axis * b.size[1]  # of the nearer cap
  point = side * radius + tip
  if slot == 1:
    point = side * radius - tip
  if slot >= 2:
    across = wp.normalize(wp.cross(side, axis)) * (radius * HALF_SQRT3)
    if slot == 3:
      across = -across
    point = across + tip - side * (0.5 * radius)
  height = wp.dot(b.pos - a.pos, n) + wp.dot(point, n)
  if slot >= 2:
    height = wp.dot(b.pos - a.pos, n) + wp.dot(tip, n) - 0.5 * radius * wp.dot(side, n)
  return make_contact(height, b.pos + point - n * (0.5 * height), make_frame(n))


@wp.func
def plane_box(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A plane and a corner of a box."""
  dist, pos, normal = core.plane_box(a.axis, a.pos, b.pos, b.rot, b.size)
  return make_contact(dist[slot], pos[slot], make_frame(normal))


@wp.func
def sphere_sphere(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """Two spheres."""
  dist, pos, normal = core.sphere_sphere(a.pos, a.size[0], b.pos, b.size[0])
  return make_contact(dist, pos, make_frame(normal))


@wp.func
def sphere_capsule(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A sphere and a capsule."""
  dist, pos, normal = core.sphere_capsule(a.pos, a.size[0], b.pos, b.axis, b.size[0], b.size[1])
  return make_contact(dist, pos, make_frame(normal))


@wp.func
def sphere_cylinder(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A sphere and the side, cap or rim of a cylinder."""
  dist, pos, normal = core.sphere_cylinder(a.pos, a.size[0], b.pos, b.axis, b.size[0], b.size[1])
  return make_contact(dist, pos, make_frame(normal))


@wp.func
def sphere_box(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """A sphere and a face, edge or corner of a box."""
  dist, pos, normal = core.sphere_box(a.pos, a.size[0], b.pos, b.rot, b.size)
  return make_contact(dist, pos, make_frame(normal))


@wp.func
def capsule_capsule(a: Geom, b: Geom, slot: int, code: int) -> ContactPlace:
  """Two capsules; two contacts where they are parallel."""
  dist, pos, normal = core.capsule_capsule(
    a.pos, a.axis, a.size[0], a.size[1], b.pos, b.axis, b.size[0], b.size[1]
  )
  return make_contact(dist[slot], pos[slot], make_frame(normal[slot]))


PRIMITIVES: dict[tuple[GeomType, GeomType], Callable] = {
  (GeomType.PLANE, GeomType.SPHERE): plane_sphere,
  (GeomType.PLANE, GeomType.CAPSULE): plane_capsule,
  (GeomType.PLANE, GeomType.ELLIPSOID): plane_ellipsoid,
  (GeomType.PLANE, GeomType.CYLINDER): plane_cylinder,
  (GeomType.PLANE, GeomType.BOX): plane_box,
  (GeomType.SPHERE, GeomType.SPHERE): sphere_sphere,
  (GeomType.SPHERE, GeomType.CAPSULE): sphere_capsule,
  (GeomType.SPHERE, GeomType.CYLINDER): sphere_cylinder,
  (GeomType.SPHERE, GeomType.BOX): sphere_box,
  (GeomType.CAPSULE, GeomType.CAPSULE): capsule_capsule,
  (GeomType.CAPSULE, GeomType.BOX): capsule_box,
}


@functools.cache
def primitive_kernel(pairs: tuple[tuple[GeomType, GeomType], ...]) -> Kernel:
  """The kernel of the contacts whose two geoms have one of the types in `pairs`.

  Args:
    pairs: keys of `PRIMITIVES`; only these are compiled.

  Returns:
    A kernel over the pool with inputs (pool, code, geom_xpos, geom_xmat, geom_size) and outputs
    (dist, pos, frame), where code is that of `capsule_box`. It has a reverse mode.
  """
  functions = [PRIMITIVES[pair] for pair in pairs]
  types = [(int(first), int(second)) for first, second in pairs]
  count = len(pairs)

  @wp.kernel(module="unique", enable_backward=True)
  def primitive_contacts(
    # In:
    pool: ContactPool,
    code: wp.array[int],
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
    i = wp.tid()
    if i >= pool.nacon[0]:
      return
    g = pool.geom[i]
    if g[0] < 0 or g[1] < 0:
      return
    type_a = pool.geom_type[g[0]]
    type_b = pool.geom_type[g[1]]
    for k in range(wp.static(count)):
      if type_a == wp.static(types[k][0]) and type_b == wp.static(types[k][1]):
        a = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 0)
        b = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 1)
        contact = wp.static(functions[k])(a, b, pool.slot[i], code[i])
        dist_out[i] = contact.dist
        pos_out[i] = contact.pos
        frame_out[i] = contact.frame

  return primitive_contacts
