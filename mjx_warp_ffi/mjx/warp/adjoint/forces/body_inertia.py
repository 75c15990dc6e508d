"""Masses and inertias of the bodies, which the power of many forces and outputs read."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import mul, point_velocity, rotate, unrotate
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
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
def inertial_product(
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
  """Twice the kinetic energy of a body in the velocity field of the number f."""
  mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  v = nodes.fields[f, world, tree.of_body[b]]
  return inertial_product(v, v, c, qi, mass, moments)


def make_inertia(rec: Recording) -> Inertia:
  """The masses of the bodies, for kernels."""
  return rec.tape.struct(
    Inertia,
    **rec.leaves("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_gravcomp"),
    gravity=rec.leaf("opt.gravity"),
  )
