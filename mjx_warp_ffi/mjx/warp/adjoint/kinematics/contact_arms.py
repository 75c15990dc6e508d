"""The contact pool, as what differentiates the forces of contacts reads it."""

import warp as wp
from mujoco_warp._src.types import vec5

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import point_velocity


@wp.struct
class Contacts:
  """The contact pool, and where the contacts are as functions of the geoms' poses."""

  nacon: wp.array[int]
  world: wp.array[int]
  type: wp.array[int]
  geom: wp.array[wp.vec2i]
  dim: wp.array[int]
  row: wp.array2d[int]
  margin: wp.array[float]
  geom_bodyid: wp.array[int]
  body_invweight0: wp.array2d[wp.vec2]
  impratio_invsqrt: wp.array[float]
  width: float  # of smoothed contacts, which their margins have besides, else 0
  looseness: float  # of their friction, else 1
  found: wp.array[float]  # the distance as the collision found it, which decides
  dist: wp.array[float]
  pos: wp.array[wp.vec3]
  frame: wp.array[wp.mat33]
  friction: wp.array[vec5]
  solref: wp.array[wp.vec2]
  solreffriction: wp.array[wp.vec2]
  solimp: wp.array[vec5]
  mass: wp.array[float]  # see `law.Rows`
  metric: wp.array[float]


@wp.func
def bodies_of(contacts: Contacts, c: int):
  """The two bodies of a contact."""
  g = contacts.geom[c]
  return contacts.geom_bodyid[g[0]], contacts.geom_bodyid[g[1]]


@wp.func
def arms_of(contacts: Contacts, tree: Tree, nodes: Nodes, c: int):
  """The nodes of the two bodies of a contact, and the contact from the origins of both."""
  world = contacts.world[c]
  b0, b1 = bodies_of(contacts, c)
  n0 = tree.of_body[b0]
  n1 = tree.of_body[b1]
  point = contacts.pos[c]
  return n0, n1, point - nodes.xpos[world, n0], point - nodes.xpos[world, n1]


@wp.func
def relative(
  f0: wp.spatial_vector,
  f1: wp.spatial_vector,
  r0: wp.vec3,
  r1: wp.vec3,
  frame: wp.mat33,
) -> wp.spatial_vector:
  """The velocity of body 1 against body 0 at the contact, in its frame: linear, then angular."""
  lin = point_velocity(f1, r1) - point_velocity(f0, r0)
  ang = wp.spatial_top(f1) - wp.spatial_top(f0)
  return wp.spatial_vector(frame @ lin, frame @ ang)
