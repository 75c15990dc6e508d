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
  EqType,
  GainType,
  IntegratorType,
  TrnType,
)

from mjx_warp_ffi.mjx.warp.adjoint import sensor_rules
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry import ContactGeometry
from mjx_warp_ffi.mjx.warp.adjoint.contact_outputs import FORCE
from mjx_warp_ffi.mjx.warp.adjoint.forces import ACCELERATION, FORCES, PASSIVE
from mjx_warp_ffi.mjx.warp.adjoint.needs import Scope
from mjx_warp_ffi.mjx.warp.adjoint.outputs import REPORTS


def _named(prefix: str, names: str) -> set[str]:
  return {f"{prefix}{name}" for name in names.split()}


# Model fields that can have a gradient. Of an axis or a quaternion it is that of one of length one.
# `body_invweight0`, `dof_invweight0`, `tendon_invweight0`, `tendon_length0` and `actuator_acc0` are
# derived constants: the gradients of what they come from hold them fixed.
PARAMETERS = frozenset(
  _named("body_", "pos quat ipos iquat mass subtreemass inertia gravcomp invweight0")
  | _named("jnt_", "pos axis stiffness stiffnesspoly solref solimp range margin actfrcrange")
  | _named("dof_", "armature damping dampingpoly solref solimp frictionloss invweight0")
  | _named("geom_", "pos quat size friction solref solimp solmix")
  | _named("pair_", "friction solref solreffriction solimp")
  | _named("site_", "pos quat")
  | _named("cam_", "pos quat pos0 poscom0 mat0 fovy intrinsic")
  | _named("light_", "pos dir pos0 poscom0 dir0")
  | _named("eq_", "data solref solimp")
  | _named("tendon_", "stiffness stiffnesspoly lengthspring damping dampingpoly armature range")
  | _named("tendon_", "actfrcrange margin frictionloss solref_lim solimp_lim solref_fri solimp_fri")
  | _named("tendon_", "invweight0 length0")
  | _named("actuator_", "gear cranklength dynprm gainprm biasprm actrange forcerange ctrlrange")
  | _named("actuator_", "acc0 lengthrange armature damping dampingpoly delay")
  | _named("opt.", "gravity timestep impratio density viscosity wind magnetic")
  | {"qpos0", "qpos_spring", "sensor_delay"}
)

_OF_FORCES = frozenset(
  {*FORCES, *PASSIVE, ACCELERATION, "actuator_force", "act_dot", "energy", "sensordata"}
)

Words = dict[str, list[int]]  # model fields, and the places of floats in one row of each

_MESSAGE = "no analytic gradient for: {}. Differences have one: gradient='fd'"
_AFTER_BALL = "of bodies that have joints after a ball joint"
_IMPLICIT = (IntegratorType.IMPLICIT, IntegratorType.IMPLICITFAST)


# What MJWarp keeps of a parameter, where that is another function of it.
STORED = {"opt.impratio": "opt.impratio_invsqrt"}


def stored(name: str) -> str:
  """The name of the field in which MJWarp keeps a parameter."""
  return STORED.get(name, name)


def parameter(m: mjw.Model, name: str) -> wp.array:
  """A field of the model by its dotted name, as MJWarp stores it."""
  out = m
  for part in stored(name).split("."):
    out = getattr(out, part)
  return out


def output(d: mjw.Data, name: str) -> wp.array:
  """The array of a Data, or of its contacts, that has the shape of an output."""
  if name == FORCE:
    return wp.empty(d.naconmax, dtype=wp.spatial_vector, device=d.qpos.device)
  owner = d.contact if name.startswith("contact.") else d
  return getattr(owner, name.removeprefix("contact."))


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


def refuse(found: list[str]) -> None:
  """Raises NotImplementedError if there is something without a rule, by its name."""
  if found:
    raise NotImplementedError(_MESSAGE.format(", ".join(found)))


