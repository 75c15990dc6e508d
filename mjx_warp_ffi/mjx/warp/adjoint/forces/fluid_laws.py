"""The forces of a fluid on boxes and ellipsoids, and their derivatives by the velocity."""

import warp as wp
from mujoco_warp._src.derivative import _geom_ellipsoid_fluid_B
from mujoco_warp._src.passive import ellipsoid_max_moment, geom_semiaxes
from mujoco_warp._src.types import MJ_MINVAL

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.forces.fluid_shapes import Fluid, FluidShapes
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Geoms, geom_frame
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import magnitude, point_velocity, unrotate
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world

_STILL = wp.constant(1.0e-10)  # a velocity at which no force shows, where directions have none


@wp.func
def local_velocities(f: wp.spatial_vector, r: wp.vec3, q: wp.quat):
  """The angular and the linear velocity at a point, in some axes."""
  return unrotate(q, wp.spatial_top(f)), unrotate(q, point_velocity(f, r))


@wp.func
def _box(mass: float, i: wp.vec3) -> wp.vec3:
  """The edges of the box that has this mass and these principal moments."""
  s = 6.0 / mass
  return wp.vec3(
    wp.sqrt(s * wp.max(i[1] + i[2] - i[0], MJ_MINVAL)),
    wp.sqrt(s * wp.max(i[2] + i[0] - i[1], MJ_MINVAL)),
    wp.sqrt(s * wp.max(i[0] + i[1] - i[2], MJ_MINVAL)),
  )


@wp.func
def _quartic(box: wp.vec3) -> wp.vec3:
  """Each edge times the sum of the fourth powers of the others."""
  s = wp.cw_mul(box, box)
  f = wp.cw_mul(s, s)
  return wp.vec3(box[0] * (f[1] + f[2]), box[1] * (f[2] + f[0]), box[2] * (f[0] + f[1]))


@wp.func
def _faces(box: wp.vec3) -> wp.vec3:
  """The areas of the faces."""
  return wp.vec3(box[1] * box[2], box[2] * box[0], box[0] * box[1])


@wp.func
def _sizes(x: wp.vec3) -> wp.vec3:
  """The absolute values."""
  return wp.vec3(magnitude(x[0]), magnitude(x[1]), magnitude(x[2]))


@wp.func
def box_drag(fluid: Fluid, tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int):
  """The axes and velocities of the box of a body, and what its drag goes with along them.

  The latter are factors of the velocities and their magnitudes, and of the velocities alone.
  """
  density = of_world(fluid.density, world)
  viscosity = of_world(fluid.viscosity, world)
  mass, moments, c, q = inertia_of(tree, nodes, inertia, world, b)
  om, v = local_velocities(nodes.vel[world, tree.of_body[b]], c, q)
  v = v - unrotate(q, of_world(fluid.wind, world))
  box = _box(mass, moments)
  diam = (box[0] + box[1] + box[2]) / 3.0
  slow = wp.pi * viscosity * diam
  turning = wp.cw_mul(_quartic(box), _sizes(om)) * (density / 64.0)
  moving = wp.cw_mul(_faces(box), _sizes(v)) * (0.5 * density)
  return c, q, om, v, turning, moving, slow * diam * diam, 3.0 * slow


@wp.func
def box_change(
  turning: wp.vec3,
  moving: wp.vec3,
  slow_turning: float,
  slow_moving: float,
  yom: wp.vec3,
  yv: wp.vec3,
  aom: wp.vec3,
  av: wp.vec3,
) -> float:
  """The derivative of the force on a box along one velocity times another."""
  change = wp.dot(wp.cw_mul(2.0 * turning, yom), aom) + slow_turning * wp.dot(yom, aom)
  return -change - wp.dot(wp.cw_mul(2.0 * moving, yv), av) - slow_moving * wp.dot(yv, av)


@wp.func
def _moving(x: wp.vec3) -> wp.vec3:
  """The velocity, or one that shows no force where it is zero and has no direction."""
  y = x
  if wp.dot(x, x) < _STILL * _STILL:
    y = x + wp.vec3(_STILL, 0.0, 0.0)
  return y


