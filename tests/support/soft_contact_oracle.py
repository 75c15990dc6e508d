"""The smoothed contacts of the backward pass in C MuJoCo and float64, for the tests of it.

C MuJoCo makes the rows of all contacts within the width, since the margins are wider by it. The
law is written over them here, from the rows' own parameters, before C MuJoCo solves and integrates.
"""

import copy
import dataclasses

import mujoco
import numpy as np

from support.adjoint_oracle import Oracle

_PARAMETERS = ("body_mass", "geom_friction", "geom_size", "geom_solref", "geom_solimp")


def impedance(solimp: np.ndarray, depth: float) -> float:
  """MuJoCo's impedance at a position, from the page "Modeling" of its documentation."""
  low, high, width, mid, power = solimp
  x = min(1.0, abs(depth) / width)
  y = x**power / mid ** (power - 1) if x <= mid else 1 - (1 - x) ** power / (1 - mid) ** (power - 1)
  return low + y * (high - low)


def law(gap: float, width: float) -> tuple[float, float]:
  """The position of a smoothed contact, and the share of its impedance."""
  if gap <= 0:
    return gap - width / 2, 1.0
  x = min(1.0, gap / width)
  return -width / 2 * (1 - x) ** 2, (1 - x) ** 2 * (1 + 2 * x)


@dataclasses.dataclass
class SoftOracle(Oracle):
  """An Oracle of the step with smoothed contacts; see `ContactSmoothing` for the two numbers."""

  width: float = 0.0
  friction: float = 1.0

  def __post_init__(self):
    super().__post_init__()
    self.wide = copy.copy(self.m)
    # islands would be solved from copies of the rows
    self.wide.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND

  def value(self) -> float:
    """The scalar at the inputs."""
    m, d = self.wide, self.d
    for name in _PARAMETERS:
      getattr(m, name)[:] = getattr(self.m, name)
    m.geom_margin[:] = self.m.geom_margin + self.width / 2
    m.opt.impratio = self.m.opt.impratio * self.friction
    mujoco.mj_resetData(m, d)
    for name, x in self.inputs.items():
      getattr(d, name)[:] = x
    for stage in ("Position", "Velocity", "Actuation", "Acceleration"):
      getattr(mujoco, f"mj_fwd{stage}")(m, d)
    for contact in d.contact:
      self._soften(contact)
    mujoco.mj_fwdConstraint(m, d)
    mujoco.mj_sensorAcc(m, d)
    names = set(self.cotangents) - {"qpos", "qvel", "act"}
    out = {name: getattr(d, name).copy() for name in names}  # before the step ends
    euler = m.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    (mujoco.mj_Euler if euler else mujoco.mj_implicit)(m, d)
    out |= dict(qpos=d.qpos, qvel=d.qvel, act=d.act)
    return sum(float(np.sum(self.cotangents[k].ravel() * v.ravel())) for k, v in out.items())

  def _soften(self, contact):
    """Writes the law over the rows of a contact."""
    m, d = self.wide, self.d
    gap = contact.dist - (contact.includemargin - self.width)
    pos, share = law(gap, self.width)
    imp = share * impedance(contact.solimp, min(gap, 0.0))
    elliptic = m.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    count = contact.dim if elliptic or contact.dim == 1 else 2 * (contact.dim - 1)
    for i in range(count):
      r = contact.efc_address + i
      stiffness, damping, made, _ = d.efc_KBIP[r]
      d.efc_R[r] *= (1 - imp) / imp * made / (1 - made)
      d.efc_D[r] = 1 / d.efc_R[r]
      spring = stiffness * imp * pos if i == 0 or not elliptic else 0.0
      d.efc_aref[r] = -damping * d.efc_vel[r] - spring
