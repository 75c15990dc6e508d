"""Damping and armature of actuators, as the joints and tendons that they drive have them."""

import warp as wp
from mujoco_warp._src.types import TrnType

from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import SpatialVector, struct


@struct
class Reflected:
  """The actuators and their damping and armature: model fields."""

  actuator_trntype: wp.array[int]
  actuator_trnid: wp.array[wp.vec2i]
  actuator_gear: wp.array2d[SpatialVector]
  actuator_armature: wp.array2d[float]
  actuator_damping: wp.array2d[float]
  actuator_dampingpoly: wp.array2d[wp.vec2]


@wp.func
def _of(r: Reflected, world: int, u: int):
  """What one actuator adds: damping, its polynomial and armature."""
  gear = of_world(r.actuator_gear, world, u)[0]
  g2 = gear * gear
  damping = g2 * of_world(r.actuator_damping, world, u)
  poly = g2 * of_world(r.actuator_dampingpoly, world, u)
  armature = g2 * of_world(r.actuator_armature, world, u)
  return damping, poly, armature


@wp.func
def _acts_on(kind: int, tendon: bool) -> bool:
  """Whether a type of transmission is one to a tendon, or to a joint."""
  yes = kind == TrnType.JOINT or kind == TrnType.JOINTINPARENT
  if tendon:
    yes = kind == TrnType.TENDON
  return yes


@wp.func
def reflected_on(r: Reflected, world: int, i: int, which: int, tendon: bool):
  """What actuators add to each dof of joint i, or to tendon i: damping, polynomial and armature.

  It is the actuator `which`, none if that is -1, and all that act there if it is less.
  """
  damping = wp.float32(0.0)
  poly = wp.vec2(0.0)
  armature = wp.float32(0.0)
  if which >= 0:
    damping, poly, armature = _of(r, world, which)
  elif which < -1:
    for u in range(r.actuator_trntype.shape[0]):
      if r.actuator_trnid[u][0] == i and _acts_on(r.actuator_trntype[u], tendon):
        b, c, m = _of(r, world, u)
        damping += b
        poly += c
        armature += m
  return damping, poly, armature


def make_reflected(rec: Recording) -> Reflected:
  """The damping and armature of the actuators, for kernels."""
  return rec.tape.struct(
    Reflected,
    **rec.fixed("actuator_trntype", "actuator_trnid"),
    **rec.leaves("actuator_gear", "actuator_armature"),
    **rec.leaves("actuator_damping", "actuator_dampingpoly"),
  )
