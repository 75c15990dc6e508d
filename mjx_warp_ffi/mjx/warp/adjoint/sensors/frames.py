"""Cotangents of sensordata: positions and velocities of joints and frames, and accelerations.

A sensor is a function of the nodes at the state before the step. Those of accelerations depend on
qacc too, so their adjoint runs before the solves as well: see `StageAdjoint`.
"""

import functools
from collections.abc import Callable

import mujoco
import warp as wp
from mujoco_warp._src.types import DataType, ObjType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates, make_rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  matrix,
  mul,
  point_acceleration,
  point_velocity,
  rotate,
  unit_at,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.outputs import cameras, subtrees
from mjx_warp_ffi.mjx.warp.adjoint.sensors import delayed_samples, rangefinders
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.sensed import of_kinds

JOINTPOS, JOINTVEL = int(SensorType.JOINTPOS), int(SensorType.JOINTVEL)
BALLQUAT, BALLANGVEL = int(SensorType.BALLQUAT), int(SensorType.BALLANGVEL)
TENDONPOS, TENDONVEL = int(SensorType.TENDONPOS), int(SensorType.TENDONVEL)
ACTUATORPOS, ACTUATORVEL = int(SensorType.ACTUATORPOS), int(SensorType.ACTUATORVEL)
FRAMEPOS, FRAMEQUAT = int(SensorType.FRAMEPOS), int(SensorType.FRAMEQUAT)
FRAMEXAXIS, FRAMEYAXIS = int(SensorType.FRAMEXAXIS), int(SensorType.FRAMEYAXIS)
FRAMEZAXIS = int(SensorType.FRAMEZAXIS)
FRAMELINVEL, FRAMEANGVEL = int(SensorType.FRAMELINVEL), int(SensorType.FRAMEANGVEL)
FRAMELINACC, FRAMEANGACC = int(SensorType.FRAMELINACC), int(SensorType.FRAMEANGACC)
VELOCIMETER, GYRO = int(SensorType.VELOCIMETER), int(SensorType.GYRO)
ACCELEROMETER, MAGNETOMETER = int(SensorType.ACCELEROMETER), int(SensorType.MAGNETOMETER)
SUBTREECOM, SUBTREELINVEL = int(SensorType.SUBTREECOM), int(SensorType.SUBTREELINVEL)
SUBTREEANGMOM, CLOCK = int(SensorType.SUBTREEANGMOM), int(SensorType.CLOCK)

_JOINTS = (JOINTPOS, JOINTVEL, BALLQUAT, BALLANGVEL)
_RATES = (TENDONPOS, TENDONVEL, ACTUATORPOS, ACTUATORVEL)
_FRAMES = (FRAMEPOS, FRAMEQUAT, FRAMEXAXIS, FRAMEYAXIS, FRAMEZAXIS, FRAMELINVEL, FRAMEANGVEL)
_FRAMES += (VELOCIMETER, GYRO, MAGNETOMETER)
_ACCELERATIONS = (FRAMELINACC, FRAMEANGACC, ACCELEROMETER)
_SUBTREES = (SUBTREECOM, SUBTREELINVEL, SUBTREEANGMOM)
KINDS = (*_JOINTS, *_RATES, *_FRAMES, *_ACCELERATIONS, *_SUBTREES, CLOCK)
_REAL, _POSITIVE = int(DataType.REAL), int(DataType.POSITIVE)
_BODY, _XBODY = int(ObjType.BODY), int(ObjType.XBODY)
_GEOM, _SITE, _CAMERA = int(ObjType.GEOM), int(ObjType.SITE), int(ObjType.CAMERA)


@wp.struct
class Sensors:
  """What each sensor measures."""

  which: wp.array[int]
  type: wp.array[int]
  datatype: wp.array[int]
  objtype: wp.array[int]
  objid: wp.array[int]
  reftype: wp.array[int]
  refid: wp.array[int]
  adr: wp.array[int]
  dim: wp.array[int]
  cutoff: wp.array[float]
  jnt_qposadr: wp.array[int]
  jnt_dofadr: wp.array[int]
  magnetic: wp.array[wp.vec3]
  gravity: wp.array[wp.vec3]


