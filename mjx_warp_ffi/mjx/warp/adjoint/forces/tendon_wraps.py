"""Pieces of spatial tendons that wrap around a sphere or a cylinder.

Outside a geom Warp's reverse mode goes through MJWarp's closed form. Inside one, MJWarp finds the
point that the tendon touches by iteration, which a reverse mode gets wrong: its angle is found
once more, and one Newton step from there carries the derivative.
"""

import functools

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import util_misc
from mujoco_warp._src.types import WrapType, mat43

from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Geoms, Sites, geom_frame, site_arm
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  frozen,
  point_velocity,
  rotate,
  unrotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel, struct


@struct
class Wraps:
  """The pieces of spatial tendons that go from a site around a geom to a site."""

  site0: wp.array[int]
  site1: wp.array[int]
  side: wp.array[int]  # the site that says on which side, or -1
  geom: wp.array[int]
  kind: wp.array[int]
  scale: wp.array[float]
  start: wp.array2d[float]  # see `find_inside`
  first: int  # where their rates stand, after those of the straight pieces
  geom_size: wp.array2d[wp.vec3]


@wp.func
def _direction(x0: wp.vec3, x1: wp.vec3):
  """The direction from one point to another, MuJoCo's where they meet, and the distance."""
  dif = x1 - x0
  length = wp.float32(0.0)
  u = wp.vec3(1.0, 0.0, 0.0)
  d2 = wp.dot(dif, dif)
  if d2 > 1.0e-24:
    length = wp.sqrt(d2)
    u = dif / length
  return u, length


@wp.func
def _touch(end: wp.vec4, radius: float, start: float) -> wp.vec2:
  """The point of a circle that a tendon inside it touches, near the angle `start` of that point.

  There the length of the two straight parts is stationary: one Newton step from the solution has
  the derivative of the solution.
  """
  a = frozen(start)
  x = radius * wp.vec2(wp.cos(a), wp.sin(a))
  t = wp.vec2(-x[1], x[0])
  slope = wp.float32(0.0)
  curvature = wp.float32(0.0)
  for k in range(2):
    e = wp.vec2(end[2 * k], end[2 * k + 1])
    length = wp.length(e - x)
    along = wp.dot(e - x, t)
    slope = slope - along / length
    curvature = curvature + wp.dot(e, x) / length - along * along / (length * length * length)
  a = a - slope / frozen(curvature)
  return radius * wp.vec2(wp.cos(a), wp.sin(a))


@wp.func
def _plane(p0: wp.vec3, p1: wp.vec3, kind: int):
  """The axes of the plane in which a tendon wraps, in the geom's frame."""
  axis0 = wp.vec3(1.0, 0.0, 0.0)
  axis1 = wp.vec3(0.0, 1.0, 0.0)
  if kind == WrapType.SPHERE:
    axis0 = wp.normalize(p0)
    axis1 = wp.normalize(wp.cross(wp.normalize(wp.cross(p0, p1)), axis0))
  return axis0, axis1


@wp.func
def _wrap(p0: wp.vec3, p1: wp.vec3, side: wp.vec3, radius: float, kind: int, start: float):
  """The arc between two points in the geom's frame, -1 without one, and its ends.

  `start` is the angle of the point that a tendon inside the geom touches, or more than 10.
  """
  axis0, axis1 = _plane(p0, p1, kind)
  end = wp.vec4(wp.dot(p0, axis0), wp.dot(p0, axis1), wp.dot(p1, axis0), wp.dot(p1, axis1))
  arc = wp.float32(0.0)
  a = wp.vec2(0.0, 0.0)
  b = wp.vec2(0.0, 0.0)
  if start < 10.0:
    a = _touch(end, radius, start)
    b = a
  else:
    towards = wp.vec2(1.0e10, 1.0e10)
    if wp.length(side) < 1.0e10:
      towards = radius * wp.normalize(wp.vec2(wp.dot(side, axis0), wp.dot(side, axis1)))
    arc, a, b = util_misc.wrap_circle(end, towards, radius)
  x0 = axis0 * a[0] + axis1 * a[1]
  x1 = axis0 * b[0] + axis1 * b[1]
  if kind != WrapType.SPHERE and arc >= 0.0:
    l0 = wp.length(wp.vec2(p0[0] - a[0], p0[1] - a[1]))
    l1 = wp.length(wp.vec2(p1[0] - b[0], p1[1] - b[1]))
    rise = (p1[2] - p0[2]) / (l0 + arc + l1)
    x0 = wp.vec3(a[0], a[1], p0[2] + rise * l0)
    x1 = wp.vec3(b[0], b[1], p0[2] + rise * (l0 + arc))
    arc = arc * wp.sqrt(1.0 + rise * rise)
  return arc, x0, x1


