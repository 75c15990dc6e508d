"""Which solves a step takes, by its integrator and its options."""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
from mujoco_warp._src.types import DisableBit, IntegratorType, SolverType

from mjx_warp_ffi.mjx.data.enums import IMPLICIT as IMPLICIT
from mjx_warp_ffi.mjx.warp.adjoint.tape.needs import Scheme
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part

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


def scheme_of(m: mjw.Model, *, integrates: bool, solves: bool) -> Scheme:
  """What a step, or one evaluation, takes implicitly.

  Args:
    m: the model.
    integrates: whether the outputs are those of a whole step.
    solves: whether they depend on the acceleration.
  """
  second = integrates and has_second_solve(m)
  return Scheme(
    second=second,
    implicitfast=second and implicitfast(m),
    implicit_bias=second and implicit(m),
    discrete=solves and discrete(m),
  )


def stops_early(m: mjw.Model) -> bool:
  """Whether the forward solve may give another acceleration than that of the state.

  It does where it stops before it has converged, and for connects and welds: MJWarp takes their
  Jdot qvel from the velocities of the step before.
  """
  welds = m.eq_connect_adr.size + m.eq_wld_adr.size > 0
  return welds or m.opt.solver != SolverType.NEWTON or m.opt.iterations < ENOUGH


def missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal for options with which an implicit solve has no rule."""
  off = m.opt.disableflags & (DisableBit.ACTUATION | DisableBit.DAMPER)
  if m.opt.integrator in IMPLICIT and off not in (0, DisableBit.ACTUATION | DisableBit.DAMPER):
    yield f"{name(m)} with only one of actuation and damper disabled"


PART = Part(missing=missing)
