"""The frozen generalised velocities whose velocity fields the sweep carries, and their numbers."""

import dataclasses

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import NONE
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes


@dataclasses.dataclass(frozen=True)
class Velocities:
  """Where the frozen generalised velocities stand in `coords`; -1: not carried.

  The first of all is that on which constraint rows act, `virtual` or one of their own. Those of
  forces are `virtual` unless such forces have cotangents themselves.

  Attributes:
    virtual: w, which the linear solves give.
    implicit_left: y of the term y . M z of the second solve.
    implicit_right: z of that term, by how much the second solve changes the acceleration.
    acceleration: qacc as a velocity: J qacc, without the Jdot qvel that the nodes' `acc` has.
    inertial: that of the inertial forces.
    applied: that of the applied forces.
    passive: that of the passive forces.
    actuated: that of the actuator forces.
    mass_acceleration: that of M qacc alone, see `outputs/generalised_forces.py`.
    unlimited: `actuated` without the dofs whose total actuator force is at its limit.
    springs: that of springs, `passive` unless they alone have a cotangent.
    dampers: that of dampers, likewise.
    fluid: that of the forces of a fluid, likewise.
    gravity_compensation: that of the compensation of gravity: `passive`, or `unlimited` at the dofs
      whose actuators compensate.
    smooth: that of the cotangent of qacc_smooth.
    smooth_acceleration: the acceleration without constraints, qacc_smooth.
    count: how many are carried.
  """

  virtual: int
  implicit_left: int
  implicit_right: int
  acceleration: int
  inertial: int
  applied: int
  passive: int
  actuated: int
  mass_acceleration: int
  unlimited: int
  springs: int
  dampers: int
  fluid: int
  gravity_compensation: int
  smooth: int
  smooth_acceleration: int
  count: int


_ALL = tuple(field.name for field in dataclasses.fields(Velocities) if field.name != "count")
_OF_FORCES = ("inertial", "applied", "passive", "actuated")
_OF_PASSIVE_FORCES = ("springs", "dampers", "fluid", "gravity_compensation")


def make_velocities(
  *,
  second: bool,
  acceleration: bool,
  masked: bool,
  forces: bool,
  compensated: bool,
  smooth: bool,
  passive: tuple[str, ...],
  rows: bool,
) -> Velocities:
  """The velocities of a step with these needs, of passive forces by their names here.

  Args:
    second: whether a second solve follows that for the acceleration.
    acceleration: whether something reads qacc as a velocity.
    masked: whether joints limit the sum of the forces of their actuators.
    forces: whether generalised forces have cotangents.
    compensated: whether actuators compensate gravity.
    smooth: whether qacc_smooth has a cotangent.
    passive: the passive forces that have cotangents of their own.
    rows: whether the forces of rows have.
  """
  names = ["rows"] * rows + ["virtual"] + ["implicit_left", "implicit_right"] * second
  names += ["acceleration"] * (acceleration or forces)
  names += [*_OF_FORCES, "mass_acceleration"] * forces + ["unlimited"] * masked
  if compensated and (masked or forces):
    passive = tuple(dict.fromkeys((*passive, "gravity_compensation")))
  names += [*passive] + ["smooth", "smooth_acceleration"] * smooth
  at = {name: names.index(name) if name in names else NONE for name in _ALL}
  if not forces:
    at |= dict.fromkeys(_OF_FORCES, at["virtual"])
  if not masked:
    at["unlimited"] = at["actuated"]
  at |= {name: at["passive"] for name in _OF_PASSIVE_FORCES if name not in names}
  return Velocities(**at, count=len(names))


@dataclasses.dataclass(frozen=True)
class Carried:
  """Nodes with the fields of some generalised velocities, `coords`, and how many there are."""

  nodes: Nodes
  coords: wp.array
  count: int