@wp.struct
class Objects:
  """Frames fixed to bodies, model fields, and the poses of cameras, which may track or aim."""

  body_ipos: wp.array2d[wp.vec3]
  body_iquat: wp.array2d[wp.quat]
  geom_bodyid: wp.array[int]
  geom_pos: wp.array2d[wp.vec3]
  geom_quat: wp.array2d[wp.quat]
  site_bodyid: wp.array[int]
  site_pos: wp.array2d[wp.vec3]
  site_quat: wp.array2d[wp.quat]
  cam_bodyid: wp.array[int]
  cam_pos: wp.array2d[wp.vec3]
  cam_quat: wp.array2d[wp.quat]
  cam_xpos: wp.array2d[wp.vec3]
  cam_xmat: wp.array2d[wp.mat33]


@wp.func
def weigh(s: Sensors, world: int, k: int, x: wp.vec4, cot: wp.array2d[float]) -> float:
  """The cotangent of a sensor times its value, without the components at the cutoff."""
  p = wp.float32(0.0)
  cutoff = s.cutoff[k]
  kind = s.datatype[k]
  for i in range(4):
    if i < s.dim[k]:
      free = cutoff <= 0.0 or (kind != _REAL and kind != _POSITIVE)
      free = free or (kind == _REAL and x[i] > -cutoff and x[i] < cutoff)
      free = free or (kind == _POSITIVE and x[i] < cutoff)
      if free:
        p += cot[world, s.adr[k] + i] * x[i]
  return p


@wp.func
def _vec4(x: wp.vec3) -> wp.vec4:
  return wp.vec4(x[0], x[1], x[2], 0.0)


@wp.func
def _local_frame(o: Objects, world: int, kind: int, i: int):
  """The body of an object, and its frame in that of the body."""
  body = i
  pos = wp.vec3(0.0)
  quat = wp.quat(1.0, 0.0, 0.0, 0.0)
  if kind == _BODY:
    pos = of_world(o.body_ipos, world, i)
    quat = of_world(o.body_iquat, world, i)
  elif kind == _GEOM:
    body = o.geom_bodyid[i]
    pos = of_world(o.geom_pos, world, i)
    quat = of_world(o.geom_quat, world, i)
  elif kind == _SITE:
    body = o.site_bodyid[i]
    pos = of_world(o.site_pos, world, i)
    quat = of_world(o.site_quat, world, i)
  elif kind == _CAMERA:
    body = o.cam_bodyid[i]
    pos = of_world(o.cam_pos, world, i)
    quat = of_world(o.cam_quat, world, i)
  elif kind != _XBODY:
    body = 0
  return body, pos, quat


@wp.func
def object_frame(o: Objects, tree: Tree, nodes: Nodes, world: int, kind: int, i: int):
  """The node of an object, the object from the origin of that node, and its axes."""
  body, local, turn = _local_frame(o, world, kind, i)
  n = tree.of_body[body]
  q = nodes.xquat[world, n]
  r = rotate(q, local)
  axes = matrix(mul(q, turn))
  if kind == _CAMERA:
    r = o.cam_xpos[world, i] - nodes.xpos[world, n]
    axes = o.cam_xmat[world, i]
  return n, r, axes


@wp.func
def _quaternion(o: Objects, tree: Tree, nodes: Nodes, world: int, kind: int, i: int) -> wp.quat:
  """The orientation of an object, that of a camera as if it did not track."""
  body, _local, turn = _local_frame(o, world, kind, i)
  return mul(nodes.xquat[world, tree.of_body[body]], turn)


@wp.func
def _axis(kind: int) -> wp.vec3:
  """The axis that a frame sensor reports."""
  x = wp.vec3(1.0, 0.0, 0.0)
  if kind == FRAMEYAXIS:
    x = wp.vec3(0.0, 1.0, 0.0)
  elif kind == FRAMEZAXIS:
    x = wp.vec3(0.0, 0.0, 1.0)
  return x


