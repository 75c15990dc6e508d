"""The power of the forces of a fluid, by MuJoCo's two models of them.

A body without fluid shapes is the box of its inertia, with viscous and quadratic drag (MuJoCo's
documentation, Fluid forces, "Inertia model"); each fluid shape is an ellipsoid with added mass,
lift and drag ("Ellipsoid model"). implicitfast has their derivatives by the velocity too, the
discrete step those of drag.
"""

import functools
from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src.types import IntegratorType

from mjx_warp_ffi.mjx.data.enums import IMPLICIT
from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia
from mjx_warp_ffi.mjx.warp.adjoint.forces.fluid_laws import (
  box_change,
  box_drag,
  ellipsoid_change,
  ellipsoid_force,
  local_velocities,
  shape_state,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.fluid_shapes import Fluid, FluidShapes
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Force, Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import passive_act
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Geoms
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel


@functools.cache
def box_kernel(velocities: Velocities, *, implicit: bool, discrete: bool) -> Kernel:
  """Drag on the boxes of inertia, a thread per world and body."""
  virtual = velocities.virtual if discrete else velocities.implicit_left

  @wp.kernel(module="unique")
  def box_power(
    # Model:
    fluid: Fluid,
    boxes: wp.array[int],
    tree: Tree,
    inertia: Inertia,
    # In:
    nodes: Nodes,
    # Out:
    power: wp.array2d[float],
  ):
    world, it = wp.tid()
    b = boxes[it]
    n = tree.of_body[b]
    c, q, om, v, turning, moving, slow_turning, slow_moving = box_drag(
      fluid, tree, nodes, inertia, world, b
    )
    torque = -wp.cw_mul(turning, om) - slow_turning * om
    force = -wp.cw_mul(moving, v) - slow_moving * v
    wom, wv = local_velocities(nodes.fields[wp.static(velocities.fluid), world, n], c, q)
    p = wp.dot(torque, wom) + wp.dot(force, wv)
    if wp.static(implicit or discrete):
      h = of_world(fluid.timestep, world)
      yom, yv = local_velocities(nodes.fields[wp.static(virtual), world, n], c, q)
      a = nodes.fields[wp.static(velocities.acceleration), world, n]
      if wp.static(implicit):
        a = a - nodes.fields[wp.static(velocities.implicit_right), world, n]
      aom, av = local_velocities(a, c, q)
      p = p + h * box_change(turning, moving, slow_turning, slow_moving, yom, yv, aom, av)
    power[world, it] = p

  return box_power


@functools.cache
def ellipsoid_kernel(velocities: Velocities, *, implicit: bool, discrete: bool) -> Kernel:
  """Forces on fluid shapes, a thread per world and geom."""
  virtual = velocities.virtual if discrete else velocities.implicit_left

  @wp.kernel(module="unique")
  def ellipsoid_power(
    # Model:
    fluid: Fluid,
    shapes: FluidShapes,
    geoms: Geoms,
    tree: Tree,
    # In:
    nodes: Nodes,
    # Out:
    power: wp.array2d[float],
  ):
    world, it = wp.tid()
    g = shapes.geom[it]
    density = of_world(fluid.density, world)
    viscosity = of_world(fluid.viscosity, world)
    r, n, c, q, om, v = shape_state(fluid, shapes, geoms, tree, nodes, world, g)
    shape = shapes.geom_fluid[g]
    torque, force = ellipsoid_force(r, shape, density, viscosity, om, v)
    wom, wv = local_velocities(nodes.fields[wp.static(velocities.fluid), world, n], c, q)
    p = shape[0] * (wp.dot(torque, wom) + wp.dot(force, wv))
    if wp.static(implicit or discrete):
      h = of_world(fluid.timestep, world)
      yom, yv = local_velocities(nodes.fields[wp.static(virtual), world, n], c, q)
      a = nodes.fields[wp.static(velocities.acceleration), world, n]
      if wp.static(implicit):
        a = a - nodes.fields[wp.static(velocities.implicit_right), world, n]
      aom, av = local_velocities(a, c, q)
      whole = wp.bool(False)
      if wp.static(implicit):
        whole = tree.free_root[geoms.geom_bodyid[g]] >= 0
      p = p + h * ellipsoid_change(
        r, shape, density, viscosity, om, v, yom, yv, aom, av, whole, wp.static(discrete)
      )
    power[world, it] = p

  return ellipsoid_power


@wp.func
def _box_own(
  fluid: Fluid, tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int, k: int
) -> float:
  """What the drag of a box takes from field k, twice."""
  c, q, _om, _v, turning, moving, slow_turning, slow_moving = box_drag(
    fluid, tree, nodes, inertia, world, b
  )
  uom, uv = local_velocities(nodes.fields[k, world, tree.of_body[b]], c, q)
  return box_change(turning, moving, slow_turning, slow_moving, uom, uv, uom, uv)


@wp.func
def _shape_own(
  fluid: Fluid,
  shapes: FluidShapes,
  geoms: Geoms,
  tree: Tree,
  nodes: Nodes,
  world: int,
  g: int,
  k: int,
) -> float:
  """What the drag of a shape takes from field k, twice."""
  density = of_world(fluid.density, world)
  viscosity = of_world(fluid.viscosity, world)
  r, n, c, q, om, v = shape_state(fluid, shapes, geoms, tree, nodes, world, g)
  uom, uv = local_velocities(nodes.fields[k, world, n], c, q)
  shape = shapes.geom_fluid[g]
  return ellipsoid_change(r, shape, density, viscosity, om, v, uom, uv, uom, uv, False, True)


@wp.kernel(module="unique")
def drag_metric(
  # Model:
  fluid: Fluid,
  boxes: wp.array[int],
  shapes: FluidShapes,
  geoms: Geoms,
  tree: Tree,
  inertia: Inertia,
  # In:
  nodes: Nodes,
  # Out:
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


def record(rec: Recording, kin: Kinematics, mech: Mechanics) -> None:
  """Records the power of the forces of the fluid."""
  if mech.fluid is None:
    return
  tape, immersed = rec.tape, mech.fluid
  modes = dict(implicit=rec.scheme.implicitfast, discrete=rec.scheme.discrete)
  if immersed.boxes.size:
    inputs = [immersed.fluid, immersed.boxes, kin.tree, mech.inertia, kin.nodes]
    dim = (tape.nworld, immersed.boxes.size)
    tape.power(box_kernel(kin.velocities, **modes), dim, inputs=inputs)
  if immersed.count:
    inputs = [immersed.fluid, immersed.shapes, kin.geoms, kin.tree, kin.nodes]
    dim = (tape.nworld, immersed.count)
    tape.power(ellipsoid_kernel(kin.velocities, **modes), dim, inputs=inputs)


def record_metric(
  rec: Recording, kin: Kinematics, mech: Mechanics, *, nodes: Nodes, out: wp.array
) -> None:
  """Records what drag adds to the diagonal of H of a discrete step, if there is a fluid.

  Args:
    rec: the recording.
    kin: the kinematics.
    mech: the parameters of the fluid and of what it acts on.
    nodes: the nodes with the fields of the unit velocities of the dofs.
    out: (nworld, nv), where it goes.
  """
  if mech.fluid is None:
    return
  immersed = mech.fluid
  inputs = [immersed.fluid, immersed.boxes, immersed.shapes, kin.geoms, kin.tree, mech.inertia]
  dim = (rec.tape.nworld, rec.m.nv)
  rec.tape.launch(drag_metric, dim, inputs=[*inputs, nodes, out], outputs=[])


def missing_shapes(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The integrator whose derivative of the forces on fluid shapes has no rule."""
  shaped = m.has_fluid and m.body_fluid_ellipsoid_adr.size > 0
  if shaped and m.opt.integrator == IntegratorType.IMPLICIT:
    # MJWarp takes one half of a matrix for both, which is not symmetric; C MuJoCo does not
    yield "integrator IMPLICIT with fluid shapes"


def missing_passive(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The integrators whose derivative of forces that are not computed has no rule."""
  if m.opt.integrator in IMPLICIT and m.has_fluid and not passive_act(m):
    yield f"{IntegratorType(m.opt.integrator).name.lower()} with fluid and passive forces off"


def missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal for each feature of a fluid that has no rule."""
  yield from missing_shapes(mjm, m)
  yield from missing_passive(mjm, m)


FORCE = Force(
  parameters=(
    *("opt.timestep", "opt.density", "opt.viscosity", "opt.wind"),
    *("geom_size", "geom_pos", "geom_quat"),
  ),
  missing=missing,
  record=record,
)
