"""Cotangents of the poses of cameras and of the positions and directions of lights."""

import warp as wp
from mujoco_warp._src.types import CamLightType

from mjx_warp_ffi.mjx.warp.adjoint.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.outputs import record_centres
from mjx_warp_ffi.mjx.warp.adjoint.spatial import matrix, mul, rotate

CAMERAS = ("cam_xpos", "cam_xmat")
LIGHTS = ("light_xpos", "light_xdir")
_FIXED, _TRACK = int(CamLightType.FIXED), int(CamLightType.TRACK)
_TRACKCOM = int(CamLightType.TRACKCOM)
_TARGET, _TARGETCOM = int(CamLightType.TARGETBODY), int(CamLightType.TARGETBODYCOM)


@wp.struct
class Mounts:
  """What cameras, or lights, are fixed to, follow and look at."""

  mode: wp.array[int]
  bodyid: wp.array[int]
  targetbodyid: wp.array[int]
  pos: wp.array2d[wp.vec3]
  pos0: wp.array2d[wp.vec3]
  poscom0: wp.array2d[wp.vec3]


@wp.func
def _mode(mounts: Mounts, i: int) -> int:
  """The mode; without a body to aim at, what shall aim is fixed."""
  mode = mounts.mode[i]
  if (mode == _TARGET or mode == _TARGETCOM) and mounts.targetbodyid[i] < 0:
    mode = _FIXED
  return mode


@wp.func
def _position(
  mounts: Mounts, tree: Tree, nodes: Nodes, com: wp.array2d[wp.vec3], world: int, i: int
) -> wp.vec3:
  """Where it is."""
  mode = _mode(mounts, i)
  body = mounts.bodyid[i]
  n = tree.of_body[body]
  x = nodes.xpos[world, n]
  if mode == _TRACK:
    x = x + mounts.pos0[world % mounts.pos0.shape[0], i]
  elif mode == _TRACKCOM:
    x = com[world, body] + mounts.poscom0[world % mounts.poscom0.shape[0], i]
  else:
    x = x + rotate(nodes.xquat[world, n], mounts.pos[world % mounts.pos.shape[0], i])
  return x


@wp.func
def _aim(
  mounts: Mounts, tree: Tree, nodes: Nodes, com: wp.array2d[wp.vec3], world: int, i: int
) -> wp.vec3:
  """The point that it looks at."""
  target = mounts.targetbodyid[i]
  x = nodes.xpos[world, tree.of_body[target]]
  if mounts.mode[i] == _TARGETCOM:
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
  mounts: Mounts,
  cam_quat: wp.array2d[wp.quat],
  cam_mat0: wp.array2d[wp.mat33],
  tree: Tree,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
):
  """The poses of the cameras, a thread per world and camera."""
  world, c = wp.tid()
  mode = _mode(mounts, c)
  x = _position(mounts, tree, nodes, com, world, c)
  axes = cam_mat0[world % cam_mat0.shape[0], c]
  if mode == _TARGET or mode == _TARGETCOM:
    axes = _looking(x - _aim(mounts, tree, nodes, com, world, c))
  elif mode == _FIXED:
    q = nodes.xquat[world, tree.of_body[mounts.bodyid[c]]]
    axes = matrix(mul(q, cam_quat[world % cam_quat.shape[0], c]))
  xpos[world, c] = x
  xmat[world, c] = axes


@wp.kernel(module="unique")
def _light_pose(
  mounts: Mounts,
  light_dir: wp.array2d[wp.vec3],
  light_dir0: wp.array2d[wp.vec3],
  tree: Tree,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  xpos: wp.array2d[wp.vec3],
  xdir: wp.array2d[wp.vec3],
):
  """Where the lights are and point, a thread per world and light."""
  world, i = wp.tid()
  mode = _mode(mounts, i)
  x = _position(mounts, tree, nodes, com, world, i)
  u = light_dir0[world % light_dir0.shape[0], i]
  if mode == _TARGET or mode == _TARGETCOM:
    u = _aim(mounts, tree, nodes, com, world, i) - x
  elif mode == _FIXED:
    q = nodes.xquat[world, tree.of_body[mounts.bodyid[i]]]
    u = rotate(q, light_dir[world % light_dir.shape[0], i])
  xpos[world, i] = x
  xdir[world, i] = wp.normalize(u)


def record(step) -> None:
  """Records the cameras and lights of a `StageAdjoint` that have a cotangent."""
  cameras, lights = step.reports(CAMERAS), step.reports(LIGHTS)
  if not cameras and not lights:
    return
  nodes = [step.sweep.tree, step.sweep.nodes, record_centres(step)[0]]
  kinds = (
    (_camera_pose, "cam", ("quat", "mat0"), cameras),
    (_light_pose, "light", ("dir", "dir0"), lights),
  )
  for kernel, kind, names, reports in kinds:
    if reports:
      fixed = {f: getattr(step.m, f"{kind}_{f}") for f in ("mode", "bodyid", "targetbodyid")}
      leaves = {f: step.leaf(f"{kind}_{f}") for f in ("pos", "pos0", "poscom0")}
      inputs = [step.tape.struct(Mounts, **fixed, **leaves)]
      inputs += [step.leaf(f"{kind}_{f}") for f in names]
      step.tape.output(kernel, inputs=[*inputs, *nodes], outputs=reports)
