"""What the cotangents of outputs and of sensors read of the forward pass."""

import dataclasses
from collections.abc import Callable

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Lengths
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording


@dataclasses.dataclass(frozen=True)
class Evaluated:
  """What is recorded of the forward pass when the outputs are.

  Attributes:
    kin: where everything is and how it moves.
    mech: inertias, and the parameters of forces.
    lengths: the lengths of tendons and actuators.
    weights: the cotangents of sensordata, zero where a sensor is at its cutoff.
    given: the cotangents of what the sensors report, which are those of past measurements where
      sensors have delays; None if sensordata has no cotangent.
  """

  kin: Kinematics
  mech: Mechanics
  lengths: Lengths
  weights: wp.array
  given: wp.array | None


@dataclasses.dataclass(frozen=True)
class Output(Part):
  """A part that gives outputs or measurements.

  Attributes:
    record: records the adjoint of those that have a cotangent.
  """

  record: Callable[[Recording, Evaluated], None] = dataclasses.field(kw_only=True)
