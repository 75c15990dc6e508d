"""Sites and geoms: frames attached to bodies."""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.spatial import mul, rotate


@wp.struct
class Sites:
  """Where the sites are on their bodies: model fields."""

  site_bodyid: wp.array[int]
  site_pos: wp.array2d[wp.vec3]
  site_quat: wp.array2d[wp.quat]


@wp.struct
class Geoms:
  """Where the geoms are on their bodies: model fields."""

  geom_bodyid: wp.array[int]
  geom_pos: wp.array2d[wp.vec3]
  geom_quat: wp.array2d[wp.quat]


@wp.func
def site_arm(sites: Sites, tree: Tree, nodes: Nodes, world: int, site: int) -> wp.vec3:
  """A site from the origin of its node, in world axes."""
  n = tree.of_body[sites.site_bodyid[site]]
  return rotate(nodes.xquat[world, n], sites.site_pos[world % sites.site_pos.shape[0], site])


@wp.func
def site_frame(sites: Sites, tree: Tree, nodes: Nodes, world: int, site: int):
  """The node of a site, the site from the origin of that node, and its axes."""
  n = tree.of_body[sites.site_bodyid[site]]
  axes = mul(nodes.xquat[world, n], sites.site_quat[world % sites.site_quat.shape[0], site])
  return n, site_arm(sites, tree, nodes, world, site), axes


@wp.func
def geom_frame(geoms: Geoms, tree: Tree, nodes: Nodes, world: int, geom: int):
  """The node of a geom, the geom from the origin of that node, and its axes."""
  n = tree.of_body[geoms.geom_bodyid[geom]]
  q = nodes.xquat[world, n]
  arm = rotate(q, geoms.geom_pos[world % geoms.geom_pos.shape[0], geom])
  return n, arm, mul(q, geoms.geom_quat[world % geoms.geom_quat.shape[0], geom])


def make_sites(step) -> Sites:
  """The sites of a `StageAdjoint`."""
  leaves = step.leaves("site_pos", "site_quat")
  return step.tape.struct(Sites, site_bodyid=step.m.site_bodyid, **leaves)


def make_geoms(step) -> Geoms:
  """The geoms of a `StageAdjoint`."""
  leaves = step.leaves("geom_pos", "geom_quat")
  return step.tape.struct(Geoms, geom_bodyid=step.m.geom_bodyid, **leaves)