def _name(m: mjw.Model) -> str:
  return IntegratorType(m.opt.integrator).name.lower()


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
    if _pins(mjm, m):
      # the rows of later stages read velocities of the first: nothing calls back in between
      yield "RK4 with connects or welds and contacts off"
  compensated = mjm.jnt_actgravcomp != 0
  passive = DisableBit.SPRING | DisableBit.DAMPER
  off = m.opt.disableflags & DisableBit.ACTUATION or m.opt.disableflags & passive == passive
  if np.any(compensated) and (off or not m.nactuator):
    yield "actuatorgravcomp of joints where actuators or passive forces are off"
  yield from _actuation(mjm, m)
  yield from (name for name, words in _conditional(mjm, m) if _acts(mjm, words))
  off = m.opt.disableflags & (DisableBit.ACTUATION | DisableBit.DAMPER)
  if m.opt.integrator in _IMPLICIT and off not in (
    0,
    DisableBit.ACTUATION | DisableBit.DAMPER,
  ):
    yield f"{_name(m)} with only one of actuation and damper disabled"
  off = m.opt.disableflags & passive == passive
  if m.opt.integrator in _IMPLICIT and m.has_fluid and off:
    yield f"{_name(m)} with fluid and passive forces off"
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
  if m.opt.integrator in _IMPLICIT and np.any(misread):
    yield f"{_name(m)} with gains of AFFINE or MUSCLE after actuators with no or several controls"


def _on_tendon(m: mjw.Model, t: int) -> list[int]:
  """The actuators of a tendon."""
  kinds, ids = m.actuator_trntype.numpy(), m.actuator_trnid.numpy()[:, 0]
  return np.flatnonzero((kinds == TrnType.TENDON) & (ids == t)).tolist()


def _tendon_dofs(m: mjw.Model) -> list[np.ndarray]:
  """The dofs that each tendon pulls at."""
  if not m.ntendon:
    return []
  adr, num, dofs = (getattr(m, f"ten_J_{f}").numpy() for f in ("rowadr", "rownnz", "colind"))
  return [dofs[a : a + n] for a, n in zip(adr, num, strict=True)]


def _place(m: mjw.Model) -> np.ndarray:
  """Whether M has an element for two dofs: if one moves the other."""
  place = m.M_elemid.numpy() >= 0
  return place | place.T


def _turned_before(mjm: mujoco.MjModel) -> np.ndarray:
  """Whether a dof belongs to a body that has joints after a ball joint.

  C MuJoCo's derivative of a Jacobian (`mj_jacDot`) turns the axes of the ball with all of the
  body's velocity, so it is not that of the Jacobian.
  """
  balls = np.flatnonzero(mjm.jnt_type == mujoco.mjtJoint.mjJNT_BALL)
  followed = [j for j in balls if j + 1 < mjm.njnt and mjm.jnt_bodyid[j + 1] == mjm.jnt_bodyid[j]]
  return np.isin(mjm.dof_bodyid, mjm.jnt_bodyid[followed])


def _pins(mjm: mujoco.MjModel, m: mjw.Model) -> bool:
  """Whether connects or welds can act."""
  off = m.opt.disableflags & (DisableBit.CONSTRAINT | DisableBit.EQUALITY)
  return not off and bool(np.any(np.isin(mjm.eq_type, (EqType.CONNECT, EqType.WELD))))


def _armatures(m: mjw.Model, tendons: list[int]) -> Words:
  """The armatures of tendons, with those of their actuators."""
  own = sum((_on_tendon(m, t) for t in tendons), [])
  return {"tendon_armature": tendons} | ({"actuator_armature": own} if own else {})


