"""The power of inertia, gravity, applied forces and dampers on the virtual velocity w.

With y, z = qacc - qacc' of the second solve there is also y . M z, and for dampers -h y . B qacc'.
"""

import functools

import numpy as np
import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.warp.adjoint.forces.dofs import dof_kernel
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  mul,
  point_acceleration,
  point_velocity,
  rotate,
  unrotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Fields
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import world_and_item

_PASSIVE = DisableBit.SPRING | DisableBit.DAMPER  # both off: no passive force at all


@wp.struct
class Inertia:
  """Masses of the bodies and the field that pulls them: model fields."""

  body_mass: wp.array2d[float]
  body_inertia: wp.array2d[wp.vec3]
  body_ipos: wp.array2d[wp.vec3]
  body_iquat: wp.array2d[wp.quat]
  body_gravcomp: wp.array2d[float]
  gravity: wp.array[wp.vec3]


@wp.func
def inertia_of(tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int):
  """A body's mass and principal moments, its centre of mass from its origin, and its main axes.

  The centre is in world axes, from the origin of the body's node.
  """
  q = nodes.xquat[world, tree.of_body[b]]
  mass = of_world(inertia.body_mass, world, b)
  moments = of_world(inertia.body_inertia, world, b)
  c = rotate(q, of_world(inertia.body_ipos, world, b))
  qi = mul(q, of_world(inertia.body_iquat, world, b))
  return mass, moments, c, qi


@wp.func
def _gyroscopic(om: wp.vec3, u: wp.vec3, r: wp.vec3, q: wp.quat, moments: wp.vec3):
  """The derivative, along the angular velocity u, of the force per mass and of the torque.

  They are those of a rigid body that turns at om about a point, its centre r from there.
  """
  force = wp.cross(u, wp.cross(om, r)) + wp.cross(om, wp.cross(u, r))
  lo = unrotate(q, om)
  lu = unrotate(q, u)
  torque = wp.cross(lu, wp.cw_mul(moments, lo)) + wp.cross(lo, wp.cw_mul(moments, lu))
  return force, torque


@functools.cache
def gyroscopic_kernel(fields: Fields, *, discrete: bool) -> wp.Kernel:
  """The implicit gyroscopic force of free rigid bodies, a thread per world and body.

  In a discrete step it is that on qacc, of the bodies with a number in `decoupled`.
  """
  virtual = fields.w if discrete else fields.y

  @wp.kernel(module="unique")
  def gyroscopic_power(
    tree: Tree,
    nodes: Nodes,
    inertia: Inertia,
    timestep: wp.array[float],
    decoupled: wp.array2d[float],
    power: wp.array2d[float],
  ):
    world, b = wp.tid()
    root = tree.free_root[b]
    p = wp.float32(0.0)
    if wp.static(discrete):
      if root >= 0:
        if wp.isnan(decoupled[world, tree.dofadr[root]]):
          root = -1
    if root >= 0:
      n = tree.of_body[b]
      mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
      fa = nodes.fields[wp.static(fields.a), world, n]
      fy = nodes.fields[wp.static(virtual), world, n]
      om = wp.spatial_top(nodes.vel[world, n])
      u = wp.spatial_top(fa)
      if wp.static(not discrete):
        u = u - wp.spatial_top(nodes.fields[wp.static(fields.z), world, n])
      r = nodes.xpos[world, n] + c - nodes.xpos[world, root]
      force, torque = _gyroscopic(om, u, r, qi, moments)
      p = mass * wp.dot(force, point_velocity(fy, c))
      p = p + wp.dot(torque, unrotate(qi, wp.spatial_top(fy)))
      p = -of_world(timestep, world) * p
    power[world, b] = p

  return gyroscopic_power


@functools.cache
def bias_kernel(fields: Fields) -> wp.Kernel:
  """The implicit change of centrifugal and Coriolis forces, a thread per world and body."""

  @wp.kernel(module="unique")
  def bias_power(
    tree: Tree,
    nodes: Nodes,
    inertia: Inertia,
    timestep: wp.array[float],
    power: wp.array2d[float],
  ):
    world, it = wp.tid()
    b = it + 1
    n = tree.of_body[b]
    mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
    fu = nodes.fields[wp.static(fields.a), world, n] - nodes.fields[wp.static(fields.z), world, n]
    fy = nodes.fields[wp.static(fields.y), world, n]
    polar = nodes.polar[world, n]
    om = wp.spatial_top(nodes.vel[world, n])
    force, torque = _gyroscopic(om, wp.spatial_top(fu), c, qi, moments)
    force = force + point_velocity(polar, c)
    torque = torque + wp.cw_mul(moments, unrotate(qi, wp.spatial_top(polar)))
    p = mass * wp.dot(force, point_velocity(fy, c))
    p = p + wp.dot(torque, unrotate(qi, wp.spatial_top(fy)))
    power[world, it] = -of_world(timestep, world) * p

  return bias_power


@wp.func
def _inertia(
  f0: wp.spatial_vector,
  f1: wp.spatial_vector,
  c: wp.vec3,
  qi: wp.quat,
  mass: float,
  moments: wp.vec3,
) -> float:
  """The product of two velocity fields with the inertia of a body."""
  turn = wp.cw_mul(moments, unrotate(qi, wp.spatial_top(f1)))
  along = mass * wp.dot(point_velocity(f0, c), point_velocity(f1, c))
  return along + wp.dot(unrotate(qi, wp.spatial_top(f0)), turn)


