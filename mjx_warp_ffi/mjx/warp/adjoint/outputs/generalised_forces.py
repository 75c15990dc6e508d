"""Cotangents of generalised forces that a step reports.

The cotangent c of such a force is a virtual velocity itself: c . qfrc_passive is the power of the
passive forces on c. So each kind of force gets a virtual velocity of its own: the one w of the
solves and the cotangents of the reports that contain this force. With q, v and qacc held fixed

    qfrc_smooth = passive + actuator + applied - bias,
    qfrc_constraint = M qacc - qfrc_smooth

at the solution, whose gradient has an error of float32 times that of the forces that cancel; where
qfrc_constraint is no such difference, in a discrete step and the inverse dynamics, rows have a
virtual velocity of their own. The sweep has the power of -(M qacc + bias) alone, so that of the
bias takes the power of M qacc once more, on the velocity `mass_acceleration`. A kind of passive
force that has a cotangent of its own has a velocity of its own, too.

The acceleration without constraints is M^-1 qfrc_smooth: with s = M^-1 c of its cotangent c, it has
the gradient of s . (qfrc_smooth - M qacc_smooth), qacc_smooth held fixed.
"""

import functools
from collections.abc import Collection, Iterator

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import smooth, support
from mujoco_warp._src.types import vec5

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.solve import integrators
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.vectors import add

FORCES = ("qfrc_bias", "qfrc_passive", "qfrc_actuator", "qfrc_smooth", "qfrc_constraint")
ACCELERATION = "qacc_smooth"
# Single passive forces, and their virtual velocities.
PASSIVE = dict(
  qfrc_spring="springs",
  qfrc_damper="dampers",
  qfrc_fluid="fluid",
  qfrc_gravcomp="gravity_compensation",
)

# How much of each cotangent, in the order of FORCES, is in the virtual velocity of a kind of force.
_WEIGHTS = dict(
  inertial=(-1.0, 0.0, 0.0, 1.0, -1.0),
  applied=(0.0, 0.0, 0.0, 1.0, -1.0),
  passive=(0.0, 1.0, 0.0, 1.0, -1.0),
  actuated=(0.0, 0.0, 1.0, 1.0, -1.0),
  mass_acceleration=(-1.0, 0.0, 0.0, 1.0, 0.0),
)


@wp.kernel(enable_backward=False)
def _combine(
  # In:
  base: wp.array2d[float],
  # Cotangents of the forces, in the order of FORCES:
  bias: wp.array2d[float],
  passive: wp.array2d[float],
  actuator: wp.array2d[float],
  smooth: wp.array2d[float],
  constraint: wp.array2d[float],
  # In:
  weights: vec5,
  # Out:
  out: wp.array2d[float],
):
  """A sum of cotangents and a virtual velocity, a thread per world and dof."""
  world, i = wp.tid()
  x = base[world, i] + weights[0] * bias[world, i] + weights[1] * passive[world, i]
  x = x + weights[2] * actuator[world, i] + weights[3] * smooth[world, i]
  out[world, i] = x + weights[4] * constraint[world, i]


def record(rec: Recording, kin: Kinematics, *, actuator: wp.array | None, rows: bool) -> None:
  """Has the virtual velocities of forces that have cotangents made before the sweep.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    actuator: the cotangent of qfrc_actuator, with that of the sensors.
    rows: whether the solve for the acceleration has constraint rows.
  """
  velocities, slices, tape = kin.velocities, kin.slices, rec.tape
  if velocities.mass_acceleration < 0:
    return
  vector = (rec.d.nworld, rec.m.nv)
  zero = wp.zeros(vector, dtype=float)
  cotangents = [rec.cotangents.get(name, zero) for name in FORCES]
  cotangents[FORCES.index("qfrc_actuator")] = zero if actuator is None else actuator
  constraint = cotangents[-1]
  if not rows or rec.needs.inverts or rec.needs.constraint:
    cotangents[-1] = zero  # there is no such force, or it is that of the rows
  if rec.needs.smooth:
    cotangents[FORCES.index("qfrc_smooth")] = _add_acceleration(rec, kin)
  for name, weights in _WEIGHTS.items():
    base = zero if name == "mass_acceleration" else slices[velocities.virtual]
    inputs = [base, *cotangents, vec5(*weights), slices[getattr(velocities, name)]]
    tape.before_sweep(functools.partial(wp.launch, _combine, vector, inputs=inputs))
  if rec.needs.constraint:
    inputs = [slices[velocities.virtual], constraint, slices[0]]
    tape.before_sweep(functools.partial(wp.launch, add, vector, inputs=inputs))
  for name, velocity in PASSIVE.items():
    if name in rec.cotangents:
      own = slices[getattr(velocities, velocity)]
      inputs = [slices[velocities.passive], rec.cotangents[name], own]
      tape.before_sweep(functools.partial(wp.launch, add, vector, inputs=inputs))


def _add_acceleration(rec: Recording, kin: Kinematics) -> wp.array:
  """The cotangent of qfrc_smooth with that of qacc_smooth, whose virtual velocity is made here."""
  m, d, cotangent, slices = rec.m, rec.d, rec.cotangents[ACCELERATION], kin.slices
  virtual = slices[kin.velocities.smooth]
  acceleration = slices[kin.velocities.smooth_acceleration]
  total = wp.zeros((d.nworld, m.nv), dtype=float)
  own = rec.cotangents.get("qfrc_smooth", wp.zeros_like(total))

  def solve() -> None:
    smooth.factor_solve_i(m, d, d.M, d.qLD, d.qLDiagInv, acceleration, d.qfrc_smooth)
    smooth.solve_m(m, d, virtual, cotangent)
    wp.launch(add, total.shape, inputs=[virtual, own], outputs=[total])

  rec.tape.before_sweep(solve)
  return total


def acceleration_cotangent(rec: Recording, out: wp.array) -> None:
  """Writes the cotangent of qacc that comes from the force of the constraints."""
  support.mul_m(rec.m, rec.d, out, rec.cotangents["qfrc_constraint"])


def missing_acceleration(m: mjw.Model, outputs: Collection[str]) -> Iterator[str]:
  """The words of a refusal for each reason why qacc_smooth, if it is an output, has no rule."""
  if ACCELERATION not in outputs:
    return
  if integrators.discrete(m):
    yield "qacc_smooth with the integrator discrete"
  if not m.opt.run_qacc_smooth:
    yield "qacc_smooth with opt.run_qacc_smooth off"


PART = Part(reports=(*FORCES, *PASSIVE, ACCELERATION))
