"""MuJoCo's enums under the names that MJX gives them, with members without their prefix."""

from __future__ import annotations

import enum
from typing import Any

import mujoco

from mjx_warp_ffi.mjx.data.pickles import PUBLIC, public


def _mirror(name: str, source: Any, base: type[enum.Enum] = enum.IntEnum) -> Any:
  """The enum `name` with the members of MuJoCo's, `mjGEOM_PLANE` being PLANE."""
  named = {k.split("_", 1)[1]: int(v) for k, v in source.__members__.items() if "_" in k}
  result = base(name, named, module=PUBLIC)
  result.__doc__ = f"mujoco.{source.__name__}, with members without their prefix."
  return result


@public
class Impl(enum.Enum):
  """Implementations of MJX's interface; here there is one."""

  WARP = "warp"


BiasType = _mirror("BiasType", mujoco.mjtBias)
CamLightType = _mirror("CamLightType", mujoco.mjtCamLight)
ConeType = _mirror("ConeType", mujoco.mjtCone)
ConstraintType = _mirror("ConstraintType", mujoco.mjtConstraint)
DisableBit = _mirror("DisableBit", mujoco.mjtDisableBit, enum.IntFlag)
DynType = _mirror("DynType", mujoco.mjtDyn)
EnableBit = _mirror("EnableBit", mujoco.mjtEnableBit, enum.IntFlag)
EqType = _mirror("EqType", mujoco.mjtEq)
GainType = _mirror("GainType", mujoco.mjtGain)
GeomType = _mirror("GeomType", mujoco.mjtGeom)
IntegratorType = _mirror("IntegratorType", mujoco.mjtIntegrator)
JacobianType = _mirror("JacobianType", mujoco.mjtJacobian)
ObjType = _mirror("ObjType", mujoco.mjtObj)
SensorType = _mirror("SensorType", mujoco.mjtSensor)
SolverType = _mirror("SolverType", mujoco.mjtSolver)
TrnType = _mirror("TrnType", mujoco.mjtTrn)
WrapType = _mirror("WrapType", mujoco.mjtWrap)


@public
class JointType(enum.IntEnum):
  """mujoco.mjtJoint, with members without their prefix."""

  FREE = int(mujoco.mjtJoint.mjJNT_FREE)
  BALL = int(mujoco.mjtJoint.mjJNT_BALL)
  SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
  HINGE = int(mujoco.mjtJoint.mjJNT_HINGE)

  def dof_width(self) -> int:
    """The number of degrees of freedom."""
    return {JointType.FREE: 6, JointType.BALL: 3}.get(self, 1)

  def qpos_width(self) -> int:
    """The number of coordinates."""
    return {JointType.FREE: 7, JointType.BALL: 4}.get(self, 1)


# The integrators that take the derivative of forces with respect to velocities into the solve.
IMPLICIT = (IntegratorType.IMPLICIT, IntegratorType.IMPLICITFAST)
