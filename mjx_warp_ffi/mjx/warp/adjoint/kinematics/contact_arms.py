"""The contact pool, and how the bodies of a contact move there."""

import warp as wp
from mujoco_warp._src.types import vec5

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import point_velocity
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class ContactPool:
  """The contacts of all worlds, and what kernels ask about their geoms.

  Who makes one fills in what its kernels read. Where forces are differentiated, `dist`, `pos` and
  `frame` are functions of the poses of the geoms, and the four after them of their materials.
  """

  nacon: wp.array[int]
  world: wp.array[int]
  type: wp.array[int]
  geom: wp.array[wp.vec2i]
  slot: wp.array[int]  # which of the contacts of its pair of geoms it is
  dim: wp.array[int]
  row: wp.array2d[int]  # the constraint rows of a contact, -1 where it has none
  margin: wp.array[float]
  dist: wp.array[float]
  pos: wp.array[wp.vec3]
  frame: wp.array[wp.mat33]
  friction: wp.array[vec5]
  solref: wp.array[wp.vec2]
  solreffriction: wp.array[wp.vec2]
  solimp: wp.array[vec5]
  geom_bodyid: wp.array[int]
  geom_type: wp.array[int]


@wp.func
def bodies_of(contacts: ContactPool, c: int):
  """The two bodies of a contact."""
  g = contacts.geom[c]
  return contacts.geom_bodyid[g[0]], contacts.geom_bodyid[g[1]]


@wp.func
def arms_of(contacts: ContactPool, tree: Tree, nodes: Nodes, c: int):
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