@wp.func
def ellipsoid_force(
  r: wp.vec3,
  shape: wp.array[float],
  density: float,
  viscosity: float,
  om: wp.vec3,
  v: wp.vec3,
):
  """The torque and the force on an ellipsoid, in its axes."""
  momentum = density * wp.cw_mul(wp.vec3(shape[6], shape[7], shape[8]), v)
  spin = density * wp.cw_mul(wp.vec3(shape[9], shape[10], shape[11]), om)
  torque = wp.cross(momentum, v) + wp.cross(spin, om)
  force = wp.cross(momentum, om)
  volume = 4.0 / 3.0 * wp.pi * r[0] * r[1] * r[2]
  force = force + shape[5] * density * volume * wp.cross(om, v)
  longest = wp.max(wp.max(r[0], r[1]), r[2])
  shortest = wp.min(wp.min(r[0], r[1]), r[2])
  middle = r[0] + r[1] + r[2] - longest - shortest
  speed = wp.length(v)
  s = r / longest
  s = wp.vec3(s[1] * s[2], s[2] * s[0], s[0] * s[1])
  slant = wp.cw_mul(wp.cw_mul(s, s), v / speed)  # along the normal of the projected area
  along = wp.dot(slant, v / speed)
  square = wp.dot(slant, slant)
  area = wp.pi * longest * longest * wp.sqrt(square / along)
  circulation = shape[4] * density * area * along / square * wp.cross(slant, v)
  force = force + wp.cross(circulation, v)
  diam = 2.0 / 3.0 * (r[0] + r[1] + r[2])
  slender = wp.pi * longest * middle - area
  drag = density * speed * (shape[1] * area + shape[2] * slender)
  force = force - (3.0 * wp.pi * viscosity * diam + drag) * v
  most = 8.0 / 15.0 * wp.pi * middle * wp.pow(longest, 4.0)
  moments = wp.vec3(
    ellipsoid_max_moment(r, 0), ellipsoid_max_moment(r, 1), ellipsoid_max_moment(r, 2)
  )
  resisting = shape[3] * moments + shape[2] * (wp.vec3(most) - moments)
  turning = density * wp.length(wp.cw_mul(om, resisting))
  return torque - (wp.pi * viscosity * diam * diam * diam + turning) * om, force


@wp.func
def ellipsoid_change(
  r: wp.vec3,
  shape: wp.array[float],
  density: float,
  viscosity: float,
  om: wp.vec3,
  v: wp.vec3,
  yom: wp.vec3,
  yv: wp.vec3,
  aom: wp.vec3,
  av: wp.vec3,
  whole: bool,
  drag: bool,
) -> float:
  """The derivative of the force on an ellipsoid along one velocity times another, as MJWarp has it.

  It takes the symmetric part, but for a free body the whole; of drag alone where asked to.
  """
  b00, b01, b10, b11 = _geom_ellipsoid_fluid_B(
    r,
    shape[1],
    shape[2],
    shape[3],
    shape[4],
    shape[5],
    wp.vec3(shape[6], shape[7], shape[8]),
    wp.vec3(shape[9], shape[10], shape[11]),
    om,
    v,
    density,
    viscosity,
    drag,
  )
  p = wp.dot(yom, b00 @ aom + b01 @ av) + wp.dot(yv, b10 @ aom + b11 @ av)
  if not whole:
    p = 0.5 * p + 0.5 * (wp.dot(aom, b00 @ yom + b01 @ yv) + wp.dot(av, b10 @ yom + b11 @ yv))
  return p


@wp.func
def shape_state(
  fluid: Fluid, shapes: FluidShapes, geoms: Geoms, tree: Tree, nodes: Nodes, world: int, g: int
):
  """The semiaxes of a shape, its node, centre and axes, and its velocities in the fluid."""
  n, c, q = geom_frame(geoms, tree, nodes, world, g)
  om, v = local_velocities(nodes.vel[world, n], c, q)
  v = _moving(v - unrotate(q, of_world(fluid.wind, world)))
  size = of_world(shapes.geom_size, world, g)
  return geom_semiaxes(size, shapes.geom_type[g]), n, c, q, _moving(om), v
