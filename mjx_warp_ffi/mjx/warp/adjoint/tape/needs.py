"""What the backward pass is asked for, in words that all of its parts share."""

import dataclasses
import enum


class Scope(enum.Enum):
  """Where in a time step the outputs lie."""

  FORCES = "forces"  # before the acceleration: nothing has to be solved for them
  SMOOTH = "smooth"  # the acceleration without constraints
  RNE = "rne"  # the bias force, with that of a given acceleration
  INVERSE = "inverse"  # what forces a given acceleration takes
  FORWARD = "forward"
  STAGE = "stage"  # as in FORWARD, but the history is written: one of a step's evaluations
  STEP = "step"

  @property
  def constrained(self) -> bool:
    """Whether the constraints act on the outputs."""
    return self in (Scope.INVERSE, Scope.FORWARD, Scope.STAGE, Scope.STEP)

  @property
  def acceleration(self) -> str | None:
    """The name of the acceleration among the outputs, which is solved for."""
    if self is Scope.SMOOTH:
      return "qacc_smooth"
    return "qacc" if self in (Scope.FORWARD, Scope.STAGE, Scope.STEP) else None

  @property
  def writes_history(self) -> bool:
    """Whether controls and measurements go into the history."""
    return self in (Scope.STAGE, Scope.STEP)


@dataclasses.dataclass(frozen=True)
class Needs:
  """What the outputs of a backward pass depend on.

  Attributes:
    solves: whether they depend on the acceleration, so that there is a virtual velocity w.
    inverts: whether they depend on a given acceleration, so that a cotangent is this velocity.
    inertial: whether qfrc_bias has the force of the bodies' acceleration in it.
    forces: whether generalised forces have cotangents, their own or those of sensors.
    smooth: whether the acceleration without constraints has one.
    senses_forces: whether sensors of actuator forces have.
    powers: whether a force has a power at all; without, its kernels need not run.
    lengths: whether the lengths of tendons and actuators have an effect.
    contacts: whether distances, points or frames of contacts have.
    accelerations: whether sensors of accelerations have cotangents.
    reactions: whether forces between bodies have.
    touched: whether forces of contacts have.
    limits: whether sensors of limits have.
    constraint: whether qfrc_constraint has, where it is no difference of other forces.
    rows: whether there can be constraint rows.
    constrained: whether they act on the outputs.
  """

  solves: bool
  inverts: bool
  inertial: bool
  forces: bool
  smooth: bool
  senses_forces: bool
  powers: bool
  lengths: bool
  contacts: bool
  accelerations: bool
  reactions: bool
  touched: bool
  limits: bool
  constraint: bool
  rows: bool
  constrained: bool

  @property
  def row_forces(self) -> bool:
    """Whether forces of constraint rows have cotangents."""
    return self.rows and (self.reactions or self.touched or self.limits or self.constraint)

  @property
  def of_acceleration(self) -> bool:
    """Whether there is a gradient with respect to the acceleration."""
    return self.early or self.inverts

  @property
  def early(self) -> bool:
    """Whether outputs depend on the acceleration or on rows beside the state.

    Their part of the backward pass runs before the solves, which take its result.
    """
    return self.accelerations or self.reactions or self.row_forces


@dataclasses.dataclass(frozen=True)
class Scheme:
  """What the integrator of a step takes at the end of the step rather than at its start.

  Attributes:
    second: whether a second solve follows that for the acceleration.
    implicitfast: whether that solve has the velocity derivatives of passive and actuator forces.
    implicit_bias: whether it has that of the bias force too.
    discrete: whether the one solve has dampers and springs, in M's place, and rescales rows.
  """

  second: bool = False
  implicitfast: bool = False
  implicit_bias: bool = False
  discrete: bool = False
