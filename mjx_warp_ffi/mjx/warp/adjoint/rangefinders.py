"""Cotangents of the rangefinders of sites: how far a ray goes until it meets a geom.

The point that a ray meets stays on the surface F(point) = 0 of the geom that it met: where the
surface moves, the distance changes by -F / F', with F' the derivative of F along the ray, held
fixed. Meshes and height fields are planes there.
"""

import mujoco
import numpy as np
import warp as wp
from mujoco_warp._src.ray import rays
from mujoco_warp._src.types import GeomType, ObjType, SensorType, vec6

from mjx_warp_ffi.mjx.warp.adjoint.attached import Geoms, Sites, geom_frame, site_frame
from mjx_warp_ffi.mjx.warp.adjoint.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.spatial import rotate, unrotate

KIND = int(SensorType.RANGEFINDER)
_SITE = int(ObjType.SITE)
_DISTANCE = 1 << int(mujoco.mjtRayDataField.mjRAYDATA_DIST)
_ANY_GROUP = vec6(*[float(mujoco.mjMAXVAL)] * 6)
PLANE, SPHERE = int(GeomType.PLANE), int(GeomType.SPHERE)
CAPSULE, ELLIPSOID = int(GeomType.CAPSULE), int(GeomType.ELLIPSOID)
CYLINDER, BOX = int(GeomType.CYLINDER), int(GeomType.BOX)


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
  if kind == PLANE:
    y = p[2]
    slope = wp.vec3(0.0, 0.0, 1.0)
  elif kind == SPHERE:
    y = wp.dot(p, p) - size[0] * size[0]
    slope = 2.0 * p
  elif kind == CAPSULE:
    q = wp.vec3(p[0], p[1], 0.0)
    if p[2] > size[1]:
      q = wp.vec3(p[0], p[1], p[2] - size[1])
    elif p[2] < -size[1]:
      q = wp.vec3(p[0], p[1], p[2] + size[1])
    y = wp.dot(q, q) - size[0] * size[0]
    slope = 2.0 * q
  elif kind == ELLIPSOID:
    e = wp.cw_div(p, size)
    y = wp.dot(e, e)
    slope = 2.0 * wp.cw_div(e, size)
  elif kind == CYLINDER:
    y = p[0] * p[0] + p[1] * p[1] - size[0] * size[0]
    slope = wp.vec3(2.0 * p[0], 2.0 * p[1], 0.0)
    if wp.abs(normal[2]) > 0.5:
      y, side = _face(p[2], size[1])
      slope = wp.vec3(0.0, 0.0, side)
  elif kind == BOX:
    y, side = _face(p[0], size[0])
    slope = wp.vec3(side, 0.0, 0.0)
    if wp.abs(normal[1]) > 0.5:
      y, side = _face(p[1], size[1])
      slope = wp.vec3(0.0, side, 0.0)
    elif wp.abs(normal[2]) > 0.5:
      y, side = _face(p[2], size[2])
      slope = wp.vec3(0.0, 0.0, side)
  return y, slope


@wp.struct
class Rays:
  """The rangefinders, and what their rays meet."""

  objid: wp.array[int]
  adr: wp.array[int]
  geom: wp.array2d[int]
  dist: wp.array2d[float]
  normal: wp.array2d[wp.vec3]
  geom_type: wp.array[int]


@wp.kernel(enable_backward=False)
def _aim(
  r: Rays,
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
  pnt: wp.array2d[wp.vec3],
  vec: wp.array2d[wp.vec3],
):
  """The rays, a thread per world and sensor."""
  world, it = wp.tid()
  s = r.objid[it]
  pnt[world, it] = xpos[world, s]
  vec[world, it] = wp.vec3(xmat[world, s][0, 2], xmat[world, s][1, 2], xmat[world, s][2, 2])


