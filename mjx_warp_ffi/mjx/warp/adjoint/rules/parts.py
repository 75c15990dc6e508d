"""All parts of the physics, and what they have a rule for together.

A part says in its own file what it can differentiate and what it refuses (`tape/part.py`). A new
part needs its file and one line: here, or in the tuple of forces, outputs or sensors that it joins.
"""

import itertools

from mjx_warp_ffi.mjx.warp.adjoint.actuation import (
  actuators,
  adhesion,
  control_delays,
  dc_motors,
  force_limits,
  transmissions,
)
from mjx_warp_ffi.mjx.warp.adjoint.constraints import rows, welds
from mjx_warp_ffi.mjx.warp.adjoint.contacts import contact_power, materials
from mjx_warp_ffi.mjx.warp.adjoint.forces import tendon_wraps, tendons
from mjx_warp_ffi.mjx.warp.adjoint.forces.all_forces import FORCES
from mjx_warp_ffi.mjx.warp.adjoint.kinematics import kinematics
from mjx_warp_ffi.mjx.warp.adjoint.outputs import generalised_forces, inverse_dynamics, reactions
from mjx_warp_ffi.mjx.warp.adjoint.outputs.all_outputs import OUTPUTS
from mjx_warp_ffi.mjx.warp.adjoint.sensors import actuator_forces, contact_outputs, limit_sensors
from mjx_warp_ffi.mjx.warp.adjoint.sensors.all_families import FAMILIES
from mjx_warp_ffi.mjx.warp.adjoint.solve import integrators
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part

PARTS: tuple[Part, ...] = (
  kinematics.PART,
  *OUTPUTS,
  *FORCES,
  *(tendons.PART, tendon_wraps.PART),
  *(rows.PART, welds.PART),
  *(contact_power.PART, materials.PART),
  *(transmissions.PART, force_limits.PART, actuators.PART, dc_motors.PART),
  *(adhesion.PART, control_delays.PART),
  integrators.PART,
  *(generalised_forces.PART, inverse_dynamics.PART, reactions.PART),
  *FAMILIES,
  *(actuator_forces.PART, contact_outputs.PART, limit_sensors.PART),
)


def _union(lists: list[tuple]) -> tuple:
  return tuple(dict.fromkeys(itertools.chain.from_iterable(lists)))


# Model fields that can have a gradient. Of an axis or a quaternion it is that of one of length one.
# `body_invweight0`, `dof_invweight0`, `tendon_invweight0`, `tendon_length0` and `actuator_acc0` are
# derived constants: the gradients of what they come from hold them fixed.
PARAMETERS: frozenset[str] = frozenset(_union([part.parameters for part in PARTS]))

# Fields of Data, besides the state, that can have a cotangent.
REPORTS: tuple[str, ...] = _union([part.reports for part in PARTS])

# Types of sensors that have a rule.
SENSORS: frozenset[int] = frozenset(_union([part.sensors for part in PARTS]))
