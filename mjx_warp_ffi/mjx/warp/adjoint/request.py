"""What the backward pass has to compute for the outputs that have a cotangent."""

import dataclasses
import enum

from mujoco_warp._src.types import DisableBit, IntegratorType

from mjx_warp_ffi.mjx.data.smoothing import ContactSmoothing
from mjx_warp_ffi.mjx.warp.adjoint.actuation import adhesion
from mjx_warp_ffi.mjx.warp.adjoint.outputs import generalised_forces, poses, reactions
from mjx_warp_ffi.mjx.warp.adjoint.sensors import actuator_forces, contact_outputs, frames, limits
from mjx_warp_ffi.mjx.warp.adjoint.tape.sensed import of_kinds


@dataclasses.dataclass(frozen=True)
class Settings:
  """The options of an adjoint.

  Attributes:
    polish: whether to take one Newton step from the acceleration that the forward solve gave, for
      an error of that solve is some thirty times larger in the gradient. It costs a recompute of
      the smooth forces, and by default is left out where the forward solve converges, unless forces
      of constraints are outputs; where it may not, or had other rows, one that does comes first.
    smoothing: how contacts are smoothed; by default they are not.
    world_fastest: the layout of the intermediate arrays; by default that which suits the device.
  """

  polish: bool | None = None
  smoothing: ContactSmoothing | None = None
  world_fastest: bool | None = None


DEFAULT = Settings()


# Outputs that depend on the lengths of tendons and actuators.
_LENGTHS = frozenset({*poses.TENDONS, *poses.ACTUATORS, "energy", "sensordata"})


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


@dataclasses.dataclass(frozen=True)
class Needs:
  """What the outputs of a `StageAdjoint` depend on.

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
    """Whether outputs depend on the acceleration or on rows beside the state."""
    return self.accelerations or self.reactions or self.row_forces


def needs_of(step, *, scope: Scope, rows: bool) -> Needs:
  """What the outputs of a `StageAdjoint` depend on."""
  m, mjm, names = step.m, step.mjm, set(step.outputs)
  solves = scope.acceleration is not None
  sensed = "sensordata" in names
  off = m.opt.disableflags & DisableBit.ACTUATION or not m.nactuator
  driven = sensed and not off
  # later sensors have no cotangent where nothing is solved
  senses_forces = solves and driven and bool(len(of_kinds(mjm, actuator_forces.KINDS)))
  at_joints = senses_forces and bool(len(of_kinds(mjm, (actuator_forces.JOINT,))))
  smooth = generalised_forces.ACCELERATION in names
  reported = (
    at_joints
    or smooth
    or not names.isdisjoint({*generalised_forces.FORCES, *generalised_forces.PASSIVE})
  )
  discrete = m.opt.integrator == IntegratorType.DISCRETE
  inverts = scope in (Scope.RNE, Scope.INVERSE)
  powers = solves or inverts or reported or not names.isdisjoint({"actuator_force", "act_dot"})
  return Needs(
    solves=solves,
    inverts=inverts,
    inertial=scope is Scope.RNE,
    forces=reported or inverts,
    smooth=smooth,
    senses_forces=senses_forces,
    powers=powers,
    lengths=powers or not names.isdisjoint(_LENGTHS),
    contacts=contact_outputs.of_geometry(step, solves=solves) or adhesion.any_body(m),
    accelerations=solves and sensed and frames.has_accelerations(mjm),
    reactions=solves and reactions.wanted(step),
    touched=solves and contact_outputs.of_forces(step),
    limits=rows and limits.wanted(step),
    constraint=solves and discrete and rows and "qfrc_constraint" in names,
    rows=rows,
    constrained=rows and scope.constrained,
  )
