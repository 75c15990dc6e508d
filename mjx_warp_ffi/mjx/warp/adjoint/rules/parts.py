"""The model fields that can have a gradient, and how MuJoCo Warp stores them."""

import mujoco_warp as mjw
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_outputs import FORCE


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
