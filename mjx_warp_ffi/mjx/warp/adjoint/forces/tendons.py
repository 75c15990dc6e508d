"""Lengths of tendons and their rates along every carried velocity, and the power of their springs.

A spatial tendon is a sum of straight segments between sites, each divided by its pulley; a fixed
one a sum of joint coordinates. Each writes its own values, and a tendon adds up its segments.
"""

import functools

import numpy as np
import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.warp.adjoint.forces import tendon_wraps
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import (
  Rates,
  Slopes,
  further_force,
  graded,
  make_rates,
  not_positive,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected, reflected_on
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Sites, site_arm
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  magnitude,
  point_acceleration,
  point_velocity,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried, Fields
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world


@wp.struct
class Segments:
  """The straight pieces of spatial tendons."""

  site0: wp.array[int]
  site1: wp.array[int]
  scale: wp.array[float]


@wp.struct
class Paths:
  """Which joints and segments make up each tendon."""

  joint_adr: wp.array[int]
  joint_num: wp.array[int]
  joint_id: wp.array[int]
  joint_coef: wp.array[float]
  jnt_qposadr: wp.array[int]
  jnt_dofadr: wp.array[int]
  segment_adr: wp.array[int]
  segment_num: wp.array[int]
  bent_adr: wp.array[int]
  bent_num: wp.array[int]


@wp.struct
class Tendons:
  """Springs, dampers and armatures of tendons: model fields."""

  timestep: wp.array[float]
  tendon_actuatorid: wp.array[int]  # see `reflected`
  tendon_stiffness: wp.array2d[float]
  tendon_stiffnesspoly: wp.array2d[wp.vec2]
  tendon_lengthspring: wp.array2d[wp.vec2]
  tendon_damping: wp.array2d[float]
  tendon_dampingpoly: wp.array2d[wp.vec2]
  tendon_armature: wp.array2d[float]


@functools.cache
def segment_kernel(nfield: int) -> wp.Kernel:
  """Straight segments between two sites, a thread per world and segment."""

  @wp.kernel(module="unique")
  def segment(tree: Tree, nodes: Nodes, sites: Sites, segments: Segments, out: Rates):
    world, i = wp.tid()
    s0 = segments.site0[i]
    s1 = segments.site1[i]
    n0 = tree.of_body[sites.site_bodyid[s0]]
    n1 = tree.of_body[sites.site_bodyid[s1]]
    r0 = site_arm(sites, tree, nodes, world, s0)
    r1 = site_arm(sites, tree, nodes, world, s1)
    scale = segments.scale[i]
    dif = nodes.xpos[world, n1] + r1 - nodes.xpos[world, n0] - r0
    length = wp.float32(0.0)
    u = wp.vec3(1.0, 0.0, 0.0)  # MuJoCo's direction of a segment without length
    d2 = wp.dot(dif, dif)
    if d2 > 1.0e-24:
      length = wp.sqrt(d2)
      u = dif / length
    out.length[world, i] = scale * length
    v = point_velocity(nodes.vel[world, n1], r1) - point_velocity(nodes.vel[world, n0], r0)
    along = wp.dot(u, v)
    out.velocity[world, i] = scale * along
    second = wp.float32(0.0)
    if length > 0.0:
      a = point_acceleration(nodes.acc[world, n1], wp.spatial_top(nodes.vel[world, n1]), r1)
      a = a - point_acceleration(nodes.acc[world, n0], wp.spatial_top(nodes.vel[world, n0]), r0)
      turning = (wp.dot(v, v) - along * along) / length
      second = scale * (wp.dot(u, a) + turning)
    out.acceleration[world, i] = second
    for f in range(wp.static(nfield)):
      x1 = point_velocity(nodes.fields[f, world, n1], r1)
      x0 = point_velocity(nodes.fields[f, world, n0], r0)
      out.fields[f, world, i] = scale * wp.dot(u, x1 - x0)

  return segment


@wp.func
def _sum_joints(
  paths: Paths, adr: wp.array[int], x: wp.array2d[float], world: int, t: int
) -> float:
  """The combination of joint coordinates that a tendon is."""
  s = wp.float32(0.0)
  for k in range(paths.joint_adr[t], paths.joint_adr[t] + paths.joint_num[t]):
    s += paths.joint_coef[k] * x[world, adr[paths.joint_id[k]]]
  return s


@wp.func
def _sum_segments(paths: Paths, x: wp.array2d[float], world: int, t: int) -> float:
  """The sum over the segments of a tendon."""
  s = wp.float32(0.0)
  for k in range(paths.segment_adr[t], paths.segment_adr[t] + paths.segment_num[t]):
    s += x[world, k]
  for k in range(paths.bent_adr[t], paths.bent_adr[t] + paths.bent_num[t]):
    s += x[world, k]
  return s


@functools.cache
def tendon_kernel(nfield: int) -> wp.Kernel:
  """Lengths and rates of the tendons, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon(paths: Paths, state: State, coords: wp.array3d[float], segments: Rates, out: Rates):
    world, t = wp.tid()
    length = _sum_joints(paths, paths.jnt_qposadr, state.qpos, world, t)
    out.length[world, t] = length + _sum_segments(paths, segments.length, world, t)
    velocity = _sum_joints(paths, paths.jnt_dofadr, state.qvel, world, t)
    out.velocity[world, t] = velocity + _sum_segments(paths, segments.velocity, world, t)
    acceleration = _sum_joints(paths, paths.jnt_dofadr, state.qacc, world, t)
    acceleration = acceleration + _sum_segments(paths, segments.acceleration, world, t)
    out.acceleration[world, t] = acceleration
    for f in range(wp.static(nfield)):
      x = _sum_joints(paths, paths.jnt_dofadr, coords[f], world, t)
      out.fields[f, world, t] = x + _sum_segments(paths, segments.fields[f], world, t)

  return tendon


@wp.func
def _spring(tendons: Tendons, rates: Rates, world: int, t: int):
  """The force of the spring of a tendon, and its derivative by the length."""
  rest = of_world(tendons.tendon_lengthspring, world, t)
  poly = of_world(tendons.tendon_stiffnesspoly, world, t)
  length = rates.length[world, t]
  x = wp.float32(0.0)
  slack = wp.float32(0.0)
  if length > rest[1]:
    x = length - rest[1]
  elif length < rest[0]:
    x = length - rest[0]
  else:
    slack = 1.0
  k = of_world(tendons.tendon_stiffness, world, t)
  factor, slope = graded(k, poly, x)
  return -x * factor, (slack - 1.0) * slope


@wp.func
def _damper(tendons: Tendons, reflected: Reflected, rates: Rates, world: int, t: int):
  """The force of the damper of a tendon, and its derivative by the velocity."""
  damping = of_world(tendons.tendon_damping, world, t)
  poly = of_world(tendons.tendon_dampingpoly, world, t)
  if tendons.tendon_actuatorid[t] != -1:
    extra, extrapoly, _armature = reflected_on(
      reflected, world, t, tendons.tendon_actuatorid[t], True
    )
    damping = damping + extra
    poly = poly + extrapoly
  v = rates.velocity[world, t]
  factor, slope = graded(damping, poly, magnitude(v))
  return -v * factor, -slope


@wp.func
def armature_of(tendons: Tendons, reflected: Reflected, world: int, t: int) -> float:
  """The inertia of a tendon along its length."""
  armature = of_world(tendons.tendon_armature, world, t)
  if tendons.tendon_actuatorid[t] != -1:
    _damping, _poly, extra = reflected_on(reflected, world, t, tendons.tendon_actuatorid[t], True)
    armature = armature + extra
  return armature


@functools.cache
def tendon_metric_kernel(*, spring: bool, damper: bool) -> wp.Kernel:
  """What a discrete step integrates implicitly, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon_metric(tendons: Tendons, reflected: Reflected, rates: Rates, out: Slopes):
    world, t = wp.tid()
    if wp.static(spring):
      spring_force, k = _spring(tendons, rates, world, t)
      out.by_length[world, t] = not_positive(k)
    if wp.static(damper):
      damper_force, b = _damper(tendons, reflected, rates, world, t)
      out.by_velocity[world, t] = not_positive(b)

  return tendon_metric


@functools.cache
def tendon_power_kernel(
  fields: Fields, *, spring: bool, damper: bool, implicit: bool, discrete: bool
) -> wp.Kernel:
  """Springs, dampers and armatures, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon_power(
    tendons: Tendons,
    reflected: Reflected,
    rates: Rates,
    moving: Rates,
    metric: Slopes,
    power: wp.array2d[float],
  ):
    world, t = wp.tid()
    p = wp.float32(0.0)
    if wp.static(spring):
      force, by_length = _spring(tendons, rates, world, t)
      p = force * rates.fields[wp.static(fields.k), world, t]
    armature = armature_of(tendons, reflected, world, t)
    inertial = armature * rates.acceleration[world, t]
    slope = wp.float32(0.0)
    if wp.static(damper):
      drag, by_velocity = _damper(tendons, reflected, rates, world, t)
      p = p + drag * rates.fields[wp.static(fields.b), world, t]
      slope = by_velocity
    p = p - inertial * rates.fields[wp.static(fields.i), world, t]
    h = of_world(tendons.timestep, world)
    if wp.static(discrete):
      v = rates.velocity[world, t]
      further = further_force(metric, world, t, h, v, rates.fields[wp.static(fields.a), world, t])
      p = p + further * moving.fields[wp.static(fields.w), world, t]
    if wp.static(fields.n >= 0):
      a = rates.fields[wp.static(fields.a), world, t]
      p = p + armature * a * rates.fields[wp.static(fields.n), world, t]
    if wp.static(fields.s >= 0):
      smooth = rates.fields[wp.static(fields.t), world, t]
      p = p - armature * smooth * rates.fields[wp.static(fields.s), world, t]
    if wp.static(fields.y >= 0):
      y = rates.fields[wp.static(fields.y), world, t]
      z = rates.fields[wp.static(fields.z), world, t]
      p = p + armature * y * z
      if wp.static(implicit):
        p = p + h * slope * y * (rates.fields[wp.static(fields.a), world, t] - z)
    power[world, t] = p

  return tendon_power


def _paths(m) -> tuple[dict, dict]:
  """The arrays of `Segments` and `Paths` of a model."""
  jnt_adr, jnt_ten = m.wrap_jnt_adr.numpy(), m.tendon_jnt_adr.numpy()
  site_adr, site_ten = m.wrap_site_pair_adr.numpy(), m.tendon_site_pair_adr.numpy()
  bent_ten = m.tendon_geom_adr.numpy()
  objid = m.wrap_objid.numpy()
  joints = [np.flatnonzero(jnt_ten == t) for t in range(m.ntendon)]
  pieces = [np.flatnonzero(site_ten == t) for t in range(m.ntendon)]
  joint_order = jnt_adr[np.concatenate(joints).astype(int)]
  site_order = site_adr[np.concatenate(pieces).astype(int)]

  def starts(groups):
    num = np.array([len(g) for g in groups])
    return np.cumsum(num) - num, num

  segments = dict(
    site0=objid[site_order],
    site1=objid[site_order + 1] if len(site_order) else site_order,
    scale=m.wrap_pulley_scale.numpy()[site_order],
  )
  joint_adr, joint_num = starts(joints)
  segment_adr, segment_num = starts(pieces)
  bent_adr, bent_num = starts([np.flatnonzero(bent_ten == t) for t in range(m.ntendon)])
  paths = dict(
    joint_adr=joint_adr,
    joint_num=joint_num,
    joint_id=objid[joint_order],
    joint_coef=m.wrap_prm.numpy()[joint_order],
    segment_adr=segment_adr,
    segment_num=segment_num,
    bent_adr=len(site_order) + bent_adr,
    bent_num=bent_num,
  )
  return segments, paths


def find_rates(step, over: Carried) -> Rates:
  """Records the lengths of the tendons of a `StageAdjoint`, with rates along the velocities."""
  tape, m, world = step.tape, step.m, step.tape.nworld
  segments, paths = _paths(m)
  count = len(segments["site0"])
  pieces = make_rates(tape, nfield=over.count, count=max(count + m.wrap_geom_adr.size, 1))
  if count:
    arrays = {k: step.constant(x) for k, x in segments.items()}
    inputs = [step.sweep.tree, over.nodes, step.sites, tape.struct(Segments, **arrays), pieces]
    tape.launch(segment_kernel(over.count), (world, count), inputs=inputs, outputs=[])
  if m.wrap_geom_adr.size:
    tendon_wraps.record(step, over, pieces=pieces, first=count)
  arrays = {k: step.constant(x) for k, x in paths.items()}
  adrs = dict(jnt_qposadr=m.jnt_qposadr, jnt_dofadr=m.jnt_dofadr)
  rates = make_rates(tape, nfield=over.count, count=m.ntendon)
  inputs = [tape.struct(Paths, **arrays, **adrs), step.state, over.coords, pieces, rates]
  tape.launch(tendon_kernel(over.count), (world, m.ntendon), inputs=inputs, outputs=[])
  return rates


def make_tendons(step) -> Tendons:
  """The springs, dampers and armatures of the tendons of a `StageAdjoint`."""
  names = [f"tendon_{x}" for x in "stiffness stiffnesspoly lengthspring damping".split()]
  names += ["tendon_dampingpoly", "tendon_armature", "opt.timestep"]
  actuators = step.m.tendon_actuatorid
  return step.tape.struct(Tendons, tendon_actuatorid=actuators, **step.leaves(*names))


def record(step) -> "tuple[Rates | None, Rates | None]":
  """Records the tendons of a `StageAdjoint`; their rates, None without tendons.

  The second are those of the motion alone, without the pull at bodies: what a discrete step
  integrates implicitly has an effect on it, and no force that is reported.
  """
  tape, m = step.tape, step.m
  if not m.ntendon:
    return None, None
  rates = moving = find_rates(step, step.pulled or step.sweep.carried)
  if step.pulled and step.discrete:
    moving = find_rates(step, step.sweep.carried)
  flags, dim = m.opt.disableflags, (tape.nworld, m.ntendon)
  options = dict(spring=not flags & DisableBit.SPRING, damper=not flags & DisableBit.DAMPER)
  metric = step.metric.tendons
  if step.discrete:
    kernel = tendon_metric_kernel(**options)
    tape.launch(kernel, dim, inputs=[step.tendons, step.reflected, rates, metric], outputs=[])
  options |= dict(implicit=step.implicitfast, discrete=step.discrete)
  kernel = tendon_power_kernel(step.fields, **options)
  tape.power(kernel, dim, inputs=[step.tendons, step.reflected, rates, moving, metric])
  return rates, moving
