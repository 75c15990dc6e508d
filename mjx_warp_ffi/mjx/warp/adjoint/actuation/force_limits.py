"""Limits of actuator forces: of an actuator, of all on a tendon, of all on a joint."""

import functools
from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import DisableBit, TrnType

from mjx_warp_ffi.mjx.warp.adjoint.actuation.drives import Actuators, Drives, clamp
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import passive_act
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel

_TOLERANCE = 1.0e-5  # relative to the limit, within which MJWarp takes a tendon to be at it


@wp.func
def limited(a: Actuators, drives: Drives, total: wp.array2d[float], world: int, i: int) -> float:
  """The force of an actuator within the limits of its tendon and its own."""
  force = drives.force[world, i]
  if a.trntype[i] == TrnType.TENDON:
    t = a.trnid[i][0]
    if a.tendon_actfrclimited[t]:
      bounds = of_world(a.tendon_actfrcrange, world, t)
      s = total[world, t]
      if s < bounds[0]:
        force = force * bounds[0] / s
      elif s > bounds[1]:
        force = force * bounds[1] / s
  if a.forcelimited[i]:
    force = clamp(force, of_world(a.actuator_forcerange, world, i))
  return force


@wp.func
def free(
  a: Actuators,
  drives: Drives,
  saturated: wp.array2d[float],
  total: wp.array2d[float],
  world: int,
  i: int,
):
  """One if the force is at no limit of its own or of its tendon, and one if at none of its joint.

  They decide which derivatives the implicit integrators take.
  """
  own = wp.float32(1.0)
  if a.forcelimited[i]:
    bounds = of_world(a.actuator_forcerange, world, i)
    force = limited(a, drives, total, world, i)
    if force <= bounds[0] or force >= bounds[1]:
      own = 0.0
  if a.trntype[i] == TrnType.TENDON:
    t = a.trnid[i][0]
    if a.tendon_actfrclimited[t]:
      s = wp.float32(0.0)
      for j in range(a.trntype.shape[0]):
        if a.trntype[j] == TrnType.TENDON and a.trnid[j][0] == t:
          s += limited(a, drives, total, world, j)
      limit = of_world(a.tendon_actfrcrange, world, t)
      low = limit[0] + _TOLERANCE * wp.abs(limit[0])
      if s <= low or s >= limit[1] - _TOLERANCE * wp.abs(limit[1]):
        own = 0.0
  joint = wp.float32(1.0)
  if a.dofadr[i] >= 0:
    joint = 1.0 - saturated[world, a.dofadr[i]]
  return own, joint


@wp.kernel(module="unique")
def tendon_total(a: Actuators, drives: Drives, total: wp.array2d[float]):
  """The sum of the forces on a tendon, a thread per world and tendon."""
  world, t = wp.tid()
  s = wp.float32(0.0)
  for i in range(a.trntype.shape[0]):
    if a.trntype[i] == TrnType.TENDON and a.trnid[i][0] == t:
      s += drives.force[world, i]
  total[world, t] = s


def record_totals(rec: Recording, actuators: Actuators, *, drives: Drives) -> wp.array:
  """Records the sums of forces on tendons, if any has a limit, and gives them."""
  m, tape = rec.m, rec.tape
  total = tape.array(max(1, m.ntendon))
  if m.tendon_actfrclimited.numpy().any():
    dim = (tape.nworld, m.ntendon)
    tape.launch(tendon_total, dim, inputs=[actuators, drives], outputs=[total])
  return total


@wp.kernel(enable_backward=False)
def mask_saturated(
  # Model:
  dof_jntid: wp.array[int],
  jnt_actfrclimited: wp.array[bool],
  jnt_actfrcrange: wp.array2d[wp.vec2],
  # Data in:
  qfrc_actuator: wp.array2d[float],
  # In:
  w: wp.array2d[float],
  # Out:
  saturated: wp.array2d[float],
  masked: wp.array2d[float],
):
  """Marks dofs whose total actuator force is at its limit, and w without them."""
  world, d = wp.tid()
  j = dof_jntid[d]
  s = 0.0
  if jnt_actfrclimited[j]:
    limits = of_world(jnt_actfrcrange, world, j)
    f = qfrc_actuator[world, d]
    if f <= limits[0] or f >= limits[1]:
      s = 1.0
  saturated[world, d] = s
  masked[world, d] = (1.0 - s) * w[world, d]


