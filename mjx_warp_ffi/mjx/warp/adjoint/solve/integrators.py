"""Which solves a step takes, by its integrator and its options."""

import mujoco_warp as mjw
from mujoco_warp._src.types import DisableBit, IntegratorType, SolverType

IMPLICIT = (IntegratorType.IMPLICIT, IntegratorType.IMPLICITFAST)
ENOUGH = 10  # iterations after which Newton's method has converged in float32


def name(m: mjw.Model) -> str:
  """The integrator of a model in small letters."""
  return IntegratorType(m.opt.integrator).name.lower()


def implicit_damping(m: mjw.Model) -> bool:
  """Whether the step is Euler's with dampers integrated implicitly."""
  off = DisableBit.EULERDAMP | DisableBit.DAMPER
  return m.opt.integrator == IntegratorType.EULER and not (m.opt.disableflags & off)


def has_second_solve(m: mjw.Model) -> bool:
  """Whether a second solve follows that for the acceleration."""
  return implicit_damping(m) or implicitfast(m)


def implicit(m: mjw.Model) -> bool:
  """Whether the velocity derivative of the bias is integrated implicitly too."""
  return m.opt.integrator == IntegratorType.IMPLICIT


def implicitfast(m: mjw.Model) -> bool:
  """Whether velocity derivatives of passive and actuator forces are integrated implicitly."""
  if implicit(m):
    return True
  off = DisableBit.ACTUATION | DisableBit.SPRING | DisableBit.DAMPER
  return m.opt.integrator == IntegratorType.IMPLICITFAST and (m.opt.disableflags & off) != off


def discrete(m: mjw.Model) -> bool:
  """Whether the acceleration is that of the discrete step: forces at its end, in M's place H."""
  return m.opt.integrator == IntegratorType.DISCRETE


def stops_early(m: mjw.Model) -> bool:
  """Whether the forward solve may give another acceleration than that of the state.

  It does where it stops before it has converged, and for connects and welds: MJWarp takes their
  Jdot qvel from the velocities of the step before.
  """
  welds = m.eq_connect_adr.size + m.eq_wld_adr.size > 0
  return welds or m.opt.solver != SolverType.NEWTON or m.opt.iterations < ENOUGH
