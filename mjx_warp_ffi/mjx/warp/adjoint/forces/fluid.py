"""The power of the forces of a fluid, by MuJoCo's two models of them.

A body without fluid shapes is the box of its inertia, with viscous and quadratic drag (MuJoCo's
documentation, Fluid forces, "Inertia model"); each fluid shape is an ellipsoid with added mass,
lift and drag ("Ellipsoid model"). implicitfast has their derivatives by the velocity too, the
discrete step those of drag.
"""

import dataclasses
import functools

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.derivative import _geom_ellipsoid_fluid_B
from mujoco_warp._src.passive import ellipsoid_max_moment, geom_semiaxes
from mujoco_warp._src.types import MJ_MINVAL, DisableBit

from mjx_warp_ffi.mjx.warp.adjoint.forces.bodies import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Geoms, geom_frame
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import magnitude, point_velocity, unrotate
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Fields
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world

_STILL = wp.constant(1.0e-10)  # a velocity at which no force shows, where directions have none


@wp.struct
class Fluid:
  """The fluid: model fields."""

  timestep: wp.array[float]
  density: wp.array[float]
  viscosity: wp.array[float]
  wind: wp.array[wp.vec3]


@wp.struct
class Shapes:
  """The ellipsoids."""

  geom: wp.array[int]
  geom_type: wp.array[int]
  geom_fluid: wp.array2d[float]
  geom_size: wp.array2d[wp.vec3]


@wp.func
def _local(f: wp.spatial_vector, r: wp.vec3, q: wp.quat):
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
def _box_drag(fluid: Fluid, tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int):
  """The axes and velocities of the box of a body, and what its drag goes with along them.

  The latter are factors of the velocities and their magnitudes, and of the velocities alone.
  """
  density = of_world(fluid.density, world)
  viscosity = of_world(fluid.viscosity, world)
  mass, moments, c, q = inertia_of(tree, nodes, inertia, world, b)
  om, v = _local(nodes.vel[world, tree.of_body[b]], c, q)
  v = v - unrotate(q, of_world(fluid.wind, world))
  box = _box(mass, moments)
  diam = (box[0] + box[1] + box[2]) / 3.0
  slow = wp.pi * viscosity * diam
  turning = wp.cw_mul(_quartic(box), _sizes(om)) * (density / 64.0)
  moving = wp.cw_mul(_faces(box), _sizes(v)) * (0.5 * density)
  return c, q, om, v, turning, moving, slow * diam * diam, 3.0 * slow


