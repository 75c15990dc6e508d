"""The power of the springs of joints."""

import functools

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Force, Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import springs_act
from mjx_warp_ffi.mjx.warp.adjoint.forces.spring_law import (
  Springs,
  spring_rotation,
  spring_slope,
  spring_stiffness,
  spring_translation,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import State
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import safe_length, vec_at
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel


@functools.cache
def spring_kernel(velocities: Velocities, *, discrete: bool) -> Kernel:
  """Springs of the joints, a thread per world and joint.

  The discrete step has beside the force -x k its change with the displacement h (v + h a).
  """

  @wp.func
  def change(
    springs: Springs, state: State, coords: wp.array3d[float], world: int, j: int, d: int, num: int
  ) -> float:
    """The power of the change of the force on the dofs from d, which have the same stiffness."""
    p = wp.float32(0.0)
    slope = spring_slope(springs, state.qpos, world, j, d - springs.jnt_dofadr[j])
    if slope >= 0.0:
      h = of_world(springs.timestep, world)
      w = coords[wp.static(velocities.virtual)]
      if num == 3:
        moved = vec_at(state.qvel, world, d) + h * vec_at(state.qacc, world, d)
        p = -h * slope * wp.dot(moved, vec_at(w, world, d))
      else:
        p = -h * slope * (state.qvel[world, d] + h * state.qacc[world, d]) * w[world, d]
    return p

  @wp.kernel(module="unique")
  def spring_power(
    springs: Springs, state: State, coords: wp.array3d[float], power: wp.array2d[float]
  ):
    world, j = wp.tid()
    kind = springs.jnt_type[j]
    i = springs.jnt_qposadr[j]
    d = springs.jnt_dofadr[j]
    w = coords[wp.static(velocities.springs)]
    p = wp.float32(0.0)
    if kind == FREE:
      x = spring_translation(springs, state.qpos, world, i)
      k, slope = spring_stiffness(springs, world, j, safe_length(x))
      p = -k * wp.dot(x, vec_at(w, world, d))
      if wp.static(discrete):
        p = p + change(springs, state, coords, world, j, d, 3)
      i = i + 3
      d = d + 3
    if kind == FREE or kind == BALL:
      turn = spring_rotation(springs, state.qpos, world, i)
      k3, slope3 = spring_stiffness(springs, world, j, safe_length(turn))
      p = p - k3 * wp.dot(turn, vec_at(w, world, d))
      if wp.static(discrete):
        p = p + change(springs, state, coords, world, j, d, 3)
    else:
      x1 = state.qpos[world, i] - of_world(springs.qpos_spring, world, i)
      k1, slope1 = spring_stiffness(springs, world, j, x1)
      p = -k1 * x1 * w[world, d]
      if wp.static(discrete):
        p = p + change(springs, state, coords, world, j, d, 1)
    power[world, j] = p

  return spring_power


def record(rec: Recording, kin: Kinematics, mech: Mechanics) -> None:
  """Records the power of the springs of the joints."""
  if not springs_act(rec.m):
    return
  kernel = spring_kernel(kin.velocities, discrete=rec.scheme.discrete)
  inputs = [mech.springs, kin.state, kin.coords]
  rec.tape.power(kernel, (rec.tape.nworld, rec.m.njnt), inputs=inputs)


FORCE = Force(
  parameters=("jnt_stiffness", "jnt_stiffnesspoly", "qpos_spring", "opt.timestep"),
  record=record,
)
