"""What the backward pass is asked for: options, outputs, and what has to be computed for them."""

import dataclasses

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src.types import DisableBit, IntegratorType

from mjx_warp_ffi.mjx.data.smoothing import ContactSmoothing
from mjx_warp_ffi.mjx.warp.adjoint.actuation import adhesion
from mjx_warp_ffi.mjx.warp.adjoint.outputs import generalised_forces, poses, reactions
from mjx_warp_ffi.mjx.warp.adjoint.sensors import (
  actuator_forces,
  contact_outputs,
  frames,
  limit_sensors,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.needs import Needs, Scope
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import of_kinds

STATE = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat")
STATE += ("history", "time")  # by which delays have gradients
OUTPUTS = ("qpos", "qvel", "act", "history", "time", "qacc")  # of a step
RATES = (*OUTPUTS, "act_dot")  # of `forward`: some pass through

# Outputs that depend on the lengths of tendons and actuators.
_LENGTHS = frozenset({*poses.TENDONS, *poses.ACTUATORS, "energy", "sensordata"})


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


def output(d: mjw.Data, name: str) -> wp.array:
  """The array of a Data, or of its contacts, that has the shape of an output."""
  if name == contact_outputs.FORCE:
    return wp.empty(d.naconmax, dtype=wp.spatial_vector, device=d.qpos.device)
  owner = d.contact if name.startswith("contact.") else d
  return getattr(owner, name.removeprefix("contact."))


def has_rows(m: mjw.Model, d: mjw.Data) -> bool:
  """Whether constraint rows can exist."""
  return d.njmax > 0 and not m.opt.disableflags & DisableBit.CONSTRAINT


def needs_of(
  mjm: mujoco.MjModel,
  m: mjw.Model,
  *,
  outputs: tuple[str, ...],
  scope: Scope,
  rows: bool,
) -> Needs:
  """What has to be computed for outputs besides the state of the step.

  Args:
    mjm: the model.
    m: the same as MuJoCo Warp has it.
    outputs: their names.
    scope: where in a step they lie.
    rows: whether there can be constraint rows.
  """
  names = set(outputs)
  solves = scope.acceleration is not None
  sensed = "sensordata" in names
  off = m.opt.disableflags & DisableBit.ACTUATION or not m.nactuator
  driven = sensed and not off
  # later sensors have no cotangent where nothing is solved
  senses_forces = solves and driven and bool(len(of_kinds(mjm, actuator_forces.KINDS)))
  at_joints = senses_forces and bool(len(of_kinds(mjm, (actuator_forces.JOINT,))))
  smooth = generalised_forces.ACCELERATION in names
  own_forces = {*generalised_forces.FORCES, *generalised_forces.PASSIVE}
  reported = at_joints or smooth or not names.isdisjoint(own_forces)
  discrete = m.opt.integrator == IntegratorType.DISCRETE
  inverts = scope in (Scope.RNE, Scope.INVERSE)
  powers = solves or inverts or reported or not names.isdisjoint({"actuator_force", "act_dot"})
  geometry = contact_outputs.of_geometry(mjm, names, solves=solves)
  return Needs(
    solves=solves,
    inverts=inverts,
    inertial=scope is Scope.RNE,
    forces=reported or inverts,
    smooth=smooth,
    senses_forces=senses_forces,
    powers=powers,
    lengths=powers or not names.isdisjoint(_LENGTHS),
    contacts=geometry or adhesion.any_body(m),
    accelerations=solves and sensed and frames.has_accelerations(mjm),
    reactions=solves and reactions.wanted(mjm, names),
    touched=solves and contact_outputs.of_forces(mjm, names),
    limits=rows and limit_sensors.wanted(mjm, names),
    constraint=solves and discrete and rows and "qfrc_constraint" in names,
    rows=rows,
    constrained=rows and scope.constrained,
  )
