"""Cotangents of the potential and kinetic energy, `energy` and the sensors of it."""

import functools

import numpy as np
import warp as wp
from mujoco_warp._src.types import DisableBit, SensorType

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE
from mjx_warp_ffi.mjx.warp.adjoint.forces.bodies import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.forces.dofs import Dofs, dof_parameters
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected
from mjx_warp_ffi.mjx.warp.adjoint.forces.springs import Springs
from mjx_warp_ffi.mjx.warp.adjoint.forces.tendons import Tendons, armature_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  mul,
  point_velocity,
  quat_at,
  rotation_vector,
  safe_length,
  unit_at,
  unrotate,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.sensed import with_cotangent

POTENTIAL, KINETIC = int(SensorType.E_POTENTIAL), int(SensorType.E_KINETIC)
KINDS = (POTENTIAL, KINETIC)


@wp.kernel(enable_backward=False)
def _collect(
  which: wp.array[int],
  kind: wp.array[int],
  adr: wp.array[int],
  weights: wp.array2d[float],
  out: wp.array[wp.vec2],
):
  """Adds the cotangents of the sensors, a thread a world."""
  world = wp.tid()
  x = out[world]
  for i in range(which.shape[0]):
    k = which[i]
    y = weights[world, adr[k]]
    if kind[k] == POTENTIAL:
      x = x + wp.vec2(y, 0.0)
    else:
      x = x + wp.vec2(0.0, y)
  out[world] = x


@wp.kernel(module="unique")
def _body_energy(
  tree: Tree,
  nodes: Nodes,
  inertia: Inertia,
  gravity: wp.array[wp.vec3],
  cot: wp.array[wp.vec2],
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
def _dof_kernel(actuators: bool) -> wp.Kernel:
  """The motion of armatures, a thread per world and dof."""

  @wp.kernel(module="unique")
  def dof_energy(
    dofs: Dofs,
    reflected: Reflected,
    state: State,
    cot: wp.array[wp.vec2],
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
  row = world % springs.qpos_spring.shape[0]
  poly = of_world(springs.jnt_stiffnesspoly, world, j)
  k = of_world(springs.jnt_stiffness, world, j)
  e = wp.float32(0.0)
  if kind == FREE:
    x = vec_at(qpos, world, i) - vec_at(springs.qpos_spring, row, i)
    e = _stored(k, poly, safe_length(x))
    i = i + 3
  if kind == FREE or kind == BALL:
    rest = quat_at(springs.qpos_spring, row, i)
    turn = rotation_vector(mul(conj(rest), unit_at(qpos, world, i)))
    e = e + _stored(k, poly, safe_length(turn))
  else:
    e = _stored(k, poly, qpos[world, i] - springs.qpos_spring[row, i])
  power[world, j] = cot[world][0] * e


@functools.cache
def _tendon_kernel(spring: bool) -> wp.Kernel:
  """Springs and armatures of tendons, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon_energy(
    tendons: Tendons,
    reflected: Reflected,
    rates: Rates,
    cot: wp.array[wp.vec2],
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


def record(step) -> None:
  """Records the energies of a `StageAdjoint` that have a cotangent."""
  tape, m, cot = step.tape, step.m, step.cotangents.get("energy")
  which = with_cotangent(step, KINDS)
  if cot is None and not len(which):
    return
  total = wp.zeros(tape.nworld, dtype=wp.vec2)
  inputs = [step.constant(which), m.sensor_type, m.sensor_adr, step.weights]

  def collect() -> None:
    if cot is None:
      total.zero_()
    else:
      wp.copy(total, cot)
    if len(which):
      wp.launch(_collect, tape.nworld, inputs=inputs, outputs=[total])

  step.before_sweep.append(collect)
  nodes = [step.sweep.tree, step.sweep.nodes]
  inputs_ = [*nodes, step.inertia, step.gravity, total]
  tape.power(_body_energy, (tape.nworld, m.nbody - 1), inputs=inputs_)
  kernel = _dof_kernel(bool(np.any(m.jnt_actuatorid.numpy() != -1)))
  tape.power(kernel, (tape.nworld, m.nv), inputs=[step.dofs, step.reflected, step.state, total])
  spring = not m.opt.disableflags & DisableBit.SPRING
  if spring and m.njnt:
    inputs_ = [step.springs, step.inputs["qpos"], total]
    tape.power(_spring_energy, (tape.nworld, m.njnt), inputs=inputs_)
  if m.ntendon:
    inputs_ = [step.tendons, step.reflected, step.tendon_rates, total]
    tape.power(_tendon_kernel(spring), (tape.nworld, m.ntendon), inputs=inputs_)
