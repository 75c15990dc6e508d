"""What has to be differentiated before the solves: outputs that depend on the acceleration."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint import contact_outputs, limits, reactions, sensors, welds
from mjx_warp_ffi.mjx.warp.adjoint.nodes import Carried


def record(step) -> tuple[wp.array | None, Carried | None]:
  """Records the outputs of a `StageAdjoint` that depend on the acceleration, but for rows.

  Returns:
    The virtual velocities of bodies on which forces act, and the fields that tendons see, if these
    are not those of the sweep. Then outputs depend on the acceleration by the forces of tendons
    too, which are recorded later.
  """
  if step.needs.accelerations:
    sensors.record_accelerations(step)
  cut = reactions.record(step) if step.needs.reactions else None
  tense = cut is not None and reactions.has_pull(step.m)
  return cut, reactions.record_pull(step, cut) if tense else None


def record_rows(step) -> None:
  """Records the outputs of a `StageAdjoint` that depend on rows."""
  needs, cut = step.needs, step.cut
  if needs.row_forces and needs.solves:
    if step.geometry:
      step.make_contacts()
      virtual = contact_outputs.record_virtual(step, cut)
      step.contacts.record_power(step, step.rows, virtual=virtual)
    if step.has_welds and cut is not None:
      welds.record(step, step.rows, equalities=step.equalities, virtual=cut)
  if needs.limits:
    limits.record(step)