@wp.kernel(module="unique")
def frame_power(
  s: Sensors,
  o: Objects,
  tree: Tree,
  nodes: Nodes,
  cot: wp.array2d[float],
  power: wp.array2d[float],
):
  """Positions and velocities of frames, a thread per world and sensor of that kind."""
  world, it = wp.tid()
  k = s.which[it]
  kind = s.type[k]
  n, r, axes = object_frame(o, tree, nodes, world, s.objtype[k], s.objid[k])
  back = wp.transpose(axes)
  x = nodes.xpos[world, n] + r
  f = nodes.vel[world, n]
  v = point_velocity(f, r)
  om = wp.spatial_top(f)
  y = wp.vec4(0.0)
  if kind == VELOCIMETER:
    y = _vec4(back @ v)
  elif kind == GYRO:
    y = _vec4(back @ om)
  elif kind == MAGNETOMETER:
    y = _vec4(back @ of_world(s.magnetic, world))
  elif kind == FRAMEQUAT:
    z = _quaternion(o, tree, nodes, world, s.objtype[k], s.objid[k])
    if s.refid[k] >= 0:
      z = mul(conj(_quaternion(o, tree, nodes, world, s.reftype[k], s.refid[k])), z)
    y = wp.vec4(z[0], z[1], z[2], z[3])
  else:
    x1 = wp.vec3(0.0)
    back1 = wp.identity(n=3, dtype=float)
    if s.refid[k] >= 0:
      n1, r1, axes1 = object_frame(o, tree, nodes, world, s.reftype[k], s.refid[k])
      back1 = wp.transpose(axes1)
      x1 = nodes.xpos[world, n1] + r1
      f1 = nodes.vel[world, n1]
      v = v - point_velocity(f1, r1) - wp.cross(wp.spatial_top(f1), x - x1)
      om = om - wp.spatial_top(f1)
    if kind == FRAMEPOS:
      y = _vec4(back1 @ (x - x1))
    elif kind == FRAMELINVEL:
      y = _vec4(back1 @ v)
    elif kind == FRAMEANGVEL:
      y = _vec4(back1 @ om)
    else:
      y = _vec4(back1 @ (axes @ _axis(kind)))
  power[world, it] = weigh(s, world, k, y, cot)


@wp.kernel(module="unique")
def acceleration_power(
  s: Sensors,
  o: Objects,
  tree: Tree,
  nodes: Nodes,
  cot: wp.array2d[float],
  power: wp.array2d[float],
):
  """Accelerations of frames; gravity counts as an acceleration upwards."""
  world, it = wp.tid()
  k = s.which[it]
  kind = s.type[k]
  n, r, axes = object_frame(o, tree, nodes, world, s.objtype[k], s.objid[k])
  fa = nodes.acc[world, n]
  y = _vec4(wp.spatial_top(fa))
  if kind != FRAMEANGACC:
    a = point_acceleration(fa, wp.spatial_top(nodes.vel[world, n]), r)
    a = a - of_world(s.gravity, world)
    if kind == ACCELEROMETER:
      a = wp.transpose(axes) @ a
    y = _vec4(a)
  power[world, it] = weigh(s, world, k, y, cot)


@wp.kernel(module="unique")
def joint_power(
  s: Sensors,
  state: State,
  tendons: Rates,
  actuators: Rates,
  cot: wp.array2d[float],
  power: wp.array2d[float],
):
  """Coordinates and velocities of joints, tendons and actuators."""
  world, it = wp.tid()
  k = s.which[it]
  kind = s.type[k]
  i = s.objid[k]
  y = wp.vec4(0.0)
  if kind == JOINTPOS:
    y = wp.vec4(state.qpos[world, s.jnt_qposadr[i]], 0.0, 0.0, 0.0)
  elif kind == JOINTVEL:
    y = wp.vec4(state.qvel[world, s.jnt_dofadr[i]], 0.0, 0.0, 0.0)
  elif kind == BALLQUAT:
    q = unit_at(state.qpos, world, s.jnt_qposadr[i])
    y = wp.vec4(q[0], q[1], q[2], q[3])
  elif kind == BALLANGVEL:
    y = _vec4(vec_at(state.qvel, world, s.jnt_dofadr[i]))
  elif kind == TENDONPOS:
    y = wp.vec4(tendons.length[world, i], 0.0, 0.0, 0.0)
  elif kind == TENDONVEL:
    y = wp.vec4(tendons.velocity[world, i], 0.0, 0.0, 0.0)
  elif kind == ACTUATORPOS:
    y = wp.vec4(actuators.length[world, i], 0.0, 0.0, 0.0)
  elif kind == ACTUATORVEL:
    y = wp.vec4(actuators.velocity[world, i], 0.0, 0.0, 0.0)
  power[world, it] = weigh(s, world, k, y, cot)


