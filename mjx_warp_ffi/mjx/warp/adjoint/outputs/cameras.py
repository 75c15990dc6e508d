"""Cotangents of the poses of cameras and of the positions and directions of lights, and lenses."""

import math

import warp as wp
from mujoco_warp._src.types import CamLightType, ObjType, ProjectionType

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import matrix, mul, rotate
from mjx_warp_ffi.mjx.warp.adjoint.outputs import subtrees
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

CAMERAS = ("cam_xpos", "cam_xmat")
LIGHTS = ("light_xpos", "light_xdir")
# The model fields that say where cameras and lights are, and how they are turned, without prefix.
_PLACES = ("pos", "pos0", "poscom0")
_DIRECTIONS = dict(cam=("quat", "mat0"), light=("dir", "dir0"))
_HALF_DEGREE = wp.constant(math.pi / 360.0)


@struct
class Mounts:
  """What cameras, or lights, are fixed to, follow and look at."""

  mode: wp.array[int]
  bodyid: wp.array[int]
  targetbodyid: wp.array[int]
  pos: wp.array2d[wp.vec3]
  pos0: wp.array2d[wp.vec3]
  poscom0: wp.array2d[wp.vec3]


@struct
class Views:
  """Where the cameras are, and their axes."""

  xpos: wp.array2d[wp.vec3]
  xmat: wp.array2d[wp.mat33]


@struct
class Lenses:
  """What the cameras make of a direction: model fields."""

  cam_fovy: wp.array2d[float]
  cam_intrinsic: wp.array2d[wp.vec4]
  resolution: wp.array[wp.vec2i]
  sensorsize: wp.array[wp.vec2]
  projection: wp.array[int]


@wp.func
def focal(lens: Lenses, world: int, camera: int) -> wp.vec2:
  """The focal lengths of a camera in perspective, in pixels."""
  across = float(lens.resolution[camera][0])
  high = float(lens.resolution[camera][1])
  size = lens.sensorsize[camera]
  out = wp.vec2(0.0, 0.0)
  if size[0] != 0.0 and size[1] != 0.0:
    y = of_world(lens.cam_intrinsic, world, camera)
    out = wp.vec2(y[0] / size[0] * across, y[1] / size[1] * high)
  else:
    angle = of_world(lens.cam_fovy, world, camera) * _HALF_DEGREE
    f = 0.5 * high / wp.tan(angle)
    out = wp.vec2(f, f)
  return out


@wp.func
def pixel_ray(lens: Lenses, world: int, camera: int, pixel: int):
  """Where the ray through the middle of a pixel starts, and its direction, in a camera's frame."""
  across = lens.resolution[camera][0]
  row = pixel / across
  x = float(pixel - row * across) + 0.5
  y = float(row) + 0.5
  half = 0.5 * wp.vec2(float(across), float(lens.resolution[camera][1]))
  start = wp.vec3(0.0)
  along = wp.vec3(0.0, 0.0, -1.0)
  if lens.projection[camera] == ProjectionType.PERSPECTIVE:
    f = focal(lens, world, camera)
    size = lens.sensorsize[camera]
    middle = half
    if size[0] != 0.0 and size[1] != 0.0:
      c = of_world(lens.cam_intrinsic, world, camera)
      middle = 2.0 * wp.vec2(c[2] / size[0] * half[0], c[3] / size[1] * half[1])
    along = wp.vec3((x - middle[0]) / f[0], (middle[1] - y) / f[1], -1.0)
  else:
    extent = 0.5 * of_world(lens.cam_fovy, world, camera)
    start = extent * wp.vec3(x / half[0] - 1.0, 1.0 - y / half[1], 0.0)
  return start, along


@wp.func
def _mode(mounts: Mounts, i: int) -> int:
  """The mode; without a body to aim at, what shall aim is fixed."""
  mode = mounts.mode[i]
  aims = mode == CamLightType.TARGETBODY or mode == CamLightType.TARGETBODYCOM
  if aims and mounts.targetbodyid[i] < 0:
    mode = int(CamLightType.FIXED)
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
  if mode == CamLightType.TRACK:
    x = x + of_world(mounts.pos0, world, i)
  elif mode == CamLightType.TRACKCOM:
    x = com[world, body] + of_world(mounts.poscom0, world, i)
  else:
    x = x + rotate(nodes.xquat[world, n], of_world(mounts.pos, world, i))
  return x


