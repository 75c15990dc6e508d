"""Dampers and armatures of dofs, with those that actuators reflect to them."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected, reflected_on
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Dofs:
  """Dampers and armatures of the dofs: model fields."""

  timestep: wp.array[float]
  dof_armature: wp.array2d[float]
  dof_damping: wp.array2d[float]
  dof_dampingpoly: wp.array2d[wp.vec2]
  dof_jntid: wp.array[int]
  jnt_actuatorid: wp.array[int]  # which actuators add to a joint, as `reflected_on` takes it


@wp.func
def dof_parameters(dofs: Dofs, reflected: Reflected, world: int, i: int, actuators: bool):
  """The damping of a dof, its polynomial and the armature, with those of actuators if asked for."""
  damping = of_world(dofs.dof_damping, world, i)
  poly = of_world(dofs.dof_dampingpoly, world, i)
  armature = of_world(dofs.dof_armature, world, i)
  if actuators:
    j = dofs.dof_jntid[i]
    b, c, m = reflected_on(reflected, world, j, dofs.jnt_actuatorid[j], False)
    damping = damping + b
    poly = poly + c
    armature = armature + m
  return damping, poly, armature


def make_dofs(rec: Recording) -> Dofs:
  """The dampers and armatures of the dofs, for kernels."""
  return rec.tape.struct(
    Dofs,
    **rec.leaves("dof_armature", "dof_damping", "dof_dampingpoly", "opt.timestep"),
    **rec.fixed("dof_jntid", "jnt_actuatorid"),
  )