@wp.func
def _box_change(
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


@functools.cache
def box_kernel(fields: Fields, *, implicit: bool, discrete: bool) -> wp.Kernel:
  """Drag on the boxes of inertia, a thread per world and body."""
  virtual = fields.w if discrete else fields.y

  @wp.kernel(module="unique")
  def box_power(
    fluid: Fluid,
    which: wp.array[int],
    tree: Tree,
    nodes: Nodes,
    inertia: Inertia,
    power: wp.array2d[float],
  ):
    world, it = wp.tid()
    b = which[it]
    n = tree.of_body[b]
    c, q, om, v, turning, moving, slow_turning, slow_moving = _box_drag(
      fluid, tree, nodes, inertia, world, b
    )
    torque = -wp.cw_mul(turning, om) - slow_turning * om
    force = -wp.cw_mul(moving, v) - slow_moving * v
    wom, wv = _local(nodes.fields[wp.static(fields.f), world, n], c, q)
    p = wp.dot(torque, wom) + wp.dot(force, wv)
    if wp.static(implicit or discrete):
      h = of_world(fluid.timestep, world)
      yom, yv = _local(nodes.fields[wp.static(virtual), world, n], c, q)
      a = nodes.fields[wp.static(fields.a), world, n]
      if wp.static(implicit):
        a = a - nodes.fields[wp.static(fields.z), world, n]
      aom, av = _local(a, c, q)
      p = p + h * _box_change(turning, moving, slow_turning, slow_moving, yom, yv, aom, av)
    power[world, it] = p

  return box_power


@wp.func
def _moving(x: wp.vec3) -> wp.vec3:
  """The velocity, or one that shows no force where it is zero and has no direction."""
  y = x
  if wp.dot(x, x) < _STILL * _STILL:
    y = x + wp.vec3(_STILL, 0.0, 0.0)
  return y


@wp.func
def _ellipsoid_force(
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
def _ellipsoid_change(
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
def _shape_state(
  fluid: Fluid, shapes: Shapes, geoms: Geoms, tree: Tree, nodes: Nodes, world: int, g: int
):
  """The semiaxes of a shape, its node, centre and axes, and its velocities in the fluid."""
  n, c, q = geom_frame(geoms, tree, nodes, world, g)
  om, v = _local(nodes.vel[world, n], c, q)
  v = _moving(v - unrotate(q, of_world(fluid.wind, world)))
  size = of_world(shapes.geom_size, world, g)
  return geom_semiaxes(size, shapes.geom_type[g]), n, c, q, _moving(om), v


@functools.cache
def ellipsoid_kernel(fields: Fields, *, implicit: bool, discrete: bool) -> wp.Kernel:
  """Forces on fluid shapes, a thread per world and geom."""
  virtual = fields.w if discrete else fields.y

  @wp.kernel(module="unique")
  def ellipsoid_power(
    fluid: Fluid,
    shapes: Shapes,
    geoms: Geoms,
    tree: Tree,
    nodes: Nodes,
    power: wp.array2d[float],
  ):
    world, it = wp.tid()
    g = shapes.geom[it]
    density = of_world(fluid.density, world)
    viscosity = of_world(fluid.viscosity, world)
    r, n, c, q, om, v = _shape_state(fluid, shapes, geoms, tree, nodes, world, g)
    shape = shapes.geom_fluid[g]
    torque, force = _ellipsoid_force(r, shape, density, viscosity, om, v)
    wom, wv = _local(nodes.fields[wp.static(fields.f), world, n], c, q)
    p = shape[0] * (wp.dot(torque, wom) + wp.dot(force, wv))
    if wp.static(implicit or discrete):
      h = of_world(fluid.timestep, world)
      yom, yv = _local(nodes.fields[wp.static(virtual), world, n], c, q)
      a = nodes.fields[wp.static(fields.a), world, n]
      if wp.static(implicit):
        a = a - nodes.fields[wp.static(fields.z), world, n]
      aom, av = _local(a, c, q)
      whole = wp.bool(False)
      if wp.static(implicit):
        whole = tree.free_root[geoms.geom_bodyid[g]] >= 0
      p = p + h * _ellipsoid_change(
        r, shape, density, viscosity, om, v, yom, yv, aom, av, whole, wp.static(discrete)
      )
    power[world, it] = p

  return ellipsoid_power


@wp.func
def _box_own(
  fluid: Fluid, tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int, k: int
) -> float:
  """What the drag of a box takes from field k, twice."""
  c, q, _om, _v, turning, moving, slow_turning, slow_moving = _box_drag(
    fluid, tree, nodes, inertia, world, b
  )
  uom, uv = _local(nodes.fields[k, world, tree.of_body[b]], c, q)
  return _box_change(turning, moving, slow_turning, slow_moving, uom, uv, uom, uv)


@wp.func
def _shape_own(
  fluid: Fluid, shapes: Shapes, geoms: Geoms, tree: Tree, nodes: Nodes, world: int, g: int, k: int
) -> float:
  """What the drag of a shape takes from field k, twice."""
  density = of_world(fluid.density, world)
  viscosity = of_world(fluid.viscosity, world)
  r, n, c, q, om, v = _shape_state(fluid, shapes, geoms, tree, nodes, world, g)
  uom, uv = _local(nodes.fields[k, world, n], c, q)
  shape = shapes.geom_fluid[g]
  return _ellipsoid_change(r, shape, density, viscosity, om, v, uom, uv, uom, uv, False, True)


@wp.kernel(module="unique")
def drag_metric(
  fluid: Fluid,
  boxes: wp.array[int],
  shapes: Shapes,
  geoms: Geoms,
  tree: Tree,
  nodes: Nodes,
  inertia: Inertia,
  out: wp.array2d[float],
):
  """What drag adds to the diagonal of H, a thread per world and dof of `nodes`' unit velocities."""
  world, c = wp.tid()
  h = of_world(fluid.timestep, world)
  total = wp.float32(0.0)  # a plain sum: of other things the loop's last value is not known
  for i in range(boxes.shape[0]):
    total += -h * _box_own(fluid, tree, nodes, inertia, world, boxes[i], c)
  for j in range(shapes.geom.shape[0]):
    total += -h * _shape_own(fluid, shapes, geoms, tree, nodes, world, shapes.geom[j], c)
  out[world, c] = total


@dataclasses.dataclass(frozen=True)
class Recorded:
  """What the fluid acts on: the bodies without shapes, and the shapes."""

  fluid: Fluid
  boxes: wp.array
  shapes: Shapes

  def record_metric(self, step, nodes: Nodes, *, out: wp.array) -> None:
    """Records what drag adds to the diagonal of H of a discrete step."""
    tree = step.sweep.tree
    inputs = [self.fluid, self.boxes, self.shapes, step.geoms, tree, nodes, step.inertia, out]
    step.tape.launch(drag_metric, (step.tape.nworld, step.m.nv), inputs=inputs, outputs=[])


def acts(m: mjw.Model) -> bool:
  """Whether forces of a fluid are computed."""
  passive = DisableBit.SPRING | DisableBit.DAMPER
  return bool(m.has_fluid and m.opt.disableflags & passive != passive)


def record(step) -> Recorded | None:
  """Records the forces of the fluid of a `StageAdjoint`."""
  tape, m, mjm = step.tape, step.m, step.mjm
  if not acts(m):
    return None
  names = ("opt.timestep", "opt.density", "opt.viscosity", "opt.wind")
  fluid = tape.struct(Fluid, **step.leaves(*names))
  boxes = np.array(m.body_fluid_box_adr.numpy())
  tree, nodes = step.sweep.tree, step.sweep.nodes
  modes = dict(implicit=step.implicitfast, discrete=step.discrete)
  which = step.constant(boxes)
  if len(boxes):
    kernel = box_kernel(step.fields, **modes)
    inputs = [fluid, which, tree, nodes, step.inertia]
    tape.power(kernel, (tape.nworld, len(boxes)), inputs=inputs)
  found = mjm.geom_fluid.reshape(mjm.ngeom, -1)[:, 0] > 0
  found &= np.isin(mjm.geom_bodyid, m.body_fluid_ellipsoid_adr.numpy())
  fixed = {f: getattr(m, f) for f in ("geom_type", "geom_fluid")}
  fixed["geom"] = step.constant(np.flatnonzero(found))
  shapes = tape.struct(Shapes, geom_size=step.leaf("geom_size"), **fixed)
  if found.any():
    kernel = ellipsoid_kernel(step.fields, **modes)
    dim = (tape.nworld, int(found.sum()))
    tape.power(kernel, dim, inputs=[fluid, shapes, step.geoms, tree, nodes])
  return Recorded(fluid, which, shapes)
