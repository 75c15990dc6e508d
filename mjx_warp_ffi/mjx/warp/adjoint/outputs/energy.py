"""Cotangents of the potential and kinetic energy, `energy` and the sensors of it."""

import functools

import numpy as np
import warp as wp
from mujoco_warp._src.types import JointType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.forces.dof_parameters import Dofs, dof_parameters
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import springs_act
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected
from mjx_warp_ffi.mjx.warp.adjoint.forces.spring_law import (
  Springs,
  spring_rotation,
  spring_translation,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.tendon_forces import Tendons, armature_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import point_velocity, safe_length, unrotate
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel

KINDS = (int(SensorType.E_POTENTIAL), int(SensorType.E_KINETIC))


@wp.kernel(enable_backward=False)
def _collect(
  # Model:
  which: wp.array[int],
  sensor_type: wp.array[int],
  sensor_adr: wp.array[int],
  # In:
  weights: wp.array2d[float],
  # Out:
  out: wp.array[wp.vec2],
):
  """Adds the cotangents of the sensors, a thread a world."""
  world = wp.tid()
  x = out[world]
  for i in range(which.shape[0]):
    k = which[i]
    y = weights[world, sensor_adr[k]]
    if sensor_type[k] == SensorType.E_POTENTIAL:
      x = x + wp.vec2(y, 0.0)
    else:
      x = x + wp.vec2(0.0, y)
  out[world] = x


@wp.kernel(module="unique")
def _body_energy(
  # In:
  tree: Tree,
  nodes: Nodes,
  # Model:
  inertia: Inertia,
  gravity: wp.array[wp.vec3],
  # In:
  cot: wp.array[wp.vec2],
  # Out:
  power: wp.array2d[float],
):
  """Weights and motions of bodies, a thread per world and body."""
  world, it = wp.tid()
  b = it + 1
  n = tree.of_body[b]
  f = nodes.vel[world, n]
  mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  v = point_velocity(f, c)
  lo = unrotate(qi, wp.spatial_top(f))
  motion = mass * wp.dot(v, v) + wp.dot(lo, wp.cw_mul(moments, lo))
  height = wp.dot(of_world(gravity, world), nodes.xpos[world, n] + c)
  e = cot[world]
  power[world, it] = 0.5 * e[1] * motion - e[0] * mass * height


@functools.cache
def _dof_kernel(actuators: bool) -> Kernel:
  """The motion of armatures, a thread per world and dof."""

  @wp.kernel(module="unique")
  def dof_energy(
    # Model:
    dofs: Dofs,
    reflected: Reflected,
    # In:
    state: State,
    cot: wp.array[wp.vec2],
    # Out:
    power: wp.array2d[float],
  ):
    world, i = wp.tid()
    _damping, _poly, armature = dof_parameters(dofs, reflected, world, i, wp.static(actuators))
    v = state.qvel[world, i]
    power[world, i] = 0.5 * cot[world][1] * armature * v * v

  return dof_energy


@wp.func
def _stored(k: float, poly: wp.vec2, x: float) -> float:
  """What a spring stores at the displacement x."""
  return x * x * (0.5 * k + x * (poly[0] / 3.0 + x * 0.25 * poly[1]))


@wp.kernel(module="unique")
def _spring_energy(
  springs: Springs, qpos: wp.array2d[float], cot: wp.array[wp.vec2], power: wp.array2d[float]
):
  """Springs of the joints, a thread per world and joint."""
  world, j = wp.tid()
  kind = springs.jnt_type[j]
  i = springs.jnt_qposadr[j]
  poly = of_world(springs.jnt_stiffnesspoly, world, j)
  k = of_world(springs.jnt_stiffness, world, j)
  e = wp.float32(0.0)
  if kind == JointType.FREE:
    e = _stored(k, poly, safe_length(spring_translation(springs, qpos, world, i)))
    i = i + 3
  if kind == JointType.FREE or kind == JointType.BALL:
    e = e + _stored(k, poly, safe_length(spring_rotation(springs, qpos, world, i)))
  else:
    e = _stored(k, poly, qpos[world, i] - of_world(springs.qpos_spring, world, i))
  power[world, j] = cot[world][0] * e


@functools.cache
def _tendon_kernel(spring: bool) -> Kernel:
  """Springs and armatures of tendons, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon_energy(
    # Model:
    tendons: Tendons,
    reflected: Reflected,
    # In:
    rates: Rates,
    cot: wp.array[wp.vec2],
    # Out:
    power: wp.array2d[float],
  ):
    world, t = wp.tid()
    v = rates.velocity[world, t]
    armature = armature_of(tendons, reflected, world, t)
    p = 0.5 * cot[world][1] * armature * v * v
    if wp.static(spring):
      rest = of_world(tendons.tendon_lengthspring, world, t)
      poly = of_world(tendons.tendon_stiffnesspoly, world, t)
      k = of_world(tendons.tendon_stiffness, world, t)
      length = rates.length[world, t]
      if length > rest[1]:
        p = p + cot[world][0] * _stored(k, poly, length - rest[1])
      elif length < rest[0]:
        p = p + cot[world][0] * _stored(k, poly, length - rest[0])
    power[world, t] = p

  return tendon_energy


def record(rec: Recording, ev: Evaluated) -> None:
  """Records the energies that have a cotangent."""
  tape, m, cot = rec.tape, rec.m, rec.cotangent("energy")
  which = rec.sensors(KINDS)
  if cot is None and not len(which):
    return
  total = _collect_before_sweep(rec, cot, which=which, weights=ev.weights)
  kin, mech = ev.kin, ev.mech
  inputs = [kin.tree, kin.nodes, mech.inertia, mech.gravity, total]
  tape.power(_body_energy, (tape.nworld, m.nbody - 1), inputs=inputs)
  kernel = _dof_kernel(bool(np.any(m.jnt_actuatorid.numpy() != -1)))
  inputs = [mech.dofs, mech.reflected, kin.state, total]
  tape.power(kernel, (tape.nworld, m.nv), inputs=inputs)
  if springs_act(m) and m.njnt:
    inputs = [mech.springs, rec.inputs["qpos"], total]
    tape.power(_spring_energy, (tape.nworld, m.njnt), inputs=inputs)
  if m.ntendon:
    inputs = [mech.tendons, mech.reflected, ev.lengths.tendons, total]
    tape.power(_tendon_kernel(springs_act(m)), (tape.nworld, m.ntendon), inputs=inputs)


def _collect_before_sweep(
  rec: Recording, cotangent: wp.array | None, *, which: np.ndarray, weights: wp.array
) -> wp.array:
  """Has the cotangents of the two energies, of `energy` and of sensors, summed before the sweep."""
  nworld, m = rec.tape.nworld, rec.m
  total = wp.zeros(nworld, dtype=wp.vec2)
  inputs = [rec.constant(which), m.sensor_type, m.sensor_adr, weights]

  def collect() -> None:
    if cotangent is None:
      total.zero_()
    else:
      wp.copy(total, cotangent)
    if len(which):
      wp.launch(_collect, nworld, inputs=inputs, outputs=[total])

  rec.tape.before_sweep(collect)
  return total


OUTPUT = Output(reports=("energy",), sensors=KINDS, record=record)
