"""Lengths of tendons, their rates along every carried velocity, and the power of their forces.

The forces are those of springs, dampers and armatures, whose laws are in `tendon_forces.py`.

A spatial tendon is a sum of straight segments between sites, each divided by its pulley; a fixed
one a sum of joint coordinates. Each writes its own values, and a tendon adds up its segments.
"""

import dataclasses
import functools

import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces import tendon_wraps
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import (
  Rates,
  Slopes,
  further_force,
  make_rates,
  not_positive,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import dampers_act, springs_act
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected
from mjx_warp_ffi.mjx.warp.adjoint.forces.tendon_forces import (
  Tendons,
  armature_of,
  tendon_damper,
  tendon_spring,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Sites, site_arm
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  point_acceleration,
  point_velocity,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried, Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel, struct


@struct
class Segments:
  """The straight pieces of spatial tendons."""

  site0: wp.array[int]
  site1: wp.array[int]
  scale: wp.array[float]


@struct
class TendonPaths:
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


@functools.cache
def segment_kernel(nfield: int) -> Kernel:
  """Straight segments between two sites, a thread per world and segment."""

  @wp.kernel(module="unique")
  def segment(
    # Model:
    tree: Tree,
    sites: Sites,
    segments: Segments,
    # In:
    nodes: Nodes,
    # Out:
    out: Rates,
  ):
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
  paths: TendonPaths, adr: wp.array[int], x: wp.array2d[float], world: int, t: int
) -> float:
  """The combination of joint coordinates that a tendon is."""
  s = wp.float32(0.0)
  for k in range(paths.joint_adr[t], paths.joint_adr[t] + paths.joint_num[t]):
    s += paths.joint_coef[k] * x[world, adr[paths.joint_id[k]]]
  return s


@wp.func
def _sum_segments(paths: TendonPaths, x: wp.array2d[float], world: int, t: int) -> float:
  """The sum over the segments of a tendon."""
  s = wp.float32(0.0)
  for k in range(paths.segment_adr[t], paths.segment_adr[t] + paths.segment_num[t]):
    s += x[world, k]
  for k in range(paths.bent_adr[t], paths.bent_adr[t] + paths.bent_num[t]):
    s += x[world, k]
  return s


@functools.cache
def tendon_kernel(nfield: int) -> Kernel:
  """Lengths and rates of the tendons, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon(
    # Model:
    paths: TendonPaths,
    # Data in:
    state: State,
    # In:
    coords: wp.array3d[float],
    segments: Rates,
    # Out:
    out: Rates,
  ):
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


@functools.cache
def tendon_metric_kernel(*, spring: bool, damper: bool) -> Kernel:
  """What a discrete step integrates implicitly, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon_metric(tendons: Tendons, reflected: Reflected, rates: Rates, out: Slopes):
    world, t = wp.tid()
    if wp.static(spring):
      spring_force, k = tendon_spring(tendons, rates, world, t)
      out.by_length[world, t] = not_positive(k)
    if wp.static(damper):
      damper_force, b = tendon_damper(tendons, reflected, rates, world, t)
      out.by_velocity[world, t] = not_positive(b)

  return tendon_metric


@functools.cache
def tendon_power_kernel(
  velocities: Velocities, *, spring: bool, damper: bool, implicit: bool, discrete: bool
) -> Kernel:
  """Springs, dampers and armatures, a thread per world and tendon."""

  @wp.kernel(module="unique")
  def tendon_power(
    # Model:
    tendons: Tendons,
    reflected: Reflected,
    # In:
    rates: Rates,
    moving: Rates,
    slopes: Slopes,
    # Out:
    power: wp.array2d[float],
  ):
    world, t = wp.tid()
    p = wp.float32(0.0)
    if wp.static(spring):
      force, by_length = tendon_spring(tendons, rates, world, t)
      p = force * rates.fields[wp.static(velocities.springs), world, t]
    armature = armature_of(tendons, reflected, world, t)
    inertial = armature * rates.acceleration[world, t]
    slope = wp.float32(0.0)
    if wp.static(damper):
      drag, by_velocity = tendon_damper(tendons, reflected, rates, world, t)
      p = p + drag * rates.fields[wp.static(velocities.dampers), world, t]
      slope = by_velocity
    p = p - inertial * rates.fields[wp.static(velocities.inertial), world, t]
    h = of_world(tendons.timestep, world)
    if wp.static(discrete):
      v = rates.velocity[world, t]
      further = further_force(
        slopes, world, t, h, v, rates.fields[wp.static(velocities.acceleration), world, t]
      )
      p = p + further * moving.fields[wp.static(velocities.virtual), world, t]
    if wp.static(velocities.mass_acceleration >= 0):
      a = rates.fields[wp.static(velocities.acceleration), world, t]
      p = p + armature * a * rates.fields[wp.static(velocities.mass_acceleration), world, t]
    if wp.static(velocities.smooth >= 0):
      smooth = rates.fields[wp.static(velocities.smooth_acceleration), world, t]
      p = p - armature * smooth * rates.fields[wp.static(velocities.smooth), world, t]
    if wp.static(velocities.implicit_left >= 0):
      y = rates.fields[wp.static(velocities.implicit_left), world, t]
      z = rates.fields[wp.static(velocities.implicit_right), world, t]
      p = p + armature * y * z
      if wp.static(implicit):
        p = p + h * slope * y * (rates.fields[wp.static(velocities.acceleration), world, t] - z)
    power[world, t] = p

  return tendon_power


def _paths(m: mjw.Model) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """The arrays of `Segments` and `TendonPaths` of a model."""
  jnt_adr, jnt_ten = m.wrap_jnt_adr.numpy(), m.tendon_jnt_adr.numpy()
  site_adr, site_ten = m.wrap_site_pair_adr.numpy(), m.tendon_site_pair_adr.numpy()
  bent_ten = m.tendon_geom_adr.numpy()
  objid = m.wrap_objid.numpy()
  joints = [np.flatnonzero(jnt_ten == t) for t in range(m.ntendon)]
  pieces = [np.flatnonzero(site_ten == t) for t in range(m.ntendon)]
  joint_order = jnt_adr[np.concatenate(joints).astype(int)]
  site_order = site_adr[np.concatenate(pieces).astype(int)]

  def starts(groups: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
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


def find_rates(rec: Recording, kin: Kinematics, over: Carried) -> Rates:
  """Records the lengths of the tendons, with their rates along the velocities of `over`."""
  tape, m, world = rec.tape, rec.m, rec.tape.nworld
  segments, paths = _paths(m)
  count = len(segments["site0"])
  pieces = make_rates(tape, nfield=over.count, count=max(count + m.wrap_geom_adr.size, 1))
  if count:
    arrays = {k: rec.constant(x) for k, x in segments.items()}
    inputs = [kin.tree, kin.sites, tape.struct(Segments, **arrays), over.nodes, pieces]
    tape.launch(segment_kernel(over.count), (world, count), inputs=inputs, outputs=[])
  if m.wrap_geom_adr.size:
    tendon_wraps.record(rec, kin, over, pieces=pieces, first=count)
  arrays = {k: rec.constant(x) for k, x in paths.items()}
  adrs = rec.fixed("jnt_qposadr", "jnt_dofadr")
  rates = make_rates(tape, nfield=over.count, count=m.ntendon)
  inputs = [tape.struct(TendonPaths, **arrays, **adrs), kin.state, over.coords, pieces, rates]
  tape.launch(tendon_kernel(over.count), (world, m.ntendon), inputs=inputs, outputs=[])
  return rates


@dataclasses.dataclass(frozen=True)
class TendonRates:
  """The lengths of the tendons, and their rates along the carried velocities.

  Attributes:
    rates: with the pull of tendons at the bodies between which forces are measured, if any are.
    moving: those of the motion alone. What a discrete step integrates implicitly has an effect on
      the motion, and on no force that is reported. Without that pull both are the same.
  """

  rates: Rates
  moving: Rates


def record(
  rec: Recording, kin: Kinematics, mech: Mechanics, *, pulled: Carried | None, slopes: Slopes
) -> TendonRates | None:
  """Records the power of springs, dampers and armatures of tendons.

  Args:
    rec: the recording.
    kin: the kinematics.
    mech: the parameters of the tendons.
    pulled: the fields that tendons see, if these are not those of the sweep.
    slopes: where the slopes that a discrete step integrates implicitly go.

  Returns:
    The rates of the tendons, None without tendons.
  """
  tape, m = rec.tape, rec.m
  if not m.ntendon:
    return None
  discrete = rec.scheme.discrete
  rates = moving = find_rates(rec, kin, pulled or kin.carried)
  if pulled and discrete:
    moving = find_rates(rec, kin, kin.carried)
  dim, modes = (tape.nworld, m.ntendon), dict(spring=springs_act(m), damper=dampers_act(m))
  inputs = [mech.tendons, mech.reflected, rates]
  if discrete:
    tape.launch(tendon_metric_kernel(**modes), dim, inputs=[*inputs, slopes], outputs=[])
  kernel = tendon_power_kernel(
    kin.velocities, **modes, implicit=rec.scheme.implicitfast, discrete=discrete
  )
  tape.power(kernel, dim, inputs=[*inputs, moving, slopes])
  return TendonRates(rates, moving)


PART = Part(
  parameters=(
    *("tendon_stiffness", "tendon_stiffnesspoly", "tendon_lengthspring"),
    *("tendon_damping", "tendon_dampingpoly", "tendon_armature", "opt.timestep"),
    *("actuator_gear", "actuator_armature", "actuator_damping", "actuator_dampingpoly"),
    *("site_pos", "site_quat"),
  )
)
