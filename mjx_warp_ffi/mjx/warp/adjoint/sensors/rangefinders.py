"""Cotangents of rangefinders: where rays of sites and cameras meet a geom.

The point that a ray meets stays on the surface F(point) = 0 of the geom that it met: where the
surface moves, the distance changes by -F / F', with F' the derivative of F along the ray, held
fixed. Meshes and height fields are planes there.
"""

import mujoco
import warp as wp
from mujoco_warp._src.ray import rays
from mujoco_warp._src.types import GeomType, ObjType, RayDataField, SensorType, vec6

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import (
  Geoms,
  Sites,
  geom_frame,
  site_frame,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import frozen, rotate, unrotate
from mjx_warp_ffi.mjx.warp.adjoint.outputs import cameras
from mjx_warp_ffi.mjx.warp.adjoint.outputs.cameras import Lenses, Views
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

KIND = SensorType.RANGEFINDER
_ANY_GROUP = vec6(*[float(mujoco.mjMAXVAL)] * 6)


@wp.func
def _face(p: float, size: float):
  """How far a coordinate is beyond the nearer of two faces, and the slope of that."""
  side = wp.float32(1.0)
  if p < 0.0:
    side = -1.0
  return side * p - size, side


@wp.func
def surface(kind: int, p: wp.vec3, size: wp.vec3, normal: wp.vec3):
  """A function that is zero on the surface of a geom, in its frame, and its gradient by p.

  The side of a cylinder or box is that which p is on; other geoms have the normal at p.
  """
  y = wp.dot(normal, p)
  slope = normal
  if kind == GeomType.PLANE:
    y = p[2]
    slope = wp.vec3(0.0, 0.0, 1.0)
  elif kind == GeomType.SPHERE:
    y = wp.dot(p, p) - size[0] * size[0]
    slope = 2.0 * p
  elif kind == GeomType.CAPSULE:
    q = wp.vec3(p[0], p[1], 0.0)
    if p[2] > size[1]:
      q = wp.vec3(p[0], p[1], p[2] - size[1])
    elif p[2] < -size[1]:
      q = wp.vec3(p[0], p[1], p[2] + size[1])
    y = wp.dot(q, q) - size[0] * size[0]
    slope = 2.0 * q
  elif kind == GeomType.ELLIPSOID:
    e = wp.cw_div(p, size)
    y = wp.dot(e, e)
    slope = 2.0 * wp.cw_div(e, size)
  elif kind == GeomType.CYLINDER:
    y = p[0] * p[0] + p[1] * p[1] - size[0] * size[0]
    slope = wp.vec3(2.0 * p[0], 2.0 * p[1], 0.0)
    if wp.abs(normal[2]) > 0.5:
      y, side = _face(p[2], size[1])
      slope = wp.vec3(0.0, 0.0, side)
  elif kind == GeomType.BOX:
    y, side = _face(p[0], size[0])
    slope = wp.vec3(side, 0.0, 0.0)
    if wp.abs(normal[1]) > 0.5:
      y, side = _face(p[1], size[1])
      slope = wp.vec3(0.0, side, 0.0)
    elif wp.abs(normal[2]) > 0.5:
      y, side = _face(p[2], size[2])
      slope = wp.vec3(0.0, 0.0, side)
  return y, slope


@struct
class Rays:
  """The rays of the rangefinders, and what they meet."""

  sensor: wp.array[int]  # of each ray
  first: wp.array[int]  # of each sensor: its first ray
  objtype: wp.array[int]  # of each sensor, as the next ones
  objid: wp.array[int]
  adr: wp.array[int]
  data: wp.array2d[int]  # the first is a mask of what is reported
  pnt: wp.array2d[wp.vec3]
  vec: wp.array2d[wp.vec3]
  geom: wp.array2d[int]
  dist: wp.array2d[float]
  normal: wp.array2d[wp.vec3]
  slope: wp.array2d[float]  # F', zero where a ray meets nothing
  geom_type: wp.array[int]


@wp.kernel(module="unique")
def _aim(r: Rays, sites: Sites, views: Views, lens: Lenses, tree: Tree, nodes: Nodes, out: Rays):
  """The rays, a thread per world and ray."""
  world, i = wp.tid()
  k = r.sensor[i]
  o = r.objid[k]
  if r.objtype[k] == ObjType.SITE:
    n, arm, axes = site_frame(sites, tree, nodes, world, o)
    out.pnt[world, i] = nodes.xpos[world, n] + arm
    out.vec[world, i] = rotate(axes, wp.vec3(0.0, 0.0, 1.0))
  else:
    start, along = cameras.pixel_ray(lens, world, o, i - r.first[k])
    xmat = views.xmat[world, o]
    out.pnt[world, i] = views.xpos[world, o] + xmat @ start
    out.vec[world, i] = wp.normalize(xmat @ along)


@wp.kernel(enable_backward=False)
def _meet(
  r: Rays,
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
  geom_size: wp.array2d[wp.vec3],
):
  """Normals in the frames of the geoms, F', and distances to the last digit, by world and ray."""
  world, i = wp.tid()
  g = r.geom[world, i]
  y = wp.float32(0.0)
  if g >= 0 and r.dist[world, i] >= 0.0:
    turn = wp.transpose(xmat[world, g])
    n = turn @ r.normal[world, i]
    r.normal[world, i] = n
    start = turn @ (r.pnt[world, i] - xpos[world, g])
    v = turn @ r.vec[world, i]
    size = of_world(geom_size, world, g)
    _y, slope = surface(r.geom_type[g], start + r.dist[world, i] * v, size, n)
    y = wp.dot(slope, v)
  r.slope[world, i] = y


@wp.func
def _place(r: Rays, i: int, field: int) -> int:
  """Where the sensordata have a field of a ray, or -1."""
  k = r.sensor[i]
  mask = r.data[k, 0]
  stride = wp.int32(0)
  before = wp.int32(0)
  for f in range(6):
    width = wp.int32(3)
    if f == RayDataField.DIST or f == RayDataField.DEPTH:
      width = 1
    if (mask >> f) & 1 == 0:
      width = 0
    stride += width
    if f < field:
      before += width
  out = wp.int32(-1)
  if (mask >> field) & 1 == 1:
    out = r.adr[k] + (i - r.first[k]) * stride + before
  return out


@wp.func
def _product(cot: wp.array2d[float], world: int, at: int, x: wp.vec3) -> float:
  """The cotangent of a vector times it, zero if it is not reported."""
  y = wp.float32(0.0)
  if at >= 0:
    y = cot[world, at] * x[0] + cot[world, at + 1] * x[1] + cot[world, at + 2] * x[2]
  return y


@wp.kernel(module="unique")
def _range_power(
  # In:
  r: Rays,
  views: Views,
  geoms: Geoms,
  # Model:
  geom_size: wp.array2d[wp.vec3],
  # In:
  tree: Tree,
  nodes: Nodes,
  cot: wp.array2d[float],
  # Out:
  power: wp.array2d[float],
):
  """What is reported of the rays, a thread per world and ray."""
  world, i = wp.tid()
  origin = r.pnt[world, i]
  along = r.vec[world, i]
  p = _product(cot, world, _place(r, i, RayDataField.ORIGIN), origin)
  if r.slope[world, i] != 0.0:
    g = r.geom[world, i]
    n, arm, axes = geom_frame(geoms, tree, nodes, world, g)
    x = origin + r.dist[world, i] * along
    local = unrotate(axes, x - nodes.xpos[world, n] - arm)
    size = of_world(geom_size, world, g)
    y, _slope = surface(r.geom_type[g], local, size, r.normal[world, i])
    length = r.dist[world, i] - (y - frozen(y)) / r.slope[world, i]
    x = origin + length * along
    local = unrotate(axes, x - nodes.xpos[world, n] - arm)
    _y, slope = surface(r.geom_type[g], local, size, r.normal[world, i])
    if wp.dot(slope, r.normal[world, i]) < 0.0:
      slope = -slope
    p = p + _product(cot, world, _place(r, i, RayDataField.DIR), along)
    p = p + _product(cot, world, _place(r, i, RayDataField.POINT), x)
    p = p + _product(
      cot, world, _place(r, i, RayDataField.NORMAL), rotate(axes, wp.normalize(slope))
    )
    at = _place(r, i, RayDataField.DIST)
    if at >= 0:
      p = p + cot[world, at] * length
    at = _place(r, i, RayDataField.DEPTH)
    if at >= 0:
      k = r.sensor[i]
      depth = length
      if r.objtype[k] != ObjType.SITE:
        xmat = views.xmat[world, r.objid[k]]
        depth = -length * wp.dot(along, wp.vec3(xmat[0, 2], xmat[1, 2], xmat[2, 2]))
      p = p + cot[world, at] * depth
  power[world, i] = p


def record(rec: Recording, ev: Evaluated) -> None:
  """Records the rangefinders."""
  m, d, tape, kin = rec.m, rec.d, rec.tape, ev.kin
  shape = (d.nworld, m.nrangefinder)
  if not m.nrangefinder:
    return
  geom, dist, slope = (wp.zeros(shape, dtype=x) for x in (int, float, float))
  normal = wp.zeros(shape, dtype=wp.vec3)
  pnt, vec = (tape.array(m.nrangefinder, dtype=wp.vec3) for _ in range(2))
  fixed = {f: getattr(m, f"sensor_{f}") for f in ("objtype", "objid", "adr")}
  fixed |= dict(sensor=m.sensor_rangefinder_adr, first=m.rangefinder_sensor_adr)
  fixed |= dict(data=m.sensor_intprm, geom_type=m.geom_type)
  r = tape.struct(Rays, pnt=pnt, vec=vec, geom=geom, dist=dist, normal=normal, slope=slope, **fixed)
  views = cameras.record_views(rec, kin, ev.mech.inertia)
  nodes = [kin.tree, kin.nodes]
  inputs = [r, kin.sites, views, cameras.make_lenses(rec), *nodes, r]
  tape.launch(_aim, shape, inputs=inputs, outputs=[])

  def measure() -> None:
    excluded = m.sensor_rangefinder_bodyid
    rays(m, d, pnt, vec, _ANY_GROUP, True, excluded, dist, geom, normal)
    wp.launch(_meet, shape, inputs=[r, d.geom_xpos, d.geom_xmat, m.geom_size])

  tape.call(forward=measure)
  inputs = [r, views, kin.geoms, rec.leaf("geom_size"), *nodes, ev.weights]
  tape.power(_range_power, shape, inputs=inputs)


OUTPUT = Output(parameters=("geom_size",), sensors=(KIND,), record=record)
