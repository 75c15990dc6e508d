"""In which order the parts of the physics are recorded, by what each takes and gives.

Backwards the kernels run in reverse. Outputs that depend on the acceleration come first: their
adjoint runs ahead of the linear solves too, which take the cotangent of the acceleration. Contacts
and rows of joints are apart from the other forces, so that a GPU may run them beside these.
"""

from __future__ import annotations  # Warp's structs know no `|`

import dataclasses
import functools

import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.warp.adjoint.actuation import (
  actuators,
  adhesion,
  control_delays,
  transmissions,
)
from mjx_warp_ffi.mjx.warp.adjoint.actuation.control_delays import Delays
from mjx_warp_ffi.mjx.warp.adjoint.constraints import (
  discrete_inertia,
  discrete_rows,
  law,
  rows,
  welds,
)
from mjx_warp_ffi.mjx.warp.adjoint.constraints.discrete_inertia import (
  DiscreteInertia,
  ImplicitSlopes,
)
from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import Constraints
from mjx_warp_ffi.mjx.warp.adjoint.contacts import discrete_contacts
from mjx_warp_ffi.mjx.warp.adjoint.contacts.contact_power import RecordedContacts
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from mjx_warp_ffi.mjx.warp.adjoint.evaluation import Evaluation, has_welds
from mjx_warp_ffi.mjx.warp.adjoint.forces import mechanics, tendons
from mjx_warp_ffi.mjx.warp.adjoint.forces.all_forces import FORCES
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Lengths, Rates
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.forces.tendons import TendonRates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried
from mjx_warp_ffi.mjx.warp.adjoint.outputs import generalised_forces, inverse_dynamics, reactions
from mjx_warp_ffi.mjx.warp.adjoint.outputs.all_outputs import OUTPUTS
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated
from mjx_warp_ffi.mjx.warp.adjoint.sensors import (
  actuator_forces,
  contact_outputs,
  frames,
  limit_sensors,
)
from mjx_warp_ffi.mjx.warp.adjoint.sensors.all_families import FAMILIES
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_outputs import Collector
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording


@dataclasses.dataclass(frozen=True)
class RecordedStage:
  """What the owner of the tape has to know of what is on it.

  Attributes:
    delays: the delayed controls, None without any.
    collector: what collects the cotangents of outputs that read contacts, None without such.
    early_count: how many launches of the tape depend on the acceleration, from the first on.
  """

  delays: Delays | None
  collector: Collector | None
  early_count: int


@dataclasses.dataclass(frozen=True)
class EarlyOutputs:
  """What outputs that depend on the acceleration hand on to the parts after them.

  Attributes:
    cut: the virtual velocities of bodies on which forces act that are outputs, None if none are.
    pulled: the fields that tendons see, if these are not those of the sweep: then outputs depend on
      the acceleration by the forces of tendons too, which are recorded later.
  """

  cut: wp.array | None
  pulled: Carried | None


@dataclasses.dataclass(frozen=True)
class TouchingContacts:
  """The contacts on the tape, and what collects the cotangents of outputs that read them."""

  recorded: RecordedContacts
  collector: Collector | None