@wp.kernel(module="unique")
def subtree_power(
  s: Sensors,
  com: wp.array2d[wp.vec3],
  linvel: wp.array2d[wp.vec3],
  angmom: wp.array2d[wp.vec3],
  cot: wp.array2d[float],
  power: wp.array2d[float],
):
  """Centres of mass, their velocities, and angular momenta."""
  world, it = wp.tid()
  k = s.which[it]
  i = s.objid[k]
  x = com[world, i]
  if s.type[k] == SUBTREELINVEL:
    x = linvel[world, i]
  elif s.type[k] == SUBTREEANGMOM:
    x = angmom[world, i]
  power[world, it] = weigh(s, world, k, _vec4(x), cot)


def make_sensors(step) -> Callable[..., Sensors]:
  """A maker of `Sensors` of a `StageAdjoint`, which lacks `which`."""
  m = step.m
  names = "type datatype objtype objid reftype refid adr dim cutoff".split()
  fixed = {name: getattr(m, f"sensor_{name}") for name in names}
  fixed |= dict(
    jnt_qposadr=m.jnt_qposadr, jnt_dofadr=m.jnt_dofadr, magnetic=step.leaf("opt.magnetic")
  )
  return functools.partial(step.tape.struct, Sensors, **fixed, gravity=step.gravity)


def _record_objects(step) -> Objects:
  """Records the frames of a `StageAdjoint`."""
  bodies = {f: getattr(step.m, f) for f in ("geom_bodyid", "site_bodyid", "cam_bodyid")}
  leaves = ("body_ipos", "body_iquat", "geom_pos", "geom_quat", "site_pos", "site_quat")
  bodies |= step.leaves(*leaves, "cam_pos", "cam_quat")
  views = cameras.record_views(step)
  names = {f"cam_{f}": step.tape.field(views, f) for f in ("xpos", "xmat")}
  return step.tape.struct(Objects, **bodies, **names)


def has_accelerations(mjm: mujoco.MjModel) -> bool:
  """Whether sensors of a model depend on qacc."""
  return bool(len(of_kinds(mjm, _ACCELERATIONS)))


def record_accelerations(step) -> None:
  """Records the sensors of acceleration, right after the sweep."""
  which = of_kinds(step.mjm, _ACCELERATIONS)
  sensors = make_sensors(step)(which=step.constant(which))
  inputs = [sensors, _record_objects(step), step.sweep.tree, step.sweep.nodes]
  inputs.append(step.cotangents["sensordata"])
  step.tape.power(acceleration_power, (step.tape.nworld, len(which)), inputs=inputs)


def record(step) -> None:
  """Records the other sensors, after tendons and actuators."""
  tape, sweep, cot = step.tape, step.sweep, step.cotangents["sensordata"]
  make = make_sensors(step)
  delayed_samples.record(step)
  rangefinders.record(step)
  which = of_kinds(step.mjm, _FRAMES)
  if len(which):
    frames = [_record_objects(step), sweep.tree, sweep.nodes]
    inputs = [make(which=step.constant(which)), *frames, cot]
    tape.power(frame_power, (tape.nworld, len(which)), inputs=inputs)
  which = of_kinds(step.mjm, _JOINTS + _RATES)
  if len(which):
    none = make_rates(tape, nfield=sweep.fields.count, count=1)
    inputs = [make(which=step.constant(which)), step.state, step.tendon_rates or none]
    inputs += [step.actuator_rates or none, cot]
    tape.power(joint_power, (tape.nworld, len(which)), inputs=inputs)
  which = of_kinds(step.mjm, _SUBTREES)
  if len(which):
    shape = step.m.nbody
    com, inputs = subtrees.record_centres(step)
    linvel, angmom = (tape.array(shape, dtype=wp.vec3) for _ in range(2))
    results = [linvel, angmom, tape.array(shape, dtype=wp.spatial_vector)]
    dim = (tape.nworld, shape)
    tape.launch(subtrees.subtree_velocity, dim, inputs=[*inputs, com], outputs=results)
    inputs = [make(which=step.constant(which)), com, linvel, angmom, cot]
    tape.power(subtree_power, (tape.nworld, len(which)), inputs=inputs)