@wp.func
def _side(tree: Tree, nodes: Nodes, sites: Sites, wraps: Wraps, world: int, i: int) -> wp.vec3:
  """The site that says on which side a tendon passes, far away without one."""
  s = wraps.side[i]
  x = wp.vec3(1.0e10)
  if s >= 0:
    x = nodes.xpos[world, tree.of_body[sites.site_bodyid[s]]]
    x = x + site_arm(sites, tree, nodes, world, s)
  return x


@wp.func
def _pose(tree: Tree, nodes: Nodes, geoms: Geoms, wraps: Wraps, world: int, i: int):
  """The pose and the radius of the geom of a piece."""
  g = wraps.geom[i]
  n, arm, q = geom_frame(geoms, tree, nodes, world, g)
  return nodes.xpos[world, n] + arm, q, of_world(wraps.geom_size, world, g)[0]


@wp.func
def _around(
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  geoms: Geoms,
  wraps: Wraps,
  world: int,
  i: int,
  x0: wp.vec3,
  x1: wp.vec3,
):
  """The arc of a piece, -1 without one, and where the tendon meets the geom and leaves it."""
  x, q, radius = _pose(tree, nodes, geoms, wraps, world, i)
  side = _side(tree, nodes, sites, wraps, world, i)
  if wraps.side[i] >= 0:
    side = unrotate(q, side - x)
  start = wraps.start[world, i]
  p0 = unrotate(q, x0 - x)
  p1 = unrotate(q, x1 - x)
  arc, y0, y1 = _wrap(p0, p1, side, radius, wraps.kind[i], start)
  return arc, x + rotate(q, y0), x + rotate(q, y1)


@wp.kernel(enable_backward=False)
def find_inside(
  # Model:
  tree: Tree,
  sites: Sites,
  geoms: Geoms,
  wraps: Wraps,
  # In:
  nodes: Nodes,
  # Out:
  start: wp.array2d[float],
):
  """The angle of the point that a tendon inside a geom touches, 100 for one outside."""
  world, i = wp.tid()
  s0 = wraps.site0[i]
  s1 = wraps.site1[i]
  x0 = nodes.xpos[world, tree.of_body[sites.site_bodyid[s0]]]
  x0 = x0 + site_arm(sites, tree, nodes, world, s0)
  x1 = nodes.xpos[world, tree.of_body[sites.site_bodyid[s1]]]
  x1 = x1 + site_arm(sites, tree, nodes, world, s1)
  x, q, radius = _pose(tree, nodes, geoms, wraps, world, i)
  side = _side(tree, nodes, sites, wraps, world, i)
  out = wp.float32(100.0)
  if wraps.side[i] >= 0:
    if wp.length(side - x) < radius:
      p0 = unrotate(q, x0 - x)
      p1 = unrotate(q, x1 - x)
      axis0, axis1 = _plane(p0, p1, wraps.kind[i])
      end = wp.vec4(wp.dot(p0, axis0), wp.dot(p0, axis1), wp.dot(p1, axis0), wp.dot(p1, axis1))
      arc, a, b = util_misc.wrap_inside(end, radius)
      out = 1000.0  # inside, but straight
      if arc >= 0.0:
        out = wp.atan2(a[1], a[0])
  start[world, i] = out


@wp.func
def _bent(
  f0: wp.spatial_vector,
  fg: wp.spatial_vector,
  f1: wp.spatial_vector,
  arms: mat43,
  u0: wp.vec3,
  u1: wp.vec3,
) -> float:
  """The rate of the two straight parts: site 0, geom, geom, site 1."""
  r0 = wp.vec3(arms[0, 0], arms[0, 1], arms[0, 2])
  rg0 = wp.vec3(arms[1, 0], arms[1, 1], arms[1, 2])
  rg1 = wp.vec3(arms[2, 0], arms[2, 1], arms[2, 2])
  r1 = wp.vec3(arms[3, 0], arms[3, 1], arms[3, 2])
  rate = wp.dot(u0, point_velocity(fg, rg0) - point_velocity(f0, r0))
  return rate + wp.dot(u1, point_velocity(f1, r1) - point_velocity(fg, rg1))