@dataclasses.dataclass(frozen=True)
class RowOrder:
  """Records what has to do with contacts and rows, when its turn comes.

  Attributes:
    rec: the recording.
    kin: the nodes.
    geometry: the differentiable geometry of the contacts, None if there can be none.
    evaluation: what is run of MuJoCo Warp.
    weights: the cotangents of sensordata, zero at cutoffs.
    constraints: the rows, None if there can be none.
  """

  rec: Recording
  kin: Kinematics
  geometry: ContactGeometry | None
  evaluation: Evaluation
  weights: wp.array
  constraints: Constraints | None

  @functools.cached_property
  def contacts(self) -> TouchingContacts | None:
    """The contacts, recorded where they are asked for first; None if there can be none."""
    rec, kin = self.rec, self.kin
    if self.geometry is None:
      return None
    recorded = RecordedContacts(rec, kin, geometry=self.geometry, soft=self.evaluation.soft)
    names = rec.cotangents
    located = contact_outputs.of_geometry(rec.mjm, names, solves=rec.needs.solves)
    if not (located or rec.needs.row_forces):
      return TouchingContacts(recorded, None)
    collector = Collector(rec, self.weights)
    contact_outputs.record_geometry(rec, kin, recorded, collector=collector)
    return TouchingContacts(recorded, collector)

  def record_outputs(self, cut: wp.array | None) -> None:
    """Records the outputs that depend on forces of rows.

    Args:
      cut: see `EarlyOutputs`.
    """
    rec, kin, constraints = self.rec, self.kin, self.constraints
    if constraints is None:
      return
    if rec.needs.row_forces and rec.needs.solves:
      if self.contacts is not None and self.contacts.collector is not None:
        recorded, collector = self.contacts.recorded, self.contacts.collector
        virtual = contact_outputs.record_virtual(
          rec, kin, recorded, collector=collector, of_forces=cut
        )
        recorded.record_power(rec, kin, constraints.rows, virtual=virtual)
      if has_welds(rec) and cut is not None:
        welds.record(rec, kin, constraints, virtual=cut)
    if rec.needs.limits:
      limit_sensors.record(rec, kin, constraints, weights=self.weights)

  def record_rows(
    self, *, tendon_rates: Rates | None, inertia: DiscreteInertia | None, apart: bool
  ) -> None:
    """Records the power of all rows but those of contacts.

    Args:
      tendon_rates: those of the tendons.
      inertia: by which a discrete step rescales rows, None for another step.
      apart: whether rows of joints may run beside the other forces.
    """
    rec, kin, constraints = self.rec, self.kin, self.constraints
    if constraints is None or not rec.needs.constrained:
      return
    if inertia is not None:
      discrete_rows.record(rec, kin, constraints, inertia=inertia, tendons=tendon_rates)
    rows.record(rec, kin, constraints, tendons=tendon_rates, apart=apart)
    if has_welds(rec):
      welds.record(rec, kin, constraints)

  def record_contacts(self, *, inertia: DiscreteInertia | None) -> None:
    """Records the contacts and the power of their rows."""
    contacts, constraints = self.contacts, self.constraints
    if contacts is None or constraints is None or not self.rec.needs.constrained:
      return
    if inertia is not None:
      discrete_contacts.record_contacts(self.rec, self.kin, contacts.recorded, inertia=inertia)
    contacts.recorded.record_power(self.rec, self.kin, constraints.rows)


@dataclasses.dataclass(frozen=True)
class _Drive:
  """What drives the actuators: their delays, and the cotangent of their forces."""

  delays: Delays | None
  cot_force: wp.array | None


def record(
  rec: Recording,
  kin: Kinematics,
  *,
  geometry: ContactGeometry | None,
  evaluation: Evaluation,
  weights: wp.array,
  given: wp.array | None,
) -> RecordedStage:
  """Records all parts, after the sweep over the tree.

  Args:
    rec: the recording.
    kin: the sweep.
    geometry: the differentiable geometry of the contacts, None if there can be none.
    evaluation: what is run of MuJoCo Warp.
    weights: the cotangents of sensordata, zero at cutoffs.
    given: the cotangent of what delayed sensors report, see `delayed_samples.begin`.
  """
  tape, needs = rec.tape, rec.needs
  mech = mechanics.make(rec, free_qacc=evaluation.newton.free_qacc)
  delays = control_delays.make_delays(rec)
  constraints = law.make_constraints(rec, kin) if needs.rows else None
  order = RowOrder(rec, kin, geometry, evaluation, weights, constraints)
  early = _record_early(rec, kin, mech=mech, weights=weights)
  if not rec.scheme.discrete:
    order.record_outputs(early.cut)
  early_count = tape.count
  if needs.inverts:
    inverse_dynamics.record_given(rec, kin)
  cot_force, cot_qfrc_actuator = actuator_forces.record(rec)
  rows_exist = evaluation.newton.rows
  generalised_forces.record(rec, kin, actuator=cot_qfrc_actuator, rows=rows_exist)
  if needs.inverts:
    inverse_dynamics.record_opposite(rec, kin)
  with tape.muted(not needs.powers):
    drive = _Drive(delays, cot_force)
    lengths = _record_forces(rec, kin, mech=mech, order=order, early=early, drive=drive)
  evaluated = Evaluated(kin, mech, lengths, weights, given)
  for part in OUTPUTS:
    part.record(rec, evaluated)
  if "sensordata" in rec.cotangents:
    for family in FAMILIES:
      family.record(rec, evaluated)
  if early.pulled or (rec.scheme.discrete and needs.row_forces):
    early_count = tape.count
  collector = order.contacts.collector if order.contacts else None
  return RecordedStage(delays, collector, early_count)


