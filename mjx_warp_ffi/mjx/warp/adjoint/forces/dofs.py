"""The power of dampers and armatures of dofs, with those that actuators reflect to them."""

import functools

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import graded
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected, reflected_on
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import State
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  magnitude,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Fields
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world


@wp.struct
class Dofs:
  """Dampers and armatures of the dofs: model fields."""

  timestep: wp.array[float]
  dof_armature: wp.array2d[float]
  dof_damping: wp.array2d[float]
  dof_dampingpoly: wp.array2d[wp.vec2]
  dof_jntid: wp.array[int]
  jnt_actuatorid: wp.array[int]  # see `reflected`


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


@functools.cache
def dof_kernel(fields: Fields, *, damper: bool, actuators: bool, discrete: bool) -> wp.Kernel:
  """Applied forces, armatures and dampers, a thread per world and dof."""

  @wp.kernel(module="unique")
  def dof_power(
    dofs: Dofs,
    reflected: Reflected,
    state: State,
    applied: wp.array2d[float],
    coords: wp.array3d[float],
    power: wp.array2d[float],
  ):
    world, i = wp.tid()
    damping, poly, armature = dof_parameters(dofs, reflected, world, i, wp.static(actuators))
    a = state.qacc[world, i]
    v = state.qvel[world, i]
    factor, slope = graded(damping, poly, magnitude(v))
    p = applied[world, i] * coords[wp.static(fields.x), world, i]
    p = p - armature * a * coords[wp.static(fields.i), world, i]
    if wp.static(damper):
      p = p - v * factor * coords[wp.static(fields.b), world, i]
      if wp.static(discrete):
        if slope >= 0.0:
          step = of_world(dofs.timestep, world)
          p = p - step * slope * a * coords[wp.static(fields.w), world, i]
    if wp.static(fields.n >= 0):
      p = p + armature * a * coords[wp.static(fields.n), world, i]
    if wp.static(fields.s >= 0):
      smooth = coords[wp.static(fields.t), world, i]
      p = p - armature * smooth * coords[wp.static(fields.s), world, i]
    if wp.static(fields.y >= 0):
      y = coords[wp.static(fields.y), world, i]
      z = coords[wp.static(fields.z), world, i]
      p = p + armature * y * z
      if wp.static(damper):
        h = of_world(dofs.timestep, world)
        p = p - h * slope * y * (a - z)
    power[world, i] = p

  return dof_power


def make_dofs(step) -> Dofs:
  """The dampers and armatures of the dofs of a `StageAdjoint`."""
  names = ("dof_armature", "dof_damping", "dof_dampingpoly", "opt.timestep")
  fixed = {f: getattr(step.m, f) for f in ("dof_jntid", "jnt_actuatorid")}
  return step.tape.struct(Dofs, **step.leaves(*names), **fixed)
