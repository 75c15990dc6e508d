"""What the backward pass has a rule for; everything else raises by name."""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import numpy as np
from mujoco_warp._src.types import (
  BiasType,
  DisableBit,
  DynType,
  EnableBit,
  GainType,
  IntegratorType,
)

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from mjx_warp_ffi.mjx.warp.adjoint.outputs.generalised_forces import ACCELERATION, FORCES, PASSIVE
from mjx_warp_ffi.mjx.warp.adjoint.request import Scope
from mjx_warp_ffi.mjx.warp.adjoint.rules import sensor_rules
from mjx_warp_ffi.mjx.warp.adjoint.rules.conditional import acts, conditional, pins
from mjx_warp_ffi.mjx.warp.adjoint.rules.parameters import PARAMETERS
from mjx_warp_ffi.mjx.warp.adjoint.rules.reports import REPORTS
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_outputs import FORCE
from mjx_warp_ffi.mjx.warp.adjoint.solve import integrators
from mjx_warp_ffi.mjx.warp.adjoint.tape.refusals import refuse

_OF_FORCES = frozenset(
  {*FORCES, *PASSIVE, ACCELERATION, "actuator_force", "act_dot", "energy", "sensordata"}
)


def has_rows(m: mjw.Model, d: mjw.Data) -> bool:
  """Whether constraint rows can exist."""
  return d.njmax > 0 and not m.opt.disableflags & DisableBit.CONSTRAINT


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


def _features(m: mjw.Model) -> Iterator[str]:
  """Names of the features of a model that have no rule, whatever the outputs."""
  if m.opt.enableflags & EnableBit.SLEEP:
    yield "sleeping"
  if m.opt.noslip_iterations > 0:
    yield "noslip_iterations"
  if not m.opt.run_collision_detection:
    yield "opt.run_collision_detection off"
  for name, count in dict(flexes=m.nflex, plastic=m.nplastic).items():
    if count:
      yield name


def _acting(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """Names of the features of a model whose forces have no rule."""
  shaped = m.has_fluid and m.body_fluid_ellipsoid_adr.size > 0
  if shaped and m.opt.integrator == IntegratorType.IMPLICIT:
    # MJWarp takes one half of a matrix for both, which is not symmetric; C MuJoCo does not
    yield "integrator IMPLICIT with fluid shapes"
  if m.opt.integrator == IntegratorType.RK4 and m.opt.disableflags & DisableBit.CONTACT:
    if pins(mjm, m):
      # the rows of later stages read velocities of the first: nothing calls back in between
      yield "RK4 with connects or welds and contacts off"
  compensated = mjm.jnt_actgravcomp != 0
  passive = DisableBit.SPRING | DisableBit.DAMPER
  off = m.opt.disableflags & DisableBit.ACTUATION or m.opt.disableflags & passive == passive
  if np.any(compensated) and (off or not m.nactuator):
    yield "actuatorgravcomp of joints where actuators or passive forces are off"
  yield from _actuation(mjm, m)
  yield from (name for name, words in conditional(mjm, m) if acts(mjm, words))
  off = m.opt.disableflags & (DisableBit.ACTUATION | DisableBit.DAMPER)
  if m.opt.integrator in integrators.IMPLICIT and off not in (
    0,
    DisableBit.ACTUATION | DisableBit.DAMPER,
  ):
    yield f"{integrators.name(m)} with only one of actuation and damper disabled"
  off = m.opt.disableflags & passive == passive
  if m.opt.integrator in integrators.IMPLICIT and m.has_fluid and off:
    yield f"{integrators.name(m)} with fluid and passive forces off"
  if m.flg_adhesion or m.flg_surfacevel:
    yield "adhesion or surface velocity of geoms"
  if any(getattr(m.callback, f) for f in ("control", "act_dyn", "act_gain", "act_bias")):
    yield "callbacks"


def _actuation(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """Names of the features of actuators that have no rule."""
  if not m.nactuator:
    return
  # MJWarp 4.0 has neither orientation nor PID actuators, which would be of type SO3 or have several
  # controls: put_model refuses them first
  kinds = dict(
    dyntype=(DynType, "USER"),
    gaintype=(GainType, "USER", "SO3"),
    biastype=(BiasType, "USER"),
  )
  for name, (kind, *names) in kinds.items():
    found = set(getattr(m, f"actuator_{name}").numpy().tolist())
    for refused in names:
      if int(kind[refused]) in found:
        yield f"actuator_{name} {refused}"
  gain, bias, dyn = (getattr(m, f"actuator_{f}type").numpy() for f in ("gain", "bias", "dyn"))
  motor = gain == GainType.DCMOTOR
  mixed = motor != (bias == BiasType.DCMOTOR)
  mixed |= ~motor & (dyn == DynType.DCMOTOR)
  mixed |= motor & (dyn != DynType.DCMOTOR) & (dyn != DynType.NONE)
  if np.any(mixed) or np.any(motor & m.actuator_actlimited.numpy()):
    yield "DC motors with other gains, biases or limits of their activations"
  active = (dyn == DynType.DCMOTOR) & (m.actuator_actnum.numpy() > 0)
  if m.opt.disableflags & DisableBit.ACTUATION and np.any(active):
    yield "activations of DC motors with actuation off"
  if m.opt.integrator == IntegratorType.RK4 and np.any(active):
    # MJWarp advances them by a whole step in every stage, C MuJoCo as far as the stage goes
    yield "RK4 with activations of DC motors"
  number = m.actuator_ctrlnum.numpy()
  if np.any(~motor & (number > 1)):
    yield "actuators with several controls"
  affine = (gain == GainType.AFFINE) | (gain == GainType.MUSCLE)
  misread = affine & (m.actuator_actadr.numpy() < 0)
  misread &= m.actuator_ctrladr.numpy() != np.arange(m.nactuator)
  if m.opt.integrator in integrators.IMPLICIT and np.any(misread):
    after = "after actuators with no or several controls"
    yield f"{integrators.name(m)} with gains of AFFINE or MUSCLE {after}"


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
  found = list(_features(m))
  if forces_act(scope, outputs):
    found += dict.fromkeys(_acting(mjm, m))
  if m.opt.integrator == IntegratorType.DISCRETE and "qacc_smooth" in outputs:
    found.append("qacc_smooth with the integrator discrete")
  if "qacc_smooth" in outputs and not m.opt.run_qacc_smooth:
    found.append("qacc_smooth with opt.run_qacc_smooth off")
  if "sensordata" in outputs:
    found += sensor_rules.unsupported(mjm)
  refuse(found)