@wp.kernel(enable_backward=False)
def _weigh(
  r: Rays,
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
  geom_size: wp.array2d[wp.vec3],
  pnt: wp.array2d[wp.vec3],
  vec: wp.array2d[wp.vec3],
  cot: wp.array2d[float],
  weight: wp.array2d[float],
):
  """Normals in the frames of the geoms, and -cotangent / F', zero where nothing is met."""
  world, it = wp.tid()
  g = r.geom[world, it]
  y = wp.float32(0.0)
  if g >= 0 and r.dist[world, it] >= 0.0:
    turn = wp.transpose(xmat[world, g])
    n = turn @ r.normal[world, it]
    r.normal[world, it] = n
    v = turn @ vec[world, it]
    p = turn @ (pnt[world, it] + r.dist[world, it] * vec[world, it] - xpos[world, g])
    size = geom_size[world % geom_size.shape[0], g]
    x = cot[world, r.adr[it]]
    if x != 0.0:
      _y, slope = surface(r.geom_type[g], p, size, n)
      y = -x / wp.dot(slope, v)
  weight[world, it] = y


@wp.func
def _value(
  r: Rays,
  sites: Sites,
  geoms: Geoms,
  geom_size: wp.array2d[wp.vec3],
  tree: Tree,
  nodes: Nodes,
  world: int,
  it: int,
) -> float:
  """The surface function where a ray meets it."""
  s = r.objid[it]
  g = r.geom[world, it]
  n0, r0, q0 = site_frame(sites, tree, nodes, world, s)
  n1, r1, q1 = geom_frame(geoms, tree, nodes, world, g)
  x = nodes.xpos[world, n0] + r0 + r.dist[world, it] * rotate(q0, wp.vec3(0.0, 0.0, 1.0))
  p = unrotate(q1, x - nodes.xpos[world, n1] - r1)
  size = geom_size[world % geom_size.shape[0], g]
  value, _slope = surface(r.geom_type[g], p, size, r.normal[world, it])
  return value


@wp.kernel(module="unique")
def _range_power(
  r: Rays,
  sites: Sites,
  geoms: Geoms,
  geom_size: wp.array2d[wp.vec3],
  tree: Tree,
  nodes: Nodes,
  weight: wp.array2d[float],
  power: wp.array2d[float],
):
  """Distances along rays, a thread per world and sensor."""
  world, it = wp.tid()
  p = wp.float32(0.0)
  if weight[world, it] != 0.0:
    y = _value(r, sites, geoms, geom_size, tree, nodes, world, it)
    p = weight[world, it] * y
  power[world, it] = p


def ruled(mjm: mujoco.MjModel, k: int) -> bool:
  """Whether a rangefinder measures the distance along the axis of a site, and nothing else."""
  return bool(mjm.sensor_objtype[k] == _SITE and mjm.sensor_intprm[k, 0] == _DISTANCE)


def record(step) -> None:
  """Records the rangefinders of a `StageAdjoint` whose sensordata has a cotangent."""
  m, d, mjm, tape = step.m, step.d, step.mjm, step.tape
  found = [k for k in np.flatnonzero(mjm.sensor_type == KIND) if ruled(mjm, k)]
  if not found:
    return
  which, shape = np.array(found), (d.nworld, len(found))
  geom, dist = wp.zeros(shape, dtype=int), wp.zeros(shape, dtype=float)
  normal = wp.zeros(shape, dtype=wp.vec3)
  fixed = {f: step.constant(getattr(mjm, f"sensor_{f}")[which]) for f in ("objid", "adr")}
  r = tape.struct(Rays, geom=geom, dist=dist, normal=normal, geom_type=m.geom_type, **fixed)
  pnt, vec = (wp.zeros(shape, dtype=wp.vec3) for _ in range(2))
  excluded = step.constant(mjm.site_bodyid[mjm.sensor_objid[which]])
  weight = wp.zeros(shape, dtype=float)
  size = step.leaf("geom_size")

  def measure() -> None:
    wp.launch(_aim, shape, inputs=[r, d.site_xpos, d.site_xmat], outputs=[pnt, vec])
    rays(m, d, pnt, vec, _ANY_GROUP, True, excluded, dist, geom, normal)
    inputs = [r, d.geom_xpos, d.geom_xmat, m.geom_size, pnt, vec, step.weights]
    wp.launch(_weigh, shape, inputs=inputs, outputs=[weight])

  step.after_recompute.append(measure)
  inputs = [r, step.sites, step.geoms, size]
  inputs += [step.sweep.tree, step.sweep.nodes, weight]
  tape.power(_range_power, shape, inputs=inputs)
