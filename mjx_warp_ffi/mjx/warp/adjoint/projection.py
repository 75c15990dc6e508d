"""Cotangents of the pixels at which cameras see sites."""

import math

import numpy as np
import warp as wp
from mujoco_warp._src.types import ObjType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.sensors import (
  Objects,
  Sensors,
  make_structs,
  object_frame,
  weigh,
)
from mjx_warp_ffi.mjx.warp.adjoint.spatial import unrotate

KIND = int(SensorType.CAMPROJECTION)
_SITE, _CAMERA = int(ObjType.SITE), int(ObjType.CAMERA)
_HALF_DEGREE = wp.constant(math.pi / 360.0)
_TINY = wp.constant(1.0e-15)


@wp.struct
class Lenses:
  """What the cameras make of a direction: model fields."""

  fovy: wp.array2d[float]
  resolution: wp.array[wp.vec2i]
  sensorsize: wp.array[wp.vec2]
  intrinsic: wp.array2d[wp.vec4]


@wp.func
def _focal(lens: Lenses, world: int, camera: int) -> wp.vec2:
  """The focal lengths in pixels."""
  across = float(lens.resolution[camera][0])
  high = float(lens.resolution[camera][1])
  size = lens.sensorsize[camera]
  angle = lens.fovy[world % lens.fovy.shape[0], camera] * _HALF_DEGREE
  f = 0.5 * high / wp.tan(angle)
  out = wp.vec2(f, f)
  if size[0] != 0.0 and size[1] != 0.0:
    y = lens.intrinsic[world % lens.intrinsic.shape[0], camera]
    out = wp.vec2(y[0] / size[0] * across, y[1] / size[1] * high)
  return out


@wp.kernel(module="unique")
def projection_power(
  s: Sensors,
  o: Objects,
  lens: Lenses,
  tree: Tree,
  nodes: Nodes,
  cot: wp.array2d[float],
  power: wp.array2d[float],
):
  """A thread per world and sensor of that kind."""
  world, it = wp.tid()
  k = s.which[it]
  camera = s.refid[k]
  n, r, _q = object_frame(o, tree, nodes, world, _SITE, s.objid[k])
  n1, r1, q1 = object_frame(o, tree, nodes, world, _CAMERA, camera)
  v = unrotate(q1, nodes.xpos[world, n] + r - (nodes.xpos[world, n1] + r1))
  f = _focal(lens, world, camera)
  middle = wp.vec2(float(lens.resolution[camera][0]), float(lens.resolution[camera][1])) * 0.5
  if wp.abs(v[2]) > _TINY:
    y = wp.vec4(middle[0] - f[0] * v[0] / v[2], middle[1] + f[1] * v[1] / v[2], 0.0, 0.0)
    power[world, it] = weigh(s, world, k, y, cot)


def record(step) -> None:
  """Records these sensors of a `StageAdjoint`."""
  which = np.flatnonzero(step.mjm.sensor_type == KIND)
  if not len(which):
    return
  make, objects = make_structs(step)
  fields = {f: getattr(step.m, f"cam_{f}") for f in "fovy resolution sensorsize intrinsic".split()}
  lenses = step.tape.struct(Lenses, **fields)
  inputs = [make(which=step.constant(which)), objects, lenses, step.sweep.tree, step.sweep.nodes]
  inputs.append(step.cotangents["sensordata"])
  step.tape.power(projection_power, (step.tape.nworld, len(which)), inputs=inputs)
