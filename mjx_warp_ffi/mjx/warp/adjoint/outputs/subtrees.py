"""Cotangents of what a step reports of subtrees: centres of mass, velocities, momenta."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  point_velocity,
  rotate,
  unrotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

SUBTREES = ("subtree_com", "subtree_linvel", "subtree_angmom", "cvel")
LEAVES = ("body_subtreemass",)  # what the centres of mass read besides the bodies' inertias


@struct
class Subtrees:
  """The bodies below each body, itself included, and what they weigh together."""

  body_rootid: wp.array[int]
  body_subtreenum: wp.array[int]
  body_subtreemass: wp.array2d[float]


@wp.func
def body_centre(tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int) -> wp.vec3:
  """The centre of mass of a body from the origin of its node."""
  local = of_world(inertia.body_ipos, world, b)
  return rotate(nodes.xquat[world, tree.of_body[b]], local)


@wp.kernel(module="unique")
def subtree_centre(
  # In:
  tree: Tree,
  nodes: Nodes,
  # Model:
  inertia: Inertia,
  subtrees: Subtrees,
  # Out:
  com: wp.array2d[wp.vec3],
):
  """The centres of mass of the subtrees."""
  world, b = wp.tid()
  mass = wp.max(1.0e-15, of_world(subtrees.body_subtreemass, world, b))
  s = wp.vec3(0.0)
  for k in range(b, b + subtrees.body_subtreenum[b]):
    x = nodes.xpos[world, tree.of_body[k]] + body_centre(tree, nodes, inertia, world, k)
    # divided here: after the loop, reverse mode would not know the sum
    s += x * (of_world(inertia.body_mass, world, k) / mass)
  com[world, b] = s


@wp.func
def body_momentum(
  tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int
) -> wp.spatial_vector:
  """The angular momentum of a body about its centre of mass, and its linear momentum."""
  mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  f = nodes.vel[world, tree.of_body[b]]
  local = wp.cw_mul(moments, unrotate(qi, wp.spatial_top(f)))
  return wp.spatial_vector(rotate(qi, local), mass * point_velocity(f, c))


@wp.kernel(module="unique")
def subtree_velocity(
  # In:
  tree: Tree,
  nodes: Nodes,
  # Model:
  inertia: Inertia,
  subtrees: Subtrees,
  # In:
  com: wp.array2d[wp.vec3],
  # Data out:
  linvel: wp.array2d[wp.vec3],
  angmom: wp.array2d[wp.vec3],
  cvel: wp.array2d[wp.spatial_vector],
):
  """Velocities of centres of mass, angular momenta about them, and the field at the tree's."""
  world, b = wp.tid()
  mass = wp.max(1.0e-15, of_world(subtrees.body_subtreemass, world, b))
  c = com[world, b]
  lin = wp.vec3(0.0)
  ang = wp.vec3(0.0)
  for k in range(b, b + subtrees.body_subtreenum[b]):
    p = body_momentum(tree, nodes, inertia, world, k)
    x = nodes.xpos[world, tree.of_body[k]] + body_centre(tree, nodes, inertia, world, k)
    lin += wp.spatial_bottom(p) / mass
    ang += wp.spatial_top(p) + wp.cross(x - c, wp.spatial_bottom(p))
  linvel[world, b] = lin
  angmom[world, b] = ang
  n = tree.of_body[b]
  f = nodes.vel[world, n]
  r = com[world, subtrees.body_rootid[b]] - nodes.xpos[world, n]
  cvel[world, b] = wp.spatial_vector(wp.spatial_top(f), point_velocity(f, r))


def record_centres(rec: Recording, kin: Kinematics, inertia: Inertia) -> tuple[wp.array, list]:
  """Records the centres of mass of the subtrees: their array, and the inputs of their kernel."""
  tape, m = rec.tape, rec.m
  fixed = rec.fixed("body_rootid", "body_subtreenum")
  subtrees = tape.struct(Subtrees, **fixed, **rec.leaves(*LEAVES))
  inputs = [kin.tree, kin.nodes, inertia, subtrees]
  com = tape.array(m.nbody, dtype=wp.vec3)
  tape.launch(subtree_centre, (tape.nworld, m.nbody), inputs=inputs, outputs=[com])
  return com, inputs
