"""The cotangent of the inverse dynamics.

What the acceleration a takes beside the applied and the actuator forces is

    qfrc_inverse = M a + bias - passive - J^T f(J a - a_ref),

the opposite of all other forces in the equation of motion. So the opposite of its cotangent is the
virtual velocity, for those forces alone, and nothing is to be solved. The gradient with respect to
a is that of the same power.

The force of the constraints J^T f is another output: the power of the rows on its cotangent is
added. The same holds for `rne`, where a is given too and the bias force has the inertial part: the
cotangent of that force is one of those in `generalised_forces.py`.
"""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.actuation import force_limits
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.vectors import add, negate

NAME = "qfrc_inverse"
PART = Part()  # it has neither parameters of its own nor an output that a step reports


def record_given(rec: Recording, kin: Kinematics) -> None:
  """Has the virtual velocity made from the cotangent, before all others that take it."""
  velocities, slices, d = kin.velocities, kin.slices, rec.d
  cotangent = rec.cotangent(NAME)

  def write() -> None:
    if cotangent is not None:
      wp.launch(negate, cotangent.shape, inputs=[cotangent], outputs=[slices[velocities.virtual]])
    wp.copy(slices[velocities.acceleration], d.qacc)

  rec.tape.before_sweep(write)


def record_opposite(rec: Recording, kin: Kinematics) -> None:
  """Leaves out the applied and the actuator forces, after all virtual velocities are there."""
  velocities, slices = kin.velocities, kin.slices
  constraint = rec.cotangent("qfrc_constraint")

  def leave_out() -> None:
    for number in (velocities.applied, velocities.actuated):
      slices[number].zero_()
    if constraint is not None:  # now only rows see the virtual velocity
      virtual = slices[velocities.virtual]
      wp.launch(add, constraint.shape, inputs=[virtual, constraint, virtual])

  rec.tape.before_sweep(leave_out)
  force_limits.mask(rec, kin)  # without actuators, nothing of those that compensate for gravity
