"""Whether mujoco_warp takes a model, with which options, and which capacities suffice for it."""

from __future__ import annotations

import functools
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
from mujoco_warp._src import io as mjw_io

from mjx_warp_ffi.mjx.data import fields, pickles
from mjx_warp_ffi.mjx.data.enums import EqType, GeomType
from mjx_warp_ffi.mjx.data.options import with_options
from mjx_warp_ffi.mjx.data.spec import Spec
from mjx_warp_ffi.mjx.warp.models import sdf_functions
from mjx_warp_ffi.third_party.warp.process import guard


def _accepted(mj_model: mujoco.MjModel) -> mjw.Model:
  """The model as mujoco_warp has it, made while nothing else uses Warp."""
  with guard.tracing():
    return mjw.put_model(mj_model)


@functools.lru_cache(maxsize=64)
def check_options(spec: Spec, statics: Any) -> None:
  """Raises as `check_and_options` if mujoco_warp cannot step a model with other static options.

  Raises:
    NotImplementedError: if mujoco_warp lacks what they ask for; the text names it.
    ValueError: where another setting of the model helps.
  """
  _accepted(with_options(spec.mj_model, statics))


@pickles.located(pickles.ADDRESSES["spec"])
class AcceptedSpec(Spec):
  """The static part of a Model that mujoco_warp has accepted, and is asked about again."""

  def check_options(self, statics: Any) -> None:
    """As the function of this module."""
    check_options(self, statics)


def check_and_options(mj_model: mujoco.MjModel) -> dict[str, Any]:
  """The static options of a model as mujoco_warp sets them, once it has accepted the model.

  Raises:
    NotImplementedError: if mujoco_warp lacks a feature of the model; the text names it.
  """
  model = _accepted(mj_model)
  sdf_functions.check(mj_model)
  statics = {}
  for name in fields.option_statics():
    value = getattr(model.opt, name)
    statics[name] = bool(value) if isinstance(value, bool) else int(value)
  statics["warn_overflow"] = 0  # Data.overflow says it; nothing is printed
  return statics


# The most contacts of one moving geom with the ground, by its type; geoms of other types have one.
_CONTACTS_OF = {GeomType.CAPSULE: 2, GeomType.CYLINDER: 4, GeomType.BOX: 4, GeomType.MESH: 4}


def default_nconmax(mj_model: mujoco.MjModel, mj_data: mujoco.MjData | None = None) -> int:
  """Contacts of one world that suffice for most models.

  Up to 16 contacts all that the geoms could have if they lay on the ground and each touched
  another one; beyond that half of it, since large mechanisms never do. Random rollouts of the
  models in `models/` stay below two thirds of it.
  """
  most = _most_contacts(mj_model)
  guess = max(min(most, 16 + most // 2), mj_data.ncon if mj_data else 0)
  if mj_model.nflex or np.any(mj_model.geom_type == GeomType.SDF):
    guess = max(guess, mjw_io._default_nconmax(mj_model, mj_data))
  return round_up(guess)


def default_njmax(mj_model: mujoco.MjModel, mj_data: mujoco.MjData | None = None) -> int:
  """Constraint rows of one world that suffice for most models.

  All equalities, friction and limits, and the rows of a third of the possible contacts beyond 16.
  """
  m, eq = mj_model, mj_model.eq_type
  most = _most_contacts(m)
  condim = max(1, *m.geom_condim, *m.pair_dim) if m.ngeom else 1
  elliptic = m.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
  per_contact = condim if elliptic or condim == 1 else 2 * (condim - 1)
  guess = (
    m.neq + 2 * np.sum(eq == EqType.CONNECT) + 5 * np.sum(eq == EqType.WELD)
    + np.sum(m.dof_frictionloss > 0) + np.sum(m.tendon_frictionloss > 0)
    + np.sum(m.jnt_limited) + np.sum(m.tendon_limited)
    + per_contact * min(most, 16 + most // 3)
  )  # fmt: skip
  guess = max(int(guess), mj_data.nefc if mj_data else 0)
  if m.nflex or np.any(m.geom_type == GeomType.SDF):
    guess = max(guess, mjw_io._default_njmax(m, mj_data))
  return round_up(guess)


def _most_contacts(m: mujoco.MjModel) -> int:
  collides = (m.geom_contype != 0) | (m.geom_conaffinity != 0)
  moves = m.body_weldid[m.geom_bodyid] != 0
  on_ground = sum(_CONTACTS_OF.get(GeomType(t), 1) for t in m.geom_type[collides & moves])
  ground = m.geom_type[collides & ~moves]
  # two where the ground is not flat
  sides = 0 if ground.size == 0 else 1 + np.any(ground == GeomType.HFIELD)
  return int(sides * on_ground + np.sum(collides & moves) + 2 * m.npair)


def round_up(count: float) -> int:
  """A capacity for so many: a multiple of 8, and never none."""
  return max(8, -(-int(count) // 8) * 8)


def is_sparse(mj_model: mujoco.MjModel) -> bool:
  """Whether mujoco_warp keeps the constraint Jacobian of a model sparse."""
  return mjw_io.is_sparse(mj_model)