@wp.kernel(enable_backward=False)
def _choose(
  # Model:
  dof_jntid: wp.array[int],
  jnt_actgravcomp: wp.array[int],
  # In:
  passive: wp.array2d[float],
  actuator: wp.array2d[float],
  cotangent: wp.array2d[float],
  # Out:
  out: wp.array2d[float],
):
  """The virtual velocity of the force that compensates gravity, a thread per world and dof."""
  world, d = wp.tid()
  x = passive[world, d]
  if jnt_actgravcomp[dof_jntid[d]] != 0:
    x = actuator[world, d]
  out[world, d] = x + cotangent[world, d]


@functools.cache
def limit_kernel(velocities: Velocities) -> Kernel:
  """The power of the total forces that are at their limits, a thread per world and dof."""

  @wp.kernel(module="unique")
  def limit_power(
    # Model:
    dof_jntid: wp.array[int],
    jnt_actfrcrange: wp.array2d[wp.vec2],
    # Data in:
    qfrc_actuator: wp.array2d[float],
    # In:
    saturated: wp.array2d[float],
    coords: wp.array3d[float],
    # Out:
    power: wp.array2d[float],
  ):
    world, d = wp.tid()
    p = wp.float32(0.0)
    if saturated[world, d] > 0.0:
      limits = of_world(jnt_actfrcrange, world, dof_jntid[d])
      limit = limits[1]
      if qfrc_actuator[world, d] <= limits[0]:
        limit = limits[0]
      p = limit * coords[wp.static(velocities.actuated), world, d]
    power[world, d] = p

  return limit_power


def mask(rec: Recording, kin: Kinematics) -> wp.array:
  """Has the dofs marked, before the sweep, whose total actuator force is at its limit.

  With them the velocity of actuator forces that no limit holds is written, and that of the
  compensation of gravity, where these are carried.

  Returns:
    (nworld, nv), the marks: one at such a dof, zero elsewhere.
  """
  m, tape, velocities, slices = rec.m, rec.tape, kin.velocities, kin.slices
  dim = (tape.nworld, m.nv)
  saturated = wp.zeros(dim, dtype=float, device=tape.device)
  if velocities.unlimited != velocities.actuated:
    inputs = [m.dof_jntid, m.jnt_actfrclimited, m.jnt_actfrcrange, rec.d.qfrc_actuator]
    outputs = [saturated, slices[velocities.unlimited]]
    inputs += [slices[velocities.actuated], *outputs]
    tape.before_sweep(functools.partial(wp.launch, mask_saturated, dim, inputs=inputs))
    if "jnt_actfrcrange" in rec.wrt:
      inputs = [m.dof_jntid, rec.leaf("jnt_actfrcrange"), rec.d.qfrc_actuator, saturated]
      tape.power(limit_kernel(velocities), dim, inputs=[*inputs, kin.coords])
  if np.any(rec.mjm.jnt_actgravcomp) and velocities.gravity_compensation != velocities.passive:
    cotangent = rec.cotangent("qfrc_gravcomp")
    inputs = [m.dof_jntid, m.jnt_actgravcomp]
    inputs += [slices[velocities.passive], slices[velocities.unlimited]]
    inputs += [wp.zeros_like(saturated) if cotangent is None else cotangent]
    inputs += [slices[velocities.gravity_compensation]]
    tape.before_sweep(functools.partial(wp.launch, _choose, dim, inputs=inputs))
  return saturated


def missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal where actuators should compensate gravity and cannot."""
  off = m.opt.disableflags & DisableBit.ACTUATION or not passive_act(m)
  if np.any(mjm.jnt_actgravcomp != 0) and (off or not m.nactuator):
    yield "actuatorgravcomp of joints where actuators or passive forces are off"


PART = Part(parameters=("jnt_actfrcrange",), missing=missing)
