"""The power of inertia, gravity and applied forces of bodies on the virtual velocity w.

With y, z = qacc - qacc' of the second solve there is also y . M z.
"""

import functools

import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, inertia_of, inertial_product
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Force, Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import passive_act
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  point_acceleration,
  point_velocity,
  unrotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel


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
def gyroscopic_kernel(velocities: Velocities, *, discrete: bool) -> Kernel:
  """The implicit gyroscopic force of free rigid bodies, a thread per world and body.

  In a discrete step it is that on qacc, of the bodies with a number in `free_qacc`.
  """
  virtual = velocities.virtual if discrete else velocities.implicit_left

  @wp.kernel(module="unique")
  def gyroscopic_power(
    # Model:
    tree: Tree,
    inertia: Inertia,
    timestep: wp.array[float],
    # In:
    nodes: Nodes,
    free_qacc: wp.array2d[float],
    # Out:
    power: wp.array2d[float],
  ):
    world, b = wp.tid()
    root = tree.free_root[b]
    p = wp.float32(0.0)
    if wp.static(discrete):
      if root >= 0:
        if wp.isnan(free_qacc[world, tree.dofadr[root]]):
          root = -1
    if root >= 0:
      n = tree.of_body[b]
      mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
      fa = nodes.fields[wp.static(velocities.acceleration), world, n]
      fy = nodes.fields[wp.static(virtual), world, n]
      om = wp.spatial_top(nodes.vel[world, n])
      u = wp.spatial_top(fa)
      if wp.static(not discrete):
        u = u - wp.spatial_top(nodes.fields[wp.static(velocities.implicit_right), world, n])
      r = nodes.xpos[world, n] + c - nodes.xpos[world, root]
      force, torque = _gyroscopic(om, u, r, qi, moments)
      p = mass * wp.dot(force, point_velocity(fy, c))
      p = p + wp.dot(torque, unrotate(qi, wp.spatial_top(fy)))
      p = -of_world(timestep, world) * p
    power[world, b] = p

  return gyroscopic_power


@functools.cache
def bias_kernel(velocities: Velocities) -> Kernel:
  """The implicit change of centrifugal and Coriolis forces, a thread per world and body."""

  @wp.kernel(module="unique")
  def bias_power(
    # Model:
    tree: Tree,
    inertia: Inertia,
    timestep: wp.array[float],
    # In:
    nodes: Nodes,
    # Out:
    power: wp.array2d[float],
  ):
    world, it = wp.tid()
    b = it + 1
    n = tree.of_body[b]
    mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
    fu = (
      nodes.fields[wp.static(velocities.acceleration), world, n]
      - nodes.fields[wp.static(velocities.implicit_right), world, n]
    )
    fy = nodes.fields[wp.static(velocities.implicit_left), world, n]
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
def _inertial_force(
  acc: wp.spatial_vector,
  vel: wp.spatial_vector,
  c: wp.vec3,
  qi: wp.quat,
  mass: float,
  moments: wp.vec3,
):
  """The inertial force of a body, in world axes, and the torque against it, in its main axes."""
  om = wp.spatial_top(vel)
  force = -mass * point_acceleration(acc, om, c)
  lo = unrotate(qi, om)
  torque = wp.cw_mul(moments, unrotate(qi, wp.spatial_top(acc)))
  torque = torque + wp.cross(lo, wp.cw_mul(moments, lo))
  return force, torque


