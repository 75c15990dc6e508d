"""What the backward pass has a rule for; everything else raises by name."""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
from mujoco_warp._src.types import DisableBit, EnableBit

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from mjx_warp_ffi.mjx.warp.adjoint.outputs.generalised_forces import (
  ACCELERATION,
  FORCES,
  PASSIVE,
  missing_acceleration,
)
from mjx_warp_ffi.mjx.warp.adjoint.rules import sensor_rules
from mjx_warp_ffi.mjx.warp.adjoint.rules.conditional import acts, conditional
from mjx_warp_ffi.mjx.warp.adjoint.rules.parts import PARAMETERS, PARTS, REPORTS
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_outputs import FORCE
from mjx_warp_ffi.mjx.warp.adjoint.tape.needs import Scope
from mjx_warp_ffi.mjx.warp.adjoint.tape.refusals import refuse

_OF_FORCES = frozenset(
  {*FORCES, *PASSIVE, ACCELERATION, "actuator_force", "act_dot", "energy", "sensordata"}
)


def contact_geometry(mjm: mujoco.MjModel, m: mjw.Model, *, d: mjw.Data) -> ContactGeometry | None:
  """The differentiable geometry of the contacts, None where there can be no contact."""
  off = DisableBit.CONTACT | DisableBit.CONSTRAINT
  if m.opt.disableflags & off or d.naconmax == 0 or not sum(m.geom_pair_type_count):
    return None
  geometry = ContactGeometry(mjm, m, d)
  if geometry.unsupported:
    refuse([f"contacts {', '.join(geometry.unsupported)}"])
  return geometry


def forces_act(scope: Scope, outputs: tuple[str, ...]) -> bool:
  """Whether forces or inertias have an effect on the outputs."""
  return scope is not Scope.FORCES or not _OF_FORCES.isdisjoint(outputs)


def _features(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """Names of the features of a model that have no rule, whatever the outputs."""
  if m.opt.enableflags & EnableBit.SLEEP:
    yield "sleeping"
  if m.opt.noslip_iterations > 0:
    yield "noslip_iterations"
  for name, count in dict(flexes=m.nflex, plastic=m.nplastic).items():
    if count:
      yield name
  for part in PARTS:
    yield from part.never(mjm, m)


def _missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """Names of the features of a model whose forces have no rule."""
  for part in PARTS:
    yield from part.missing(mjm, m)
  yield from (name for name, words in conditional(mjm, m) if acts(mjm, words))


def check(
  mjm: mujoco.MjModel,
  m: mjw.Model,
  *,
  wrt: tuple[str, ...] = (),
  outputs: tuple[str, ...] = (),
  scope: Scope = Scope.STEP,
) -> None:
  """Raises NotImplementedError if the model, a wanted parameter or an output has no rule."""
  unknown = sorted(set(outputs) - set(REPORTS) - {FORCE, "qfrc_inverse"})
  if unknown:
    raise NotImplementedError(f"no gradient from {', '.join(unknown)}; have {', '.join(REPORTS)}")
  unknown = sorted(set(wrt) - PARAMETERS)
  if unknown:
    names = ", ".join(sorted(PARAMETERS))
    raise NotImplementedError(f"no gradient with respect to {', '.join(unknown)}; have {names}")
  found = list(_features(mjm, m))
  if forces_act(scope, outputs):
    found += dict.fromkeys(_missing(mjm, m))
  found += missing_acceleration(m, outputs)
  if "sensordata" in outputs:
    found += sensor_rules.unsupported(mjm)
  refuse(found)