def _record_early(
  rec: Recording, kin: Kinematics, *, mech: Mechanics, weights: wp.array
) -> EarlyOutputs:
  """Records the outputs that depend on the acceleration, but for those of rows."""
  if rec.needs.accelerations:
    frames.record_accelerations(rec, kin, mech)
  cut = reactions.record(rec, kin, mech, weights=weights) if rec.needs.reactions else None
  tense = cut is not None and reactions.has_pull(rec.m)
  pulled = reactions.record_pull(rec, kin, cut) if cut is not None and tense else None
  return EarlyOutputs(cut, pulled)


def _record_forces(
  rec: Recording,
  kin: Kinematics,
  *,
  mech: Mechanics,
  order: RowOrder,
  early: EarlyOutputs,
  drive: _Drive,
) -> Lengths:
  """Records the forces, and gives the lengths of what they act along."""
  tape, needs, discrete = rec.tape, rec.needs, rec.scheme.discrete
  adheres = adhesion.any_body(rec.m)
  # contacts are apart unless actuators or the inertia of a discrete step depend on them
  apart = not (discrete or adheres)
  tape.begin_section()
  for force in FORCES:
    force.record(rec, kin, mech)
  touching = order.contacts if adheres else None
  pool = touching.recorded.pool if touching else None
  slopes = discrete_inertia.make_slopes(rec)
  found = None
  if needs.lengths:
    found = tendons.record(rec, kin, mech, pulled=early.pulled, slopes=slopes.tendons)
  tendon_rates = found.rates if found else None
  actuator_rates = _record_actuation(
    rec, kin, drive=drive, found=found, slopes=slopes, contacts=pool
  )
  inertia = None
  if discrete and needs.constrained:
    actuated = actuator_rates is not None
    inertia = discrete_inertia.record(
      rec, kin, mech, slopes=slopes, actuated=actuated, contacts=pool
    )
  order.record_rows(tendon_rates=tendon_rates, inertia=inertia, apart=apart)
  with tape.beside(apart):
    order.record_contacts(inertia=inertia)
  tape.begin_section()
  if discrete:
    order.record_outputs(early.cut)
  return Lengths(tendon_rates, actuator_rates)


def _record_actuation(
  rec: Recording,
  kin: Kinematics,
  *,
  drive: _Drive,
  found: TendonRates | None,
  slopes: ImplicitSlopes,
  contacts: ContactPool | None,
) -> Rates | None:
  """Records the actuators, and gives their lengths, None where there are none or none act."""
  controls = control_delays.record(rec, drive.delays)
  if not (rec.m.nactuator and rec.needs.lengths):
    return None
  find = functools.partial(transmissions.find_rates, rec, kin, kin.carried, contacts=contacts)
  rates = find(tendons=found.rates if found else None)
  if rec.m.opt.disableflags & DisableBit.ACTUATION:
    actuators.record_kept(rec)
  elif rec.needs.powers and not rec.needs.inverts:
    apart = found is not None and found.moving is not found.rates
    actuators.record(
      rec,
      kin,
      rates,
      moving=find(tendons=found.moving) if found and apart else rates,
      controls=controls,
      slopes=slopes.actuators,
      cot_force=drive.cot_force,
    )
  return rates