def _moving(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[tuple[str, np.ndarray, Words]]:
  """What may have a force that depends on its velocity, the dofs that it moves, and by what."""
  ten_dofs = _tendon_dofs(m)
  for t, dofs in enumerate(ten_dofs):
    words = {"tendon_damping": [t], "tendon_dampingpoly": [2 * t, 2 * t + 1]}
    own = _on_tendon(m, t)
    words |= {"actuator_damping": own} if own else {}
    words |= {"actuator_dampingpoly": [2 * i + k for i in own for k in (0, 1)]} if own else {}
    yield "a damped tendon", dofs, words
  gain, bias = m.actuator_gaintype.numpy(), m.actuator_biastype.numpy()
  moves = m.body_isdofancestor.numpy() != 0
  width = mjm.actuator_gainprm.shape[1]
  for i, (kind, (o0, o1)) in enumerate(
    zip(m.actuator_trntype.numpy(), m.actuator_trnid.numpy(), strict=True)
  ):
    affine = {"actuator_gainprm": gain[i] == GainType.AFFINE}
    affine |= {"actuator_biasprm": bias[i] == BiasType.AFFINE}
    words = {name: [width * i + 2] for name, yes in affine.items() if yes}
    if gain[i] in (GainType.MUSCLE, GainType.DCMOTOR):
      words = {}
    elif not words:
      continue
    if kind == TrnType.TENDON:
      moved = ten_dofs[o0]
    elif kind in (TrnType.SITE, TrnType.SLIDERCRANK):
      flags = moves[mjm.site_bodyid[o0]].copy()
      if o1 >= 0:
        flags ^= moves[mjm.site_bodyid[o1]]
      moved = np.flatnonzero(flags)
    elif kind == TrnType.BODY:
      moved = np.arange(m.nv)  # those of whatever it touches
    else:
      start = mjm.jnt_dofadr[o0]
      moved = np.arange(start, start + {0: 6, 1: 3}.get(int(mjm.jnt_type[o0]), 1))
    yield "an actuator with a velocity-dependent force", moved, words


def _misplaced(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[tuple[str, Words]]:
  """Forces of which implicitfast takes only a part, because M has no place for the rest."""
  if m.opt.integrator not in _IMPLICIT:
    return
  place = _place(m)
  free = np.isin(mjm.dof_bodyid, m.body_freeadr.numpy())
  for name, dofs, words in _moving(mjm, m):
    if np.any(free[dofs]):
      yield f"{_name(m)} with {name} on a free body", words
    elif not np.all(place[np.ix_(dofs, dofs)]):
      yield f"{_name(m)} with {name} across branches of the tree", words


def _conditional(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[tuple[str, Words]]:
  """Names of features that have no rule, and the parameters that are zero without them."""
  yield from _misplaced(mjm, m)
  bent = np.unique(m.tendon_geom_adr.numpy())
  if len(bent):
    yield "armature of tendons that wrap around geoms", _armatures(m, bent.tolist())
  place, pulled = _place(m), _tendon_dofs(m)
  apart = [t for t, dofs in enumerate(pulled) if not np.all(place[np.ix_(dofs, dofs)])]
  if apart:
    # M has no place for all of it, and what is left is not that of a tendon
    yield "armature of tendons across branches of the tree", _armatures(m, apart)
  turned = _turned_before(mjm)
  spatial = mjm.wrap_type[mjm.tendon_adr] != mujoco.mjtWrap.mjWRAP_JOINT if m.ntendon else []
  swung = [t for t, dofs in enumerate(pulled) if spatial[t] and np.any(turned[dofs])]
  if swung:
    yield f"armature of spatial tendons {_AFTER_BALL}", _armatures(m, swung)
  if np.any(turned) and _pins(mjm, m):
    yield f"connects and welds {_AFTER_BALL}", {}


def _acts(mjm: mujoco.MjModel, words: Words) -> bool:
  """Whether one of these is not zero in the model, or there are none."""
  return not words or any(np.any(getattr(mjm, n).ravel()[at]) for n, at in words.items())


def guarded(mjm: mujoco.MjModel, m: mjw.Model) -> list[tuple[wp.array, list[int]]]:
  """The parameters that must be zero when the adjoint runs, with the places of their floats."""
  found: Words = {}
  for _, words in _conditional(mjm, m):
    for name, at in words.items():
      found[name] = sorted({*found.get(name, []), *at})
  return [(parameter(m, name), at) for name, at in found.items()]


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