@functools.cache
def body_kernel(velocities: Velocities, *, gravity: bool, gravcomp: bool, inertial: bool) -> Kernel:
  """Inertial, gravitational and applied forces, a thread per world and body."""
  apart = velocities.gravity_compensation != velocities.inertial
  lifted = gravity and gravcomp and apart  # along a velocity of its own

  @wp.kernel(module="unique")
  def body_power(
    # Model:
    tree: Tree,
    inertia: Inertia,
    # Data in:
    xfrc_applied: wp.array2d[wp.spatial_vector],
    # In:
    nodes: Nodes,
    # Out:
    power: wp.array2d[float],
  ):
    i, j = wp.tid()
    world, it = world_and_item(i, j, tree.world_fastest)
    b = it + 1
    n = tree.of_body[b]
    fw = nodes.fields[wp.static(velocities.inertial), world, n]
    mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
    force, torque = _inertial_force(nodes.acc[world, n], nodes.vel[world, n], c, qi, mass, moments)
    if wp.static(velocities.mass_acceleration < 0):
      force = force + wp.spatial_top(xfrc_applied[world, b])
    if wp.static(gravity):
      weight = mass
      if wp.static(gravcomp and not lifted):
        weight = mass * (1.0 - of_world(inertia.body_gravcomp, world, b))
      force = force + weight * of_world(inertia.gravity, world)
    ww = wp.spatial_top(fw)
    p = wp.dot(force, point_velocity(fw, c)) - wp.dot(torque, unrotate(qi, ww))
    if wp.static(velocities.mass_acceleration < 0):
      p = p + wp.dot(wp.spatial_bottom(xfrc_applied[world, b]), ww)
    else:
      fx = nodes.fields[wp.static(velocities.applied), world, n]
      p = p + wp.dot(wp.spatial_top(xfrc_applied[world, b]), point_velocity(fx, c))
      p = p + wp.dot(wp.spatial_bottom(xfrc_applied[world, b]), wp.spatial_top(fx))
      if wp.static(not inertial):  # the bias force is without that of the acceleration
        fn = nodes.fields[wp.static(velocities.mass_acceleration), world, n]
        fa = nodes.fields[wp.static(velocities.acceleration), world, n]
        p = p + inertial_product(fn, fa, c, qi, mass, moments)
    if wp.static(velocities.smooth >= 0):
      fs = nodes.fields[wp.static(velocities.smooth), world, n]
      ft = nodes.fields[wp.static(velocities.smooth_acceleration), world, n]
      p = p - inertial_product(fs, ft, c, qi, mass, moments)
    if wp.static(lifted):
      lift = of_world(inertia.body_gravcomp, world, b) * mass
      up = -lift * of_world(inertia.gravity, world)
      fg = nodes.fields[wp.static(velocities.gravity_compensation), world, n]
      p = p + wp.dot(up, point_velocity(fg, c))
    if wp.static(velocities.implicit_left >= 0):
      fy = nodes.fields[wp.static(velocities.implicit_left), world, n]
      fz = nodes.fields[wp.static(velocities.implicit_right), world, n]
      p = p + inertial_product(fy, fz, c, qi, mass, moments)
    power[world, it] = p

  return body_power


def record(rec: Recording, kin: Kinematics, mech: Mechanics) -> None:
  """Records the power of the bodies' inertia, gravity and applied forces."""
  tape, m, velocities = rec.tape, rec.m, kin.velocities
  gravity = not m.opt.disableflags & DisableBit.GRAVITY
  kernel = body_kernel(
    velocities, gravity=gravity, gravcomp=passive_act(m), inertial=rec.needs.inertial
  )
  inputs = [kin.tree, mech.inertia, rec.inputs["xfrc_applied"], kin.nodes]
  tape.power(kernel, m.nbody - 1, inputs=inputs)
  inputs = [kin.tree, mech.inertia, rec.leaf("opt.timestep"), kin.nodes]
  if rec.scheme.implicit_bias:
    tape.power(bias_kernel(velocities), (tape.nworld, m.nbody - 1), inputs=inputs)
  elif (rec.scheme.implicitfast or rec.scheme.discrete) and m.body_freeadr.size:
    kernel = gyroscopic_kernel(velocities, discrete=rec.scheme.discrete)
    tape.power(kernel, (tape.nworld, m.nbody), inputs=[*inputs, mech.free_qacc])


FORCE = Force(
  parameters=(
    *("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_gravcomp"),
    *("opt.gravity", "opt.timestep"),
  ),
  record=record,
)