@wp.func
def kinetic(tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int, f: int) -> float:
  """Twice the kinetic energy of a body in a field."""
  mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  v = nodes.fields[f, world, tree.of_body[b]]
  return _inertia(v, v, c, qi, mass, moments)


@functools.cache
def body_kernel(fields: Fields, *, gravity: bool, gravcomp: bool, inertial: bool) -> wp.Kernel:
  """Inertial, gravitational and applied forces, a thread per world and body.

  With `inertial` the bias force has the force of the acceleration in it.
  """
  lifted = gravity and gravcomp and fields.g != fields.i  # along a velocity of its own

  @wp.kernel(module="unique")
  def body_power(
    tree: Tree,
    nodes: Nodes,
    inertia: Inertia,
    xfrc: wp.array2d[wp.spatial_vector],
    power: wp.array2d[float],
  ):
    i, j = wp.tid()
    world, it = world_and_item(i, j, tree.world_fastest)
    b = it + 1
    n = tree.of_body[b]
    om = wp.spatial_top(nodes.vel[world, n])
    acc = nodes.acc[world, n]
    fw = nodes.fields[wp.static(fields.i), world, n]
    mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
    force = -mass * point_acceleration(acc, om, c)
    if wp.static(fields.n < 0):
      force = force + wp.spatial_top(xfrc[world, b])
    if wp.static(gravity):
      weight = mass
      if wp.static(gravcomp and not lifted):
        weight = mass * (1.0 - of_world(inertia.body_gravcomp, world, b))
      force = force + weight * of_world(inertia.gravity, world)
    ww = wp.spatial_top(fw)
    lo = unrotate(qi, om)
    torque = wp.cw_mul(moments, unrotate(qi, wp.spatial_top(acc)))
    torque = torque + wp.cross(lo, wp.cw_mul(moments, lo))
    p = wp.dot(force, point_velocity(fw, c)) - wp.dot(torque, unrotate(qi, ww))
    if wp.static(fields.n < 0):
      p = p + wp.dot(wp.spatial_bottom(xfrc[world, b]), ww)
    else:
      fx = nodes.fields[wp.static(fields.x), world, n]
      p = p + wp.dot(wp.spatial_top(xfrc[world, b]), point_velocity(fx, c))
      p = p + wp.dot(wp.spatial_bottom(xfrc[world, b]), wp.spatial_top(fx))
      if wp.static(not inertial):
        fn = nodes.fields[wp.static(fields.n), world, n]
        p = p + _inertia(fn, nodes.fields[wp.static(fields.a), world, n], c, qi, mass, moments)
    if wp.static(fields.s >= 0):
      fs = nodes.fields[wp.static(fields.s), world, n]
      p = p - _inertia(fs, nodes.fields[wp.static(fields.t), world, n], c, qi, mass, moments)
    if wp.static(lifted):
      lift = of_world(inertia.body_gravcomp, world, b) * mass
      up = -lift * of_world(inertia.gravity, world)
      p = p + wp.dot(up, point_velocity(nodes.fields[wp.static(fields.g), world, n], c))
    if wp.static(fields.y >= 0):
      fy = nodes.fields[wp.static(fields.y), world, n]
      p = p + _inertia(fy, nodes.fields[wp.static(fields.z), world, n], c, qi, mass, moments)
    power[world, it] = p

  return body_power


def make_inertia(step) -> Inertia:
  """The masses of the bodies of a `StageAdjoint`."""
  return step.tape.struct(
    Inertia,
    **step.leaves(*[f"body_{f}" for f in "mass inertia ipos iquat gravcomp".split()]),
    gravity=step.leaf("opt.gravity"),
  )


def record(step) -> None:
  """Records the parts of this module on the tape of a `StageAdjoint`."""
  tape, m, x = step.tape, step.m, step.inputs
  flags = m.opt.disableflags
  passive = (flags & _PASSIVE) != _PASSIVE
  inertia = step.inertia
  options = dict(gravity=not flags & DisableBit.GRAVITY, gravcomp=passive)
  kernel = body_kernel(step.fields, **options, inertial=step.needs.inertial)
  inputs = [step.sweep.tree, step.sweep.nodes, inertia, x["xfrc_applied"]]
  tape.power(kernel, m.nbody - 1, inputs=inputs)
  if step.implicit_bias:
    inputs = [step.sweep.tree, step.sweep.nodes, inertia, step.leaf("opt.timestep")]
    tape.power(bias_kernel(step.fields), (tape.nworld, m.nbody - 1), inputs=inputs)
  elif (step.implicitfast or step.discrete) and m.body_freeadr.size:
    decoupled = step.evaluation.newton.decoupled.qacc if step.discrete else step.d.qacc
    inputs = [step.sweep.tree, step.sweep.nodes, inertia, step.leaf("opt.timestep"), decoupled]
    kernel = gyroscopic_kernel(step.fields, discrete=step.discrete)
    tape.power(kernel, (tape.nworld, m.nbody), inputs=inputs)
  actuators = bool(np.any(m.jnt_actuatorid.numpy() != -1))
  damper = passive and not flags & DisableBit.DAMPER
  kernel = dof_kernel(step.fields, damper=damper, actuators=actuators, discrete=step.discrete)
  inputs = [step.dofs, step.reflected, step.state, x["qfrc_applied"], step.sweep.coords]
  tape.power(kernel, (tape.nworld, m.nv), inputs=inputs)
