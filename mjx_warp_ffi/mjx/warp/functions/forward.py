"""mujoco_warp's step and forward, and which fields of Data they compute for a model."""

from __future__ import annotations

import functools

import mujoco_warp as mjw

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.enums import EnableBit
from mjx_warp_ffi.mjx.data.spec import Spec
from mjx_warp_ffi.mjx.data.types import Model
from mjx_warp_ffi.mjx.warp.ffi import Staged
from mjx_warp_ffi.third_party.warp.process import guard

CONTACTS = ("ncon", "warning", *(f"contact.{f.name}" for f in fields.contact_fields()))


@functools.lru_cache(maxsize=64)
def _on_demand(spec: Spec, enableflags: int, postconstraint: bool) -> frozenset[str]:
  """Fields that a forward pass does not compute, as mj_forward, unless the model asks for them."""
  with guard.tracing():
    m = mjw.put_model(spec.mj_model)
  left = {"qfrc_inverse"}
  if not (enableflags & EnableBit.ENERGY or m.sensor_e_potential or m.sensor_e_kinetic):
    left |= {"energy"}
  if not m.sensor_subtree_vel:
    left |= {"subtree_linvel", "subtree_angmom"}
  if not (postconstraint or m.sensor_rne_postconstraint):
    left |= {"cacc", "cfrc_int", "cfrc_ext"}
  return frozenset(left) | absent(spec)


def absent(spec: Spec) -> frozenset[str]:
  """Fields that belong to features which a model lacks."""
  left: set[str] = set()
  if "has_fluid" not in spec.switches:
    left |= {"qfrc_fluid"}
  if "flg_adhesion" not in spec.switches:
    left |= {"qfrc_adhesion", "contact.adhesion"}
  if "flg_surfacevel" not in spec.switches:
    left |= {"contact.surfacevel"}
  if not spec.mj_model.nflex:
    left |= {"contact.flex", "contact.elem", "contact.vert"}
  return frozenset(left)


def _forward_outputs(m: Model) -> tuple[str, ...]:
  statics = m.opt.statics
  left = _on_demand(m.spec, statics.enableflags, statics.run_rne_postconstraint)
  left = left.union(fields.STATE)
  names = (*(f.name for f in fields.data_fields()), *CONTACTS)
  return tuple(n for n in names if n not in left)


def _state_outputs(m: Model) -> tuple[str, ...]:
  own = fields.STATE if m.autoreset else fields.INTEGRATED  # a reset replaces the inputs too
  return tuple(f.name for f in fields.data_fields() if f.name in own)


def _step_outputs(m: Model) -> tuple[str, ...]:
  return (*_state_outputs(m), *_forward_outputs(m))


def state_outputs(m: Model, *, also: tuple[str, ...] = ()) -> tuple[str, ...]:
  """The outputs of a step that the next step or this step's gradient reads, and those `also`."""
  needed = {*_state_outputs(m), "overflow", "warning", "qacc", *also}
  return tuple(n for n in _step_outputs(m) if n in needed)


step = Staged(mjw.step, "step", _step_outputs)
forward = Staged(mjw.forward, "forward", _forward_outputs)
