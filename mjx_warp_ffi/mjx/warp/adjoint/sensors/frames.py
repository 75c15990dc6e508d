"""Cotangents of sensordata: positions and velocities of joints and frames, and accelerations.

A sensor is a function of the nodes at the state before the step. Those of accelerations depend on
qacc too, so their adjoint runs before the linear solves as well, which take its result.
"""

from collections.abc import Callable

import mujoco
import numpy as np
import warp as wp
from mujoco_warp._src.types import DataType, ObjType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates, make_rates
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
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
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording, of_kinds
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

_JOINTS = (SensorType.JOINTPOS, SensorType.JOINTVEL, SensorType.BALLQUAT, SensorType.BALLANGVEL)
_LENGTHS = (SensorType.TENDONPOS, SensorType.TENDONVEL)
_LENGTHS += (SensorType.ACTUATORPOS, SensorType.ACTUATORVEL)
_FRAMES = (SensorType.FRAMEPOS, SensorType.FRAMEQUAT, SensorType.FRAMEXAXIS, SensorType.FRAMEYAXIS)
_FRAMES += (SensorType.FRAMEZAXIS, SensorType.FRAMELINVEL, SensorType.FRAMEANGVEL)
_FRAMES += (SensorType.VELOCIMETER, SensorType.GYRO, SensorType.MAGNETOMETER)
_ACCELERATIONS = (SensorType.FRAMELINACC, SensorType.FRAMEANGACC, SensorType.ACCELEROMETER)
_SUBTREES = (SensorType.SUBTREECOM, SensorType.SUBTREELINVEL, SensorType.SUBTREEANGMOM)
# They have no kernel. The time is given, and whether a point is inside a site is a step function.
_CONSTANT = (SensorType.CLOCK, SensorType.INSIDESITE)
_OBJECT_LEAVES = ("body_ipos", "body_iquat", "geom_pos", "geom_quat", "site_pos", "site_quat")
_OBJECT_LEAVES += ("cam_pos", "cam_quat")


@struct
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


@struct
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
      free = cutoff <= 0.0 or (kind != DataType.REAL and kind != DataType.POSITIVE)
      free = free or (kind == DataType.REAL and x[i] > -cutoff and x[i] < cutoff)
      free = free or (kind == DataType.POSITIVE and x[i] < cutoff)
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
  if kind == ObjType.BODY:
    pos = of_world(o.body_ipos, world, i)
    quat = of_world(o.body_iquat, world, i)
  elif kind == ObjType.GEOM:
    body = o.geom_bodyid[i]
    pos = of_world(o.geom_pos, world, i)
    quat = of_world(o.geom_quat, world, i)
  elif kind == ObjType.SITE:
    body = o.site_bodyid[i]
    pos = of_world(o.site_pos, world, i)
    quat = of_world(o.site_quat, world, i)
  elif kind == ObjType.CAMERA:
    body = o.cam_bodyid[i]
    pos = of_world(o.cam_pos, world, i)
    quat = of_world(o.cam_quat, world, i)
  elif kind != ObjType.XBODY:
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
  if kind == ObjType.CAMERA:
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
  if kind == SensorType.FRAMEYAXIS:
    x = wp.vec3(0.0, 1.0, 0.0)
  elif kind == SensorType.FRAMEZAXIS:
    x = wp.vec3(0.0, 0.0, 1.0)
  return x


