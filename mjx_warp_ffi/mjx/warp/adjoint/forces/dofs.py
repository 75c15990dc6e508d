"""The power of applied forces, dampers and armatures of dofs on the virtual velocity w.

With y, z = qacc - qacc' of the second solve there is also y . A z of the armatures A, and of the
dampers B there is -h y . B qacc'. Actuators add to dampers and armatures of the joints they drive.
"""

import functools

import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces.dof_parameters import Dofs, dof_parameters
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import graded
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Force, Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import dampers_act
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import State
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import magnitude
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel


@functools.cache
def dof_kernel(velocities: Velocities, *, damper: bool, actuators: bool, discrete: bool) -> Kernel:
  """Applied forces, armatures and dampers, a thread per world and dof."""

  @wp.kernel(module="unique")
  def dof_power(
    # Model:
    dofs: Dofs,
    reflected: Reflected,
    # Data in:
    state: State,
    qfrc_applied: wp.array2d[float],
    # In:
    coords: wp.array3d[float],
    # Out:
    power: wp.array2d[float],
  ):
    world, i = wp.tid()
    damping, poly, armature = dof_parameters(dofs, reflected, world, i, wp.static(actuators))
    a = state.qacc[world, i]
    v = state.qvel[world, i]
    factor, slope = graded(damping, poly, magnitude(v))
    p = qfrc_applied[world, i] * coords[wp.static(velocities.applied), world, i]
    p = p - armature * a * coords[wp.static(velocities.inertial), world, i]
    if wp.static(damper):
      p = p - v * factor * coords[wp.static(velocities.dampers), world, i]
      if wp.static(discrete):
        if slope >= 0.0:
          step = of_world(dofs.timestep, world)
          p = p - step * slope * a * coords[wp.static(velocities.virtual), world, i]
    if wp.static(velocities.mass_acceleration >= 0):
      p = p + armature * a * coords[wp.static(velocities.mass_acceleration), world, i]
    if wp.static(velocities.smooth >= 0):
      smooth = coords[wp.static(velocities.smooth_acceleration), world, i]
      p = p - armature * smooth * coords[wp.static(velocities.smooth), world, i]
    if wp.static(velocities.implicit_left >= 0):
      y = coords[wp.static(velocities.implicit_left), world, i]
      z = coords[wp.static(velocities.implicit_right), world, i]
      p = p + armature * y * z
      if wp.static(damper):
        h = of_world(dofs.timestep, world)
        p = p - h * slope * y * (a - z)
    power[world, i] = p

  return dof_power


def record(rec: Recording, kin: Kinematics, mech: Mechanics) -> None:
  """Records the power of what acts on dofs."""
  tape, m = rec.tape, rec.m
  kernel = dof_kernel(
    kin.velocities,
    damper=dampers_act(m),
    actuators=bool(np.any(m.jnt_actuatorid.numpy() != -1)),
    discrete=rec.scheme.discrete,
  )
  inputs = [mech.dofs, mech.reflected, kin.state, rec.inputs["qfrc_applied"], kin.coords]
  tape.power(kernel, (tape.nworld, m.nv), inputs=inputs)


FORCE = Force(
  parameters=(
    *("dof_armature", "dof_damping", "dof_dampingpoly"),
    *("actuator_gear", "actuator_armature", "actuator_damping", "actuator_dampingpoly"),
    "opt.timestep",
  ),
  record=record,
)
