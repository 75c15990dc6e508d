"""What the backward pass has a rule for; everything else raises by name."""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import (
  BiasType,
  DisableBit,
  DynType,
  EnableBit,
  GainType,
  IntegratorType,
  TrnType,
)

from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry import ContactGeometry

_MESSAGE = "no analytic gradient for: {}. Differences have one: gradient='fd'"
_INTEGRATORS = (IntegratorType.EULER, IntegratorType.IMPLICITFAST)


def parameter(m: mjw.Model, name: str) -> wp.array:
  """A field of the model by its dotted name."""
  out = m
  for part in name.split("."):
    out = getattr(out, part)
  return out


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
    raise NotImplementedError(_MESSAGE.format(f"contacts {', '.join(geometry.unsupported)}"))
  return geometry


def _features(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """Names of the features of a model that have no rule."""
  integrator = IntegratorType(m.opt.integrator)
  if integrator not in _INTEGRATORS:
    yield f"integrator {integrator.name}"
  if m.opt.enableflags & EnableBit.SLEEP:
    yield "sleeping"
  if m.opt.noslip_iterations > 0:
    yield "noslip_iterations"
  if not m.opt.run_collision_detection:
    yield "opt.run_collision_detection off"
  for name, count in dict(flexes=m.nflex, plugins=m.nplugin, plastic=m.nplastic).items():
    if count:
      yield name
  if m.nhistory:
    yield "delays and history buffers"
  if m.has_fluid:
    yield "fluid (density, viscosity, wind)"
  if np.any(mjm.jnt_actgravcomp):
    yield "actuatorgravcomp of joints"
  if np.any(m.jnt_actuatorid.numpy() < -1):
    yield "damping or armature of several actuators on one joint"
  yield from _actuation(mjm, m)
  yield from _tendons(m)
  if m.flg_adhesion or m.flg_surfacevel:
    yield "adhesion or surface velocity of geoms"
  if any(getattr(m.callback, f) for f in ("control", "act_dyn", "act_gain", "act_bias")):
    yield "callbacks"


def _actuation(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """Names of the features of actuators that have no rule."""
  if not m.nactuator:
    return
  kinds = dict(
    dyntype=(DynType, "USER", "DCMOTOR"),
    gaintype=(GainType, "USER", "DCMOTOR", "SO3"),
    biastype=(BiasType, "USER", "DCMOTOR"),
    trntype=(TrnType, "BODY"),
  )
  for name, (kind, *names) in kinds.items():
    found = set(getattr(m, f"actuator_{name}").numpy().tolist())
    for refused in names:
      if int(kind[refused]) in found:
        yield f"actuator_{name} {refused}"
  if np.any(m.actuator_ctrlnum.numpy() != 1):
    yield "actuators with no or several controls"
  if np.any(m.tendon_actfrclimited.numpy()):
    yield "force limits of all actuators on a tendon (tendon actuatorfrcrange)"


def _tendons(m: mjw.Model) -> Iterator[str]:
  """Names of the features of tendons that have no rule."""
  if not m.ntendon:
    return
  if m.wrap_geom_adr.size:
    yield "tendons that wrap around geoms"
  if np.any(m.tendon_actuatorid.numpy() != -1):
    yield "damping or armature of actuators on tendons"


def check(mjm: mujoco.MjModel, m: mjw.Model, *, d: mjw.Data) -> None:
  """Raises NotImplementedError if the model has a feature without a rule."""
  found = list(_features(mjm, m))
  if found:
    raise NotImplementedError(_MESSAGE.format(", ".join(found)))
