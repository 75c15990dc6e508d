"""The actuators of a model, and the forces that their drives give before any limit."""

import warp as wp
from mujoco_warp._src.types import vec10

from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import SpatialVector, struct


@struct
class Actuators:
  """What the actuators are, and their parameters: model fields."""

  clamp_ctrl: bool
  timestep: wp.array[float]
  trntype: wp.array[int]
  trnid: wp.array[wp.vec2i]
  dyntype: wp.array[int]
  gaintype: wp.array[int]
  biastype: wp.array[int]
  ctrladr: wp.array[int]
  ctrlnum: wp.array[int]
  ctrlspec: wp.array[int]
  actadr: wp.array[int]
  dofadr: wp.array[int]  # the dof of a transmission to a hinge or slide, or -1
  jnt_type: wp.array[int]
  actlimited: wp.array[bool]
  actearly: wp.array[bool]
  forcelimited: wp.array[bool]
  ctrllimited: wp.array[bool]
  tendon_actfrclimited: wp.array[bool]
  tendon_actfrcrange: wp.array2d[wp.vec2]
  actuator_dynprm: wp.array2d[vec10]
  actuator_gainprm: wp.array2d[vec10]
  actuator_biasprm: wp.array2d[vec10]
  actuator_actrange: wp.array2d[wp.vec2]
  actuator_forcerange: wp.array2d[wp.vec2]
  actuator_ctrlrange: wp.array2d[wp.vec2]
  actuator_acc0: wp.array2d[float]
  actuator_lengthrange: wp.array2d[wp.vec2]
  actuator_gear: wp.array2d[SpatialVector]


@struct
class Drives:
  """What the drives give, (nworld, nactuator), and `act` (nworld, na).

  `by_length` and `by_velocity` are derivatives of `force` as the implicit integrators take them.
  """

  force: wp.array2d[float]  # before the limits
  extra: wp.array2d[float]  # which no limit holds for, with its derivatives
  by_length: wp.array2d[float]
  by_velocity: wp.array2d[float]
  loose_length: wp.array2d[float]
  loose_velocity: wp.array2d[float]
  act: wp.array2d[float]  # the next activations, or their rates


@wp.func
def clamp(x: float, limits: wp.vec2) -> float:
  """The number within limits, with the derivative of the side that holds."""
  y = x
  if x < limits[0]:
    y = limits[0]
  elif x > limits[1]:
    y = limits[1]
  return y


@wp.func
def control(a: Actuators, ctrl: wp.array2d[float], world: int, i: int) -> float:
  """The first control of an actuator within its limits, 0 if it has none."""
  u = wp.float32(0.0)
  if a.ctrlnum[i] > 0:
    c = a.ctrladr[i]
    u = ctrl[world, c]
    if a.clamp_ctrl and a.ctrllimited[c]:
      u = clamp(u, of_world(a.actuator_ctrlrange, world, c))
  return u


def make_drives(tape: Tape, *, count: int, na: int) -> Drives:
  """Fresh arrays for `count` actuators."""
  names = "force extra by_length by_velocity loose_length loose_velocity".split()
  return tape.struct(Drives, act=tape.array(max(na, 1)), **{n: tape.array(count) for n in names})
