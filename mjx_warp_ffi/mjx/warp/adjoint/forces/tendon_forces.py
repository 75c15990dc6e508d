"""Springs, dampers and armatures of tendons, with those that actuators reflect to them."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates, graded
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected, reflected_on
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import magnitude
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Tendons:
  """Springs, dampers and armatures of tendons: model fields."""

  timestep: wp.array[float]
  tendon_actuatorid: wp.array[int]  # as `reflected_on` takes it
  tendon_stiffness: wp.array2d[float]
  tendon_stiffnesspoly: wp.array2d[wp.vec2]
  tendon_lengthspring: wp.array2d[wp.vec2]
  tendon_damping: wp.array2d[float]
  tendon_dampingpoly: wp.array2d[wp.vec2]
  tendon_armature: wp.array2d[float]


@wp.func
def tendon_spring(tendons: Tendons, rates: Rates, world: int, t: int):
  """The force of the spring of a tendon, and its derivative by the length."""
  rest = of_world(tendons.tendon_lengthspring, world, t)
  poly = of_world(tendons.tendon_stiffnesspoly, world, t)
  length = rates.length[world, t]
  x = wp.float32(0.0)
  slack = wp.float32(0.0)
  if length > rest[1]:
    x = length - rest[1]
  elif length < rest[0]:
    x = length - rest[0]
  else:
    slack = 1.0
  k = of_world(tendons.tendon_stiffness, world, t)
  factor, slope = graded(k, poly, x)
  return -x * factor, (slack - 1.0) * slope


@wp.func
def tendon_damper(tendons: Tendons, reflected: Reflected, rates: Rates, world: int, t: int):
  """The force of the damper of a tendon, and its derivative by the velocity."""
  damping = of_world(tendons.tendon_damping, world, t)
  poly = of_world(tendons.tendon_dampingpoly, world, t)
  if tendons.tendon_actuatorid[t] != -1:
    extra, extrapoly, _armature = reflected_on(
      reflected, world, t, tendons.tendon_actuatorid[t], True
    )
    damping = damping + extra
    poly = poly + extrapoly
  v = rates.velocity[world, t]
  factor, slope = graded(damping, poly, magnitude(v))
  return -v * factor, -slope


@wp.func
def armature_of(tendons: Tendons, reflected: Reflected, world: int, t: int) -> float:
  """The inertia of a tendon along its length."""
  armature = of_world(tendons.tendon_armature, world, t)
  if tendons.tendon_actuatorid[t] != -1:
    _damping, _poly, extra = reflected_on(reflected, world, t, tendons.tendon_actuatorid[t], True)
    armature = armature + extra
  return armature


def make_tendons(rec: Recording) -> Tendons:
  """The springs, dampers and armatures of the tendons, for kernels."""
  return rec.tape.struct(
    Tendons,
    **rec.leaves("tendon_stiffness", "tendon_stiffnesspoly", "tendon_lengthspring"),
    **rec.leaves("tendon_damping", "tendon_dampingpoly", "tendon_armature", "opt.timestep"),
    **rec.fixed("tendon_actuatorid"),
  )