@wp.kernel(module="unique")
def frame_power(
  # In:
  s: Sensors,
  o: Objects,
  tree: Tree,
  nodes: Nodes,
  cot: wp.array2d[float],
  # Out:
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
  if kind == SensorType.VELOCIMETER:
    y = _vec4(back @ v)
  elif kind == SensorType.GYRO:
    y = _vec4(back @ om)
  elif kind == SensorType.MAGNETOMETER:
    y = _vec4(back @ of_world(s.magnetic, world))
  elif kind == SensorType.FRAMEQUAT:
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
    if kind == SensorType.FRAMEPOS:
      y = _vec4(back1 @ (x - x1))
    elif kind == SensorType.FRAMELINVEL:
      y = _vec4(back1 @ v)
    elif kind == SensorType.FRAMEANGVEL:
      y = _vec4(back1 @ om)
    else:
      y = _vec4(back1 @ (axes @ _axis(kind)))
  power[world, it] = weigh(s, world, k, y, cot)


@wp.kernel(module="unique")
def acceleration_power(
  # In:
  s: Sensors,
  o: Objects,
  tree: Tree,
  nodes: Nodes,
  cot: wp.array2d[float],
  # Out:
  power: wp.array2d[float],
):
  """Accelerations of frames; gravity counts as an acceleration upwards."""
  world, it = wp.tid()
  k = s.which[it]
  kind = s.type[k]
  n, r, axes = object_frame(o, tree, nodes, world, s.objtype[k], s.objid[k])
  fa = nodes.acc[world, n]
  y = _vec4(wp.spatial_top(fa))
  if kind != SensorType.FRAMEANGACC:
    a = point_acceleration(fa, wp.spatial_top(nodes.vel[world, n]), r)
    a = a - of_world(s.gravity, world)
    if kind == SensorType.ACCELEROMETER:
      a = wp.transpose(axes) @ a
    y = _vec4(a)
  power[world, it] = weigh(s, world, k, y, cot)


@wp.kernel(module="unique")
def joint_power(
  # In:
  s: Sensors,
  state: State,
  tendons: Rates,
  actuators: Rates,
  cot: wp.array2d[float],
  # Out:
  power: wp.array2d[float],
):
  """Coordinates and velocities of joints, tendons and actuators."""
  world, it = wp.tid()
  k = s.which[it]
  kind = s.type[k]
  i = s.objid[k]
  y = wp.vec4(0.0)
  if kind == SensorType.JOINTPOS:
    y = wp.vec4(state.qpos[world, s.jnt_qposadr[i]], 0.0, 0.0, 0.0)
  elif kind == SensorType.JOINTVEL:
    y = wp.vec4(state.qvel[world, s.jnt_dofadr[i]], 0.0, 0.0, 0.0)
  elif kind == SensorType.BALLQUAT:
    q = unit_at(state.qpos, world, s.jnt_qposadr[i])
    y = wp.vec4(q[0], q[1], q[2], q[3])
  elif kind == SensorType.BALLANGVEL:
    y = _vec4(vec_at(state.qvel, world, s.jnt_dofadr[i]))
  elif kind == SensorType.TENDONPOS:
    y = wp.vec4(tendons.length[world, i], 0.0, 0.0, 0.0)
  elif kind == SensorType.TENDONVEL:
    y = wp.vec4(tendons.velocity[world, i], 0.0, 0.0, 0.0)
  elif kind == SensorType.ACTUATORPOS:
    y = wp.vec4(actuators.length[world, i], 0.0, 0.0, 0.0)
  elif kind == SensorType.ACTUATORVEL:
    y = wp.vec4(actuators.velocity[world, i], 0.0, 0.0, 0.0)
  power[world, it] = weigh(s, world, k, y, cot)


@wp.kernel(module="unique")
def subtree_power(
  # In:
  s: Sensors,
  com: wp.array2d[wp.vec3],
  linvel: wp.array2d[wp.vec3],
  angmom: wp.array2d[wp.vec3],
  cot: wp.array2d[float],
  # Out:
  power: wp.array2d[float],
):
  """Centres of mass, their velocities, and angular momenta."""
  world, it = wp.tid()
  k = s.which[it]
  i = s.objid[k]
  x = com[world, i]
  if s.type[k] == SensorType.SUBTREELINVEL:
    x = linvel[world, i]
  elif s.type[k] == SensorType.SUBTREEANGMOM:
    x = angmom[world, i]
  power[world, it] = weigh(s, world, k, _vec4(x), cot)


def make_sensors(rec: Recording, mech: Mechanics) -> Callable[[np.ndarray], Sensors]:
  """A maker of `Sensors`, to which only `which` of them is to be told."""
  m = rec.m
  names = "type datatype objtype objid reftype refid adr dim cutoff".split()
  fixed = {name: getattr(m, f"sensor_{name}") for name in names}
  fixed |= rec.fixed("jnt_qposadr", "jnt_dofadr") | rec.leaves("opt.magnetic")

  def make(which: np.ndarray) -> Sensors:
    chosen = rec.constant(which)
    return rec.tape.struct(Sensors, which=chosen, **fixed, gravity=mech.gravity)

  return make


def _record_objects(rec: Recording, kin: Kinematics, mech: Mechanics) -> Objects:
  """Records the frames of what sensors are attached to."""
  views = cameras.record_views(rec, kin, mech.inertia)
  poses = {f"cam_{f}": rec.tape.field(views, f) for f in ("xpos", "xmat")}
  fixed = rec.fixed("geom_bodyid", "site_bodyid", "cam_bodyid")
  return rec.tape.struct(Objects, **fixed, **rec.leaves(*_OBJECT_LEAVES), **poses)


def has_accelerations(mjm: mujoco.MjModel) -> bool:
  """Whether sensors of a model depend on qacc."""
  return bool(len(of_kinds(mjm, _ACCELERATIONS)))


def record_accelerations(rec: Recording, kin: Kinematics, mech: Mechanics) -> None:
  """Records the sensors of acceleration, right after the sweep."""
  which = of_kinds(rec.mjm, _ACCELERATIONS)
  sensors = make_sensors(rec, mech)(which)
  inputs = [sensors, _record_objects(rec, kin, mech), kin.tree, kin.nodes]
  inputs.append(rec.cotangents["sensordata"])
  rec.tape.power(acceleration_power, (rec.tape.nworld, len(which)), inputs=inputs)


def record(rec: Recording, ev: Evaluated) -> None:
  """Records the other sensors, after tendons and actuators."""
  tape, kin, cot = rec.tape, ev.kin, rec.cotangents["sensordata"]
  make = make_sensors(rec, ev.mech)
  which = of_kinds(rec.mjm, _FRAMES)
  if len(which):
    frames = [_record_objects(rec, kin, ev.mech), kin.tree, kin.nodes]
    inputs = [make(which), *frames, cot]
    tape.power(frame_power, (tape.nworld, len(which)), inputs=inputs)
  which = of_kinds(rec.mjm, _JOINTS + _LENGTHS)
  if len(which):
    none = make_rates(tape, nfield=kin.velocities.count, count=1)
    inputs = [make(which), kin.state, ev.lengths.tendons or none]
    inputs += [ev.lengths.actuators or none, cot]
    tape.power(joint_power, (tape.nworld, len(which)), inputs=inputs)
  which = of_kinds(rec.mjm, _SUBTREES)
  if len(which):
    _record_subtrees(rec, ev, make(which), count=len(which))


def _record_subtrees(rec: Recording, ev: Evaluated, sensors: Sensors, *, count: int) -> None:
  """Records the sensors of subtrees: of their centres of mass, velocities and momenta."""
  tape, nbody, cot = rec.tape, rec.m.nbody, rec.cotangents["sensordata"]
  com, inputs = subtrees.record_centres(rec, ev.kin, ev.mech.inertia)
  linvel, angmom = (tape.array(nbody, dtype=wp.vec3) for _ in range(2))
  results = [linvel, angmom, tape.array(nbody, dtype=wp.spatial_vector)]
  dim = (tape.nworld, nbody)
  tape.launch(subtrees.subtree_velocity, dim, inputs=[*inputs, com], outputs=results)
  inputs = [sensors, com, linvel, angmom, cot]
  tape.power(subtree_power, (tape.nworld, count), inputs=inputs)


OUTPUT = Output(
  parameters=(*_OBJECT_LEAVES, "opt.magnetic"),
  reports=("sensordata",),
  sensors=(*_JOINTS, *_LENGTHS, *_FRAMES, *_ACCELERATIONS, *_SUBTREES, *_CONSTANT),
  record=record,
)