@functools.cache
def wrap_kernel(nfield: int) -> Kernel:
  """Pieces around a geom, a thread per world and piece.

  The arc moves with the geom and so has no rate of its own: the tendon touches it tangentially.
  """

  @wp.kernel(module="unique")
  def wrapped(
    # Model:
    tree: Tree,
    sites: Sites,
    geoms: Geoms,
    wraps: Wraps,
    # In:
    nodes: Nodes,
    # Out:
    out: Rates,
  ):
    world, it = wp.tid()
    i = wraps.first + it
    s0 = wraps.site0[it]
    s1 = wraps.site1[it]
    n0 = tree.of_body[sites.site_bodyid[s0]]
    n1 = tree.of_body[sites.site_bodyid[s1]]
    ng = tree.of_body[geoms.geom_bodyid[wraps.geom[it]]]
    r0 = site_arm(sites, tree, nodes, world, s0)
    r1 = site_arm(sites, tree, nodes, world, s1)
    x0 = nodes.xpos[world, n0] + r0
    x1 = nodes.xpos[world, n1] + r1
    arc, p0, p1 = _around(tree, nodes, sites, geoms, wraps, world, it, x0, x1)
    if (
      arc < 0.0 or wraps.start[world, it] > 500.0
    ):  # straight: as if it met the geom at the second site and stayed there
      arc = 0.0
      p0 = x1
      p1 = x1
      ng = n1
    u0, l0 = _direction(x0, p0)
    u1, l1 = _direction(p1, x1)
    rg0 = p0 - nodes.xpos[world, ng]
    rg1 = p1 - nodes.xpos[world, ng]
    arms = mat43(
      r0[0], r0[1], r0[2], rg0[0], rg0[1], rg0[2], rg1[0], rg1[1], rg1[2], r1[0], r1[1], r1[2]
    )
    scale = wraps.scale[it]
    out.length[world, i] = scale * (l0 + arc + l1)
    v0 = nodes.vel[world, n0]
    vg = nodes.vel[world, ng]
    out.velocity[world, i] = scale * _bent(v0, vg, nodes.vel[world, n1], arms, u0, u1)
    for f in range(wp.static(nfield)):
      g0 = nodes.fields[f, world, n0]
      gg = nodes.fields[f, world, ng]
      g1 = nodes.fields[f, world, n1]
      out.fields[f, world, i] = scale * _bent(g0, gg, g1, arms, u0, u1)

  return wrapped


def record(rec: Recording, kin: Kinematics, over: Carried, *, pieces: Rates, first: int) -> None:
  """Records the bent pieces of the tendons.

  Args:
    rec: the recording.
    kin: the kinematics.
    over: the velocities along which rates are wanted.
    pieces: where the lengths and rates of all pieces go.
    first: the place of the first bent piece there.
  """
  tape, m = rec.tape, rec.m
  adr = m.wrap_geom_adr.numpy()[_pieces_order(m)]
  ids, prm, kinds = m.wrap_objid.numpy(), m.wrap_prm.numpy(), m.wrap_type.numpy()
  arrays = dict(
    site0=ids[adr - 1],
    site1=ids[adr + 1],
    side=np.round(prm[adr]).astype(int),
    geom=ids[adr],
    kind=kinds[adr],
    scale=m.wrap_pulley_scale.numpy()[adr],
  )
  dim = (tape.nworld, len(adr))
  start = wp.zeros(dim, dtype=float, device=tape.device)
  wraps = tape.struct(
    Wraps,
    **{k: rec.constant(x) for k, x in arrays.items()},
    first=first,
    start=start,
    geom_size=rec.leaf("geom_size"),
  )
  inputs = [kin.tree, kin.sites, kin.geoms, wraps, over.nodes]
  tape.call(forward=lambda: wp.launch(find_inside, dim, inputs=inputs, outputs=[start]))
  tape.launch(wrap_kernel(over.count), dim, inputs=[*inputs, pieces], outputs=[])


def _pieces_order(m: mjw.Model) -> np.ndarray:
  """The bent pieces in the order of their tendons."""
  return np.argsort(m.tendon_geom_adr.numpy(), kind="stable")


PART = Part(
  parameters=("geom_pos", "geom_quat", "geom_size", "site_pos", "site_quat"),
)