@wp.func
def _aim(
  mounts: Mounts, tree: Tree, nodes: Nodes, com: wp.array2d[wp.vec3], world: int, i: int
) -> wp.vec3:
  """The point that it looks at."""
  target = mounts.targetbodyid[i]
  x = nodes.xpos[world, tree.of_body[target]]
  if mounts.mode[i] == CamLightType.TARGETBODYCOM:
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
  # Model:
  mounts: Mounts,
  cam_quat: wp.array2d[wp.quat],
  cam_mat0: wp.array2d[wp.mat33],
  # In:
  tree: Tree,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  # Data out:
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
):
  """The poses of the cameras, a thread per world and camera."""
  world, c = wp.tid()
  mode = _mode(mounts, c)
  x = _position(mounts, tree, nodes, com, world, c)
  axes = of_world(cam_mat0, world, c)
  if mode == CamLightType.TARGETBODY or mode == CamLightType.TARGETBODYCOM:
    axes = _looking(x - _aim(mounts, tree, nodes, com, world, c))
  elif mode == CamLightType.FIXED:
    q = nodes.xquat[world, tree.of_body[mounts.bodyid[c]]]
    axes = matrix(mul(q, of_world(cam_quat, world, c)))
  xpos[world, c] = x
  xmat[world, c] = axes


@wp.kernel(module="unique")
def _light_pose(
  # Model:
  mounts: Mounts,
  light_dir: wp.array2d[wp.vec3],
  light_dir0: wp.array2d[wp.vec3],
  # In:
  tree: Tree,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  # Data out:
  xpos: wp.array2d[wp.vec3],
  xdir: wp.array2d[wp.vec3],
):
  """Where the lights are and point, a thread per world and light."""
  world, i = wp.tid()
  mode = _mode(mounts, i)
  x = _position(mounts, tree, nodes, com, world, i)
  u = of_world(light_dir0, world, i)
  if mode == CamLightType.TARGETBODY or mode == CamLightType.TARGETBODYCOM:
    u = _aim(mounts, tree, nodes, com, world, i) - x
  elif mode == CamLightType.FIXED:
    q = nodes.xquat[world, tree.of_body[mounts.bodyid[i]]]
    u = rotate(q, of_world(light_dir, world, i))
  xpos[world, i] = x
  xdir[world, i] = wp.normalize(u)


def record(rec: Recording, ev: Evaluated) -> None:
  """Records the cameras and lights that have a cotangent."""
  cameras, lights = rec.reports(CAMERAS), rec.reports(LIGHTS)
  if not cameras and not lights:
    return
  com = subtrees.record_centres(rec, ev.kin, ev.mech.inertia)[0]
  if cameras:
    rec.tape.output(_camera_pose, inputs=_inputs(rec, ev.kin, kind="cam", com=com), outputs=cameras)
  if lights:
    rec.tape.output(_light_pose, inputs=_inputs(rec, ev.kin, kind="light", com=com), outputs=lights)


def _inputs(rec: Recording, kin: Kinematics, *, kind: str, com: wp.array) -> list:
  """The inputs of the poses of cameras ("cam") or lights ("light")."""
  fixed = {f: getattr(rec.m, f"{kind}_{f}") for f in ("mode", "bodyid", "targetbodyid")}
  leaves = {f: rec.leaf(f"{kind}_{f}") for f in _PLACES}
  turned = [rec.leaf(f"{kind}_{f}") for f in _DIRECTIONS[kind]]
  mounts = rec.tape.struct(Mounts, **fixed, **leaves)
  return [mounts, *turned, kin.tree, kin.nodes, com]


def record_views(rec: Recording, kin: Kinematics, inertia: Inertia) -> Views:
  """Records the poses of the cameras, if there are sensors of any."""
  tape, count, mjm = rec.tape, rec.m.ncam, rec.mjm
  views = [tape.array(max(1, count), dtype=x) for x in (wp.vec3, wp.mat33)]
  if int(ObjType.CAMERA) in (*mjm.sensor_objtype, *mjm.sensor_reftype):
    com = subtrees.record_centres(rec, kin, inertia)[0]
    inputs = _inputs(rec, kin, kind="cam", com=com)
    tape.launch(_camera_pose, (tape.nworld, count), inputs=inputs, outputs=views)
  return tape.struct(Views, xpos=views[0], xmat=views[1])


def make_lenses(rec: Recording) -> Lenses:
  """The lenses of the cameras."""
  fixed = {f: getattr(rec.m, f"cam_{f}") for f in ("resolution", "sensorsize", "projection")}
  return rec.tape.struct(Lenses, **fixed, **rec.leaves("cam_fovy", "cam_intrinsic"))


OUTPUT = Output(
  parameters=(
    *(f"{kind}_{name}" for kind in _DIRECTIONS for name in (*_PLACES, *_DIRECTIONS[kind])),
    *("cam_fovy", "cam_intrinsic"),
    *subtrees.LEAVES,
  ),
  reports=(*CAMERAS, *LIGHTS),
  record=record,
)
