"""Cotangents of generalised forces that a step reports.

The cotangent c of such a force is a virtual velocity itself: c . qfrc_passive is the power of the
passive forces on c. So each kind of force gets a virtual velocity of its own, w and the cotangents
of the reports that contain it. With q, v and qacc held fixed

    qfrc_smooth = passive + actuator + applied - bias,
    qfrc_constraint = M qacc - qfrc_smooth

at the solution, whose gradient has an error of float32 times that of the forces that cancel. The
sweep has the power of -(M qacc + bias) alone, so that of the bias takes the power of M qacc once
more, on n.
"""

import functools

import warp as wp
from mujoco_warp._src import support
from mujoco_warp._src.types import vec5

FORCES = ("qfrc_bias", "qfrc_passive", "qfrc_actuator", "qfrc_smooth", "qfrc_constraint")

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
  if not step.newton.rows:
    cotangents[-1] = zero  # there is no such force
  slices, fields = step.sweep.slices, step.fields
  for name, weights in _WEIGHTS.items():
    base = zero if name == "n" else slices[fields.w]
    inputs = [base, *cotangents, vec5(*weights), slices[getattr(fields, name)]]
    step.before_sweep.append(functools.partial(wp.launch, _combine, vector, inputs=inputs))


def acceleration_cotangent(step, out: wp.array) -> None:
  """Writes the cotangent of qacc that comes from the force of the constraints."""
  support.mul_m(step.m, step.d, out, step.cotangents["qfrc_constraint"])
