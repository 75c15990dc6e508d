"""Sites and geoms: frames attached to bodies."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  matrix,
  mul,
  pure,
  rotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Sites:
  """Where the sites are on their bodies: model fields."""

  site_bodyid: wp.array[int]
  site_pos: wp.array2d[wp.vec3]
  site_quat: wp.array2d[wp.quat]


@struct
class Geoms:
  """Where the geoms are on their bodies: model fields."""

  geom_bodyid: wp.array[int]
  geom_pos: wp.array2d[wp.vec3]
  geom_quat: wp.array2d[wp.quat]


@wp.func
def site_arm(sites: Sites, tree: Tree, nodes: Nodes, world: int, site: int) -> wp.vec3:
  """A site from the origin of its node, in world axes."""
  n = tree.of_body[sites.site_bodyid[site]]
  return rotate(nodes.xquat[world, n], of_world(sites.site_pos, world, site))


@wp.func
def site_frame(sites: Sites, tree: Tree, nodes: Nodes, world: int, site: int):
  """The node of a site, the site from the origin of that node, and its axes."""
  n = tree.of_body[sites.site_bodyid[site]]
  axes = mul(nodes.xquat[world, n], of_world(sites.site_quat, world, site))
  return n, site_arm(sites, tree, nodes, world, site), axes


@wp.func
def geom_frame(geoms: Geoms, tree: Tree, nodes: Nodes, world: int, geom: int):
  """The node of a geom, the geom from the origin of that node, and its axes."""
  n = tree.of_body[geoms.geom_bodyid[geom]]
  q = nodes.xquat[world, n]
  arm = rotate(q, of_world(geoms.geom_pos, world, geom))
  return n, arm, mul(q, of_world(geoms.geom_quat, world, geom))


def make_sites(rec: Recording) -> Sites:
  """The sites, for kernels."""
  leaves = rec.leaves("site_pos", "site_quat")
  return rec.tape.struct(Sites, **rec.fixed("site_bodyid"), **leaves)


def make_geoms(rec: Recording) -> Geoms:
  """The geoms, for kernels."""
  leaves = rec.leaves("geom_pos", "geom_quat")
  return rec.tape.struct(Geoms, **rec.fixed("geom_bodyid"), **leaves)


@wp.kernel(module="unique")
def geom_pose(
  # Model and nodes:
  tree: Tree,
  nodes: Nodes,
  geoms: Geoms,
  # Out:
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
):
  """The poses of the geoms, a thread per world and geom."""
  i, j = wp.tid()
  world, g = world_and_item(i, j, tree.world_fastest)
  n, arm, axes = geom_frame(geoms, tree, nodes, world, g)
  xpos[world, g] = nodes.xpos[world, n] + arm
  xmat[world, g] = matrix(axes)


@wp.kernel(enable_backward=False)
def geom_pose_adjoint(
  # Model and nodes:
  tree: Tree,
  nodes: Nodes,
  geoms: Geoms,
  # In:
  cot_xpos: wp.array2d[wp.vec3],
  cot_xmat: wp.array2d[wp.mat33],
  # Out:
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
):
  """The adjoint of `geom_pose` by the poses of the nodes, for cotangents that are mostly zero."""
  i, j = wp.tid()
  world, g = world_and_item(i, j, tree.world_fastest)
  pull = cot_xpos[world, g]
  turn = cot_xmat[world, g]
  if pull == wp.vec3(0.0) and turn == wp.mat33(0.0):
    return
  n, arm, axes = geom_frame(geoms, tree, nodes, world, g)
  columns = wp.transpose(matrix(axes))
  pulls = wp.transpose(turn)
  torque = wp.cross(arm, pull)
  for k in range(3):
    torque += wp.cross(columns[k], pulls[k])
  wp.atomic_add(xpos, world, n, pull)
  # a rotation by r turns q by (0, r / 2) q
  wp.atomic_add(xquat, world, n, mul(pure(2.0 * torque), nodes.xquat[world, n]))
