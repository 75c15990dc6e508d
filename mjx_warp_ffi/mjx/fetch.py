"""A Data written into an MjData; what a Data does not hold is computed by MuJoCo.

A Data has no constraint rows, inertia matrix or moments. MuJoCo computes them here from the same
state and the Data's contacts, so that the MjData is complete, for example for a viewer that draws
contact forces.
"""

from __future__ import annotations

from collections.abc import Iterable

import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.types import Data

_INTEGRATED = ("qpos", "qvel", "act", "history", "plastic")
_ROW_COUNTS = ("nefc", "ne", "nf", "nl")  # follow from the rows that MuJoCo makes


def into_mujoco(
  result: mujoco.MjData, m: mujoco.MjModel, *, d: Data, before: Data | None = None
) -> None:
  """Overwrites an MjData.

  Args:
    result: the MjData.
    m: the model.
    d: one world, on the host.
    before: the state that the results of `d` belong to, if `d` has been integrated since.
  """
  names = [f.name for f in fields.data_fields() if f.name != "overflow"]
  inputs = [n for n in names if n in fields.STATE]
  _write(result, d, inputs)
  if before is not None:
    _write(result, before, _INTEGRATED)
  if m.opt.integrator == mujoco.mjtIntegrator.mjINT_DISCRETE:
    mujoco.mj_forward(m, result)  # its rows follow from the solve, so contacts are MuJoCo's own
  else:
    _position(result, m, d)
    _constrain(result, m, d)
  _write(result, d, [n for n in names if n not in _ROW_COUNTS])


def _write(result: mujoco.MjData, d: Data, names: Iterable[str]) -> None:
  for name in names:
    value, target = np.asarray(getattr(d, name)), getattr(result, name)
    if name == "solver_niter":
      target[0] = value
    elif not isinstance(target, np.ndarray):
      setattr(result, name, value.item())
    elif target.size == value.size:  # results for rows exist only where rows can
      target[...] = value.reshape(target.shape)


def _position(result: mujoco.MjData, m: mujoco.MjModel, d: Data) -> None:
  """What depends on the position, with the contacts of the Data."""
  mujoco.mj_fwdKinematics(m, result)
  mujoco.mj_makeM(m, result)
  mujoco.mj_factorM(m, result)
  ncon = min(int(d.ncon), d.sizes.nconmax)
  mujoco._functions._realloc_con_efc(result, ncon=ncon, nefc=0, nJ=0)
  for field in fields.contact_fields():
    if ncon and hasattr(result.contact, field.name):
      target = getattr(result.contact, field.name)
      target[...] = np.asarray(getattr(d.contact, field.name))[:ncon].reshape(target.shape)
  if ncon:
    result.contact.exclude[:] = 0
    result.contact.geom1[:], result.contact.geom2[:] = result.contact.geom.T  # older names


def _constrain(result: mujoco.MjData, m: mujoco.MjModel, d: Data) -> None:
  """The constraint rows and their forces at the acceleration of the Data."""
  mujoco.mj_makeConstraint(m, result)
  mujoco.mj_transmission(m, result)
  mujoco.mj_projectConstraint(m, result)
  mujoco.mj_fwdVelocity(m, result)
  if result.nefc:
    acceleration = np.empty(result.nefc)
    mujoco.mj_mulJacVec(m, result, acceleration, np.asarray(d.qacc, float))
    mujoco.mj_constraintUpdate(m, result, acceleration - result.efc_aref, None, 0)
