"""The cotangent of the inverse dynamics.

What the acceleration a takes beside the applied and the actuator forces is

    qfrc_inverse = M a + bias - passive - J^T f(J a - a_ref),

the opposite of all other forces in the equation of motion. So the opposite of its cotangent is the
virtual velocity, for those forces alone, and nothing is to be solved. The gradient with respect to
a is that of the same power.

The force of the constraints J^T f is another output: the power of the rows on its cotangent is
added. The same holds for `rne`, where a is given too and the bias force has the inertial part: the
cotangent of that force is one of those in `forces`.
"""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.actuation import force_limits
from mjx_warp_ffi.mjx.warp.adjoint.tape.vectors import add, negate

NAME = "qfrc_inverse"


def record(step) -> None:
  """Has the virtual velocities of a `StageAdjoint` made from the cotangent before its sweep."""
  fields, slices, d = step.fields, step.sweep.slices, step.d
  cotangent, constraint = (step.cotangents.get(name) for name in (NAME, "qfrc_constraint"))

  def write() -> None:
    if cotangent is not None:
      wp.launch(negate, cotangent.shape, inputs=[cotangent], outputs=[slices[fields.w]])
    wp.copy(slices[fields.a], d.qacc)

  def leave_out() -> None:
    for name in (fields.x, fields.u):
      slices[name].zero_()
    if constraint is not None:  # now only rows see w
      wp.launch(add, constraint.shape, inputs=[slices[fields.w], constraint, slices[fields.w]])

  step.before_sweep.insert(0, write)
  step.before_sweep.append(leave_out)
  force_limits.mask(step)  # without actuators, nothing of those that compensate for gravity either
