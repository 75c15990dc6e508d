"""Lengths of tendons and actuators, with their rates along every carried velocity."""

import dataclasses

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Rates:
  """Lengths, their rates of change, and rates along the frozen velocities, (nworld, n)."""

  length: wp.array2d[float]
  velocity: wp.array2d[float]
  acceleration: wp.array2d[float]  # of tendons: the second derivative of the length
  fields: wp.array3d[float]  # (nfield, nworld, n)


@struct
class Slopes:
  """Derivatives of forces along lengths that a discrete step integrates implicitly, (nworld, n)."""

  by_length: wp.array2d[float]
  by_velocity: wp.array2d[float]


@dataclasses.dataclass(frozen=True)
class Lengths:
  """The lengths and rates of what forces act along, None where there is none or none is needed.

  Attributes:
    tendons: those of the tendons.
    actuators: those of the actuators.
  """

  tendons: "Rates | None"
  actuators: "Rates | None"


@wp.func
def graded(k: float, poly: wp.vec2, x: float):
  """The factor of a spring or damper of force k x + ..., and the derivative of that force by x.

  The force goes with x (k + poly[0] x + poly[1] x^2); of a damper x is a magnitude.
  """
  return k + x * (poly[0] + x * poly[1]), k + x * (2.0 * poly[0] + x * 3.0 * poly[1])


@wp.func
def not_positive(slope: float) -> float:
  """The slope of a force that pulls back; others are not integrated implicitly."""
  x = wp.float32(0.0)
  if slope <= 0.0:
    x = slope
  return x


@wp.func
def further_force(slopes: Slopes, world: int, i: int, h: float, v: float, a: float) -> float:
  """The change of a force during the step, in which the length changes by h (v + h a)."""
  return h * (slopes.by_length[world, i] * (v + h * a) + slopes.by_velocity[world, i] * a)


@wp.func
def implicit_mass(slopes: Slopes, world: int, i: int, h: float) -> float:
  """What the change of a force during the step adds to the inertia along a length."""
  return -h * (h * slopes.by_length[world, i] + slopes.by_velocity[world, i])


def make_rates(tape: Tape, *, nfield: int, count: int) -> Rates:
  """Fresh arrays for the rates of `count` things."""
  return tape.struct(
    Rates,
    length=tape.array(count),
    velocity=tape.array(count),
    acceleration=tape.array(count),
    fields=tape.stack(nfield, count, dtype=float),
  )


def make_slopes(tape: Tape, count: int) -> Slopes:
  """Fresh arrays for the derivatives of the forces along `count` lengths."""
  return tape.struct(Slopes, by_length=tape.array(count), by_velocity=tape.array(count))
