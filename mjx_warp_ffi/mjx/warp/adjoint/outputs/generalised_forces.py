"""Cotangents of generalised forces that a step reports.

The cotangent c of such a force is a virtual velocity itself: c . qfrc_passive is the power of the
passive forces on c. So each kind of force gets a virtual velocity of its own, w and the cotangents
of the reports that contain it. With q, v and qacc held fixed

    qfrc_smooth = passive + actuator + applied - bias,
    qfrc_constraint = M qacc - qfrc_smooth

at the solution, whose gradient has an error of float32 times that of the forces that cancel; where
qfrc_constraint is no such difference, in a discrete step and the inverse dynamics, rows have a
virtual velocity of their own. The sweep has the power of -(M qacc + bias) alone, so that of the
bias takes the power of M qacc once more, on n. A kind of passive force that has a cotangent of its
own has a velocity of its own, too.

The acceleration without constraints is M^-1 qfrc_smooth: with s = M^-1 c of its cotangent c, it has
the gradient of s . (qfrc_smooth - M qacc_smooth), qacc_smooth held fixed.
"""

import functools

import warp as wp
from mujoco_warp._src import smooth, support
from mujoco_warp._src.types import vec5

from mjx_warp_ffi.mjx.warp.adjoint.tape.vectors import add

FORCES = ("qfrc_bias", "qfrc_passive", "qfrc_actuator", "qfrc_smooth", "qfrc_constraint")
ACCELERATION = "qacc_smooth"
# Single passive forces, and their virtual velocities.
PASSIVE = dict(qfrc_spring="k", qfrc_damper="b", qfrc_fluid="f", qfrc_gravcomp="g")

# How much of each cotangent, in the order of FORCES, is in the virtual velocity of a kind of force.
_WEIGHTS = dict(
  i=(-1.0, 0.0, 0.0, 1.0, -1.0),
  x=(0.0, 0.0, 0.0, 1.0, -1.0),
  p=(0.0, 1.0, 0.0, 1.0, -1.0),
  u=(0.0, 0.0, 1.0, 1.0, -1.0),
  n=(-1.0, 0.0, 0.0, 1.0, 0.0),
)


@wp.kernel(enable_backward=False)
def _combine(
  w: wp.array2d[float],
  bias: wp.array2d[float],
  passive: wp.array2d[float],
  actuator: wp.array2d[float],
  smooth: wp.array2d[float],
  constraint: wp.array2d[float],
  weights: vec5,
  out: wp.array2d[float],
):
  """A sum of cotangents and w, a thread per world and dof."""
  world, i = wp.tid()
  x = w[world, i] + weights[0] * bias[world, i] + weights[1] * passive[world, i]
  x = x + weights[2] * actuator[world, i] + weights[3] * smooth[world, i]
  out[world, i] = x + weights[4] * constraint[world, i]


def record(step, actuator: wp.array | None) -> None:
  """Has the virtual velocities of a `StageAdjoint` made before its sweep.

  `actuator` is the cotangent of qfrc_actuator, with that of the sensors.
  """
  if step.fields.n < 0:
    return
  vector = (step.d.nworld, step.m.nv)
  zero = wp.zeros(vector, dtype=float)
  cotangents = [step.cotangents.get(name, zero) for name in FORCES]
  cotangents[FORCES.index("qfrc_actuator")] = zero if actuator is None else actuator
  constraint = cotangents[-1]
  if not step.evaluation.newton.rows or step.needs.inverts or step.needs.constraint:
    cotangents[-1] = zero  # there is no such force, or it is that of the rows
  slices, fields = step.sweep.slices, step.fields
  if step.needs.smooth:
    cotangents[FORCES.index("qfrc_smooth")] = _add_acceleration(step)
  for name, weights in _WEIGHTS.items():
    base = zero if name == "n" else slices[fields.w]
    inputs = [base, *cotangents, vec5(*weights), slices[getattr(fields, name)]]
    step.before_sweep.append(functools.partial(wp.launch, _combine, vector, inputs=inputs))
  if step.needs.constraint:
    inputs = [slices[fields.w], constraint, slices[0]]
    step.before_sweep.append(functools.partial(wp.launch, add, vector, inputs=inputs))
  for name, field in PASSIVE.items():
    if name in step.cotangents:
      inputs = [slices[fields.p], step.cotangents[name], slices[getattr(fields, field)]]
      step.before_sweep.append(functools.partial(wp.launch, add, vector, inputs=inputs))


def _add_acceleration(step) -> wp.array:
  """The cotangent of qfrc_smooth with that of qacc_smooth, whose virtual velocity is made here."""
  m, d, cot, slices = step.m, step.d, step.cotangents, step.sweep.slices
  virtual, acceleration = slices[step.fields.s], slices[step.fields.t]
  total = wp.zeros((d.nworld, m.nv), dtype=float)
  own = cot.get("qfrc_smooth", wp.zeros_like(total))

  def solve() -> None:
    smooth.factor_solve_i(m, d, d.M, d.qLD, d.qLDiagInv, acceleration, d.qfrc_smooth)
    smooth.solve_m(m, d, virtual, cot[ACCELERATION])
    wp.launch(add, total.shape, inputs=[virtual, own], outputs=[total])

  step.before_sweep.append(solve)
  return total


def acceleration_cotangent(step, out: wp.array) -> None:
  """Writes the cotangent of qacc that comes from the force of the constraints."""
  support.mul_m(step.m, step.d, out, step.cotangents["qfrc_constraint"])
