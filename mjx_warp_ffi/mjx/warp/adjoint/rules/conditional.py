"""Model fields that must be zero for the rules to hold: where they are not, a gradient is NaN."""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import (
  BiasType,
  GainType,
  TrnType,
)

from mjx_warp_ffi.mjx.warp.adjoint.constraints import welds
from mjx_warp_ffi.mjx.warp.adjoint.solve import integrators
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import parameter

Words = dict[str, list[int]]  # model fields, and the places of floats in one row of each


_AFTER_BALL = "of bodies that have joints after a ball joint"


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
  if m.opt.integrator not in integrators.IMPLICIT:
    return
  place = _place(m)
  free = np.isin(mjm.dof_bodyid, m.body_freeadr.numpy())
  for name, dofs, words in _moving(mjm, m):
    if np.any(free[dofs]):
      yield f"{integrators.name(m)} with {name} on a free body", words
    elif not np.all(place[np.ix_(dofs, dofs)]):
      yield f"{integrators.name(m)} with {name} across branches of the tree", words


def conditional(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[tuple[str, Words]]:
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
  if np.any(turned) and welds.act(mjm, m):
    yield f"connects and welds {_AFTER_BALL}", {}


def acts(mjm: mujoco.MjModel, words: Words) -> bool:
  """Whether one of these is not zero in the model, or there are none."""
  return not words or any(np.any(getattr(mjm, n).ravel()[at]) for n, at in words.items())


def guarded(mjm: mujoco.MjModel, m: mjw.Model) -> list[tuple[wp.array, list[int]]]:
  """The parameters that must be zero when the adjoint runs, with the places of their floats."""
  found: Words = {}
  for _, words in conditional(mjm, m):
    for name, at in words.items():
      found[name] = sorted({*found.get(name, []), *at})
  return [(parameter(m, name), at) for name, at in found.items()]
