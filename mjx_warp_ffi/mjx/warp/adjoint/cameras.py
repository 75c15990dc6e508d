"""Cotangents of the poses of cameras and of the positions and directions of lights."""

import warp as wp
from mujoco_warp._src.types import CamLightType

from mjx_warp_ffi.mjx.warp.adjoint.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.outputs import record_centres
from mjx_warp_ffi.mjx.warp.adjoint.spatial import matrix, mul, rotate

CAMERAS = ("cam_xpos", "cam_xmat")
LIGHTS = ("light_xpos", "light_xdir")
_FIXED_TO = ("mode", "bodyid", "targetbodyid")

_FIXED, _TRACK = int(CamLightType.FIXED), int(CamLightType.TRACK)
_TRACKCOM = int(CamLightType.TRACKCOM)
_TARGET, _TARGETCOM = int(CamLightType.TARGETBODY), int(CamLightType.TARGETBODYCOM)


@wp.struct
class Cameras:
  """What cameras are fixed to, follow and look at."""

  mode: wp.array[int]
  bodyid: wp.array[int]
  targetbodyid: wp.array[int]
  cam_pos: wp.array2d[wp.vec3]
  cam_quat: wp.array2d[wp.quat]
  cam_pos0: wp.array2d[wp.vec3]
  cam_poscom0: wp.array2d[wp.vec3]
  cam_mat0: wp.array2d[wp.mat33]


@wp.struct
class Lights:
  """What lights are fixed to, follow and point at."""

  mode: wp.array[int]
  bodyid: wp.array[int]
  targetbodyid: wp.array[int]
  light_pos: wp.array2d[wp.vec3]
  light_dir: wp.array2d[wp.vec3]
  light_pos0: wp.array2d[wp.vec3]
  light_poscom0: wp.array2d[wp.vec3]
  light_dir0: wp.array2d[wp.vec3]


@wp.func
def _aimed(mode: int, target: int) -> int:
  """The mode; without a body to aim at, what shall aim is fixed."""
  out = mode
  if (mode == _TARGET or mode == _TARGETCOM) and target < 0:
    out = _FIXED
  return out


@wp.func
def _aim(
  tree: Tree, nodes: Nodes, com: wp.array2d[wp.vec3], world: int, mode: int, target: int
) -> wp.vec3:
  """The point that is looked at."""
  x = nodes.xpos[world, tree.of_body[target]]
  if mode == _TARGETCOM:
    x = com[world, target]
  return x


@wp.func
def _looking(back: wp.vec3) -> wp.mat33:
  """The axes of a camera whose third one is given: the first is horizontal."""
  z = wp.normalize(back)
  x = wp.normalize(wp.cross(wp.vec3(0.0, 0.0, 1.0), z))
  y = wp.normalize(wp.cross(z, x))
  return wp.mat33(x[0], y[0], z[0], x[1], y[1], z[1], x[2], y[2], z[2])


@wp.kernel(module="unique")
def _camera_pose(
  cameras: Cameras,
  tree: Tree,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
):
  """The poses of the cameras, a thread per world and camera."""
  world, c = wp.tid()
  target = cameras.targetbodyid[c]
  mode = _aimed(cameras.mode[c], target)
  body = cameras.bodyid[c]
  n = tree.of_body[body]
  q = nodes.xquat[world, n]
  x = nodes.xpos[world, n]
  m = cameras.cam_mat0[world % cameras.cam_mat0.shape[0], c]
  if mode == _TRACK:
    x = x + cameras.cam_pos0[world % cameras.cam_pos0.shape[0], c]
  elif mode == _TRACKCOM:
    x = com[world, body] + cameras.cam_poscom0[world % cameras.cam_poscom0.shape[0], c]
  else:
    x = x + rotate(q, cameras.cam_pos[world % cameras.cam_pos.shape[0], c])
    if mode == _TARGET or mode == _TARGETCOM:
      m = _looking(x - _aim(tree, nodes, com, world, mode, target))
    else:
      m = matrix(mul(q, cameras.cam_quat[world % cameras.cam_quat.shape[0], c]))
  xpos[world, c] = x
  xmat[world, c] = m


@wp.kernel(module="unique")
def _light_pose(
  lights: Lights,
  tree: Tree,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  xpos: wp.array2d[wp.vec3],
  xdir: wp.array2d[wp.vec3],
):
  """Where the lights are and point, a thread per world and light."""
  world, i = wp.tid()
  target = lights.targetbodyid[i]
  mode = _aimed(lights.mode[i], target)
  body = lights.bodyid[i]
  n = tree.of_body[body]
  q = nodes.xquat[world, n]
  x = nodes.xpos[world, n]
  u = lights.light_dir0[world % lights.light_dir0.shape[0], i]
  if mode == _TRACK:
    x = x + lights.light_pos0[world % lights.light_pos0.shape[0], i]
  elif mode == _TRACKCOM:
    x = com[world, body] + lights.light_poscom0[world % lights.light_poscom0.shape[0], i]
  else:
    x = x + rotate(q, lights.light_pos[world % lights.light_pos.shape[0], i])
    if mode == _TARGET or mode == _TARGETCOM:
      u = _aim(tree, nodes, com, world, mode, target) - x
    else:
      u = rotate(q, lights.light_dir[world % lights.light_dir.shape[0], i])
  xpos[world, i] = x
  xdir[world, i] = wp.normalize(u)


def record(step) -> None:
  """Records the cameras and lights of a `StageAdjoint` that have a cotangent."""
  tape, m, sweep = step.tape, step.m, step.sweep
  cameras, lights = step.reports(CAMERAS), step.reports(LIGHTS)
  if not cameras and not lights:
    return
  nodes = [sweep.tree, sweep.nodes, record_centres(step)[0]]
  if cameras:
    fixed = {f: getattr(m, f"cam_{f}") for f in _FIXED_TO}
    leaves = step.leaves(*(f"cam_{f}" for f in ("pos", "quat", "pos0", "poscom0", "mat0")))
    inputs = [tape.struct(Cameras, **fixed, **leaves), *nodes]
    tape.output(_camera_pose, inputs=inputs, outputs=cameras)
  if lights:
    fixed = {f: getattr(m, f"light_{f}") for f in _FIXED_TO}
    leaves = step.leaves(*(f"light_{f}" for f in ("pos", "dir", "pos0", "poscom0", "dir0")))
    inputs = [tape.struct(Lights, **fixed, **leaves), *nodes]
    tape.output(_light_pose, inputs=inputs, outputs=lights)
