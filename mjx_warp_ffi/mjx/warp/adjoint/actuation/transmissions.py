"""Lengths of actuators and their rates along every carried velocity.

A rate is a linear form of one velocity: a spatial wrench on one site, the difference of two, a
covector on the dofs of a joint, or the rate of a tendon. The kernel finds the wrench once and
applies it to every velocity.
"""

import functools

import mujoco
import numpy as np
import warp as wp
from mujoco_warp._src.types import TrnType

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE, Topology, common_node
from mjx_warp_ffi.mjx.warp.adjoint.actuation import adhesion
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates, make_rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Sites, site_arm, site_frame
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  mul,
  point_velocity,
  rotate,
  rotation_vector,
  unit_at,
  unrotate,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel, SpatialVector, struct


@struct
class Transmissions:
  """What each actuator acts on."""

  trntype: wp.array[int]
  trnid: wp.array[wp.vec2i]
  common: wp.array[int]  # of a site and its reference: the last node that moves both, or 0
  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]
  jnt_dofadr: wp.array[int]
  world_fastest: bool  # see `Tape`
  actuator_gear: wp.array2d[SpatialVector]
  actuator_cranklength: wp.array2d[float]


@wp.func
def _joint_form(t: Transmissions, state: State, world: int, i: int, gear: wp.spatial_vector):
  """The length and the covector of a transmission to a joint."""
  j = t.trnid[i][0]
  kind = t.jnt_type[j]
  a = t.jnt_qposadr[j]
  length = wp.float32(0.0)
  lin = wp.spatial_top(gear)
  rot = wp.vec3(0.0)
  num = wp.int32(1)
  if kind == FREE:
    num = 6
    rot = wp.spatial_bottom(gear)
    if t.trntype[i] == TrnType.JOINTINPARENT:
      rot = unrotate(unit_at(state.qpos, world, a + 3), rot)
  elif kind == BALL:
    num = 3
    q = unit_at(state.qpos, world, a)
    if t.trntype[i] == TrnType.JOINTINPARENT:
      lin = unrotate(q, lin)
    length = wp.dot(rotation_vector(q), lin)
  else:
    length = gear[0] * state.qpos[world, a]
  return length, lin, rot, num


@wp.func
def _covector(x: wp.array2d[float], world: int, d: int, num: int, lin: wp.vec3, rot: wp.vec3):
  """The covector applied to the dofs of a joint."""
  r = lin[0] * x[world, d]
  if num >= 3:
    r = wp.dot(lin, vec_at(x, world, d))
  if num == 6:
    r = r + wp.dot(rot, vec_at(x, world, d + 3))
  return r


@wp.func
def _along(
  f0: wp.spatial_vector,
  f1: wp.spatial_vector,
  fc: wp.spatial_vector,
  arm0: wp.vec3,
  arm1: wp.vec3,
  between: wp.vec3,
  wrench0: wp.spatial_vector,
  wrench1: wp.spatial_vector,
) -> float:
  """Two wrenches applied to a velocity field, without the motion common to both points."""
  v0 = point_velocity(f0, arm0) - wp.cross(wp.spatial_top(fc), between)
  r = wp.dot(wp.spatial_top(wrench0), v0)
  r = r + wp.dot(wp.spatial_bottom(wrench0), wp.spatial_top(f0))
  r = r + wp.dot(wp.spatial_top(wrench1), point_velocity(f1, arm1))
  return r + wp.dot(wp.spatial_bottom(wrench1), wp.spatial_top(f1))


@wp.func
def _site_wrenches(
  t: Transmissions,
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  world: int,
  i: int,
  gear: wp.spatial_vector,
):
  """The length and the wrenches of a transmission to a site, in the axes of its reference."""
  s0 = t.trnid[i][0]
  s1 = t.trnid[i][1]
  n0, r0, q0 = site_frame(sites, tree, nodes, world, s0)
  length = wp.float32(0.0)
  force = wp.spatial_top(gear)
  torque = wp.spatial_bottom(gear)
  q = q0
  sign = wp.float32(0.0)
  if s1 >= 0:
    n1, r1, q1 = site_frame(sites, tree, nodes, world, s1)
    q = q1
    length = wp.dot(unrotate(q, nodes.xpos[world, n0] + r0 - (nodes.xpos[world, n1] + r1)), force)
    length = length + wp.dot(rotation_vector(mul(conj(q), q0)), torque)
    sign = -1.0
  wrench = wp.spatial_vector(rotate(q, force), rotate(q, torque))
  return length, wrench, sign * wrench


@wp.func
def _crank_wrenches(
  t: Transmissions, tree: Tree, nodes: Nodes, sites: Sites, world: int, i: int, gear: float
):
  """The length and the wrenches of a slider-crank: crank site, slider site."""
  s0 = t.trnid[i][0]
  s1 = t.trnid[i][1]
  n0 = tree.of_body[sites.site_bodyid[s0]]
  n1, r1, q1 = site_frame(sites, tree, nodes, world, s1)
  axis = rotate(q1, wp.vec3(0.0, 0.0, 1.0))
  vec = nodes.xpos[world, n0] + site_arm(sites, tree, nodes, world, s0)
  vec = vec - nodes.xpos[world, n1] - r1
  rod = of_world(t.actuator_cranklength, world, i)
  av = wp.dot(vec, axis)
  det = av * av + rod * rod - wp.dot(vec, vec)
  length = av
  by_vec = axis
  by_axis = vec
  if det > 0.0:
    root = wp.sqrt(det)
    length = av - root
    by_vec = axis * (1.0 - av / root) + vec / root
    by_axis = vec * (1.0 - av / root)
  zero = wp.vec3(0.0)
  wrench0 = wp.spatial_vector(gear * by_vec, zero)
  wrench1 = wp.spatial_vector(-gear * by_vec, gear * wp.cross(axis, by_axis))
  return gear * length, wrench0, wrench1


@functools.cache
def joint_kernel(nfield: int, *, scalar: bool) -> Kernel:
  """Transmissions to joints and tendons, a thread per world and actuator.

  With `scalar` all those joints are hinges and slides.
  """

  @wp.kernel(module="unique")
  def transmission(
    # Model:
    t: Transmissions,
    # Data in:
    state: State,
    # In:
    coords: wp.array3d[float],
    tendons: Rates,
    # Out:
    out: Rates,
  ):
    row, column = wp.tid()
    world, i = world_and_item(row, column, t.world_fastest)
    kind = t.trntype[i]
    gear = of_world(t.actuator_gear, world, i)
    if kind == TrnType.JOINT or kind == TrnType.JOINTINPARENT:
      j = t.trnid[i][0]
      d = t.jnt_dofadr[j]
      if wp.static(scalar):
        out.length[world, i] = gear[0] * state.qpos[world, t.jnt_qposadr[j]]
        out.velocity[world, i] = gear[0] * state.qvel[world, d]
        for f in range(wp.static(nfield)):
          out.fields[f, world, i] = gear[0] * coords[f, world, d]
      else:
        length, lin, rot, num = _joint_form(t, state, world, i, gear)
        out.length[world, i] = length
        out.velocity[world, i] = _covector(state.qvel, world, d, num, lin, rot)
        for f in range(wp.static(nfield)):
          out.fields[f, world, i] = _covector(coords[f], world, d, num, lin, rot)
    elif kind == TrnType.TENDON:
      ten = t.trnid[i][0]
      out.length[world, i] = gear[0] * tendons.length[world, ten]
      out.velocity[world, i] = gear[0] * tendons.velocity[world, ten]
      for f in range(wp.static(nfield)):
        out.fields[f, world, i] = gear[0] * tendons.fields[f, world, ten]
    elif kind == TrnType.BODY:  # whose contacts add to this
      out.velocity[world, i] = 0.0
      for f in range(wp.static(nfield)):
        out.fields[f, world, i] = 0.0

  return transmission


@functools.cache
def site_kernel(nfield: int) -> Kernel:
  """Transmissions to sites, a thread per world and actuator of that kind."""

  @wp.kernel(module="unique")
  def site_transmission(
    # Model:
    t: Transmissions,
    which: wp.array[int],
    tree: Tree,
    sites: Sites,
    # In:
    nodes: Nodes,
    # Out:
    out: Rates,
  ):
    world, it = wp.tid()
    i = which[it]
    gear = of_world(t.actuator_gear, world, i)
    s0 = t.trnid[i][0]
    s1 = t.trnid[i][1]
    if s1 < 0:
      s1 = s0
    n0 = tree.of_body[sites.site_bodyid[s0]]
    n1 = tree.of_body[sites.site_bodyid[s1]]
    arm0 = site_arm(sites, tree, nodes, world, s0)
    arm1 = site_arm(sites, tree, nodes, world, s1)
    between = nodes.xpos[world, n0] + arm0 - nodes.xpos[world, n1] - arm1
    length, w0, w1 = _site_wrenches(t, tree, nodes, sites, world, i, gear)
    if t.trntype[i] == TrnType.SLIDERCRANK:
      length, w0, w1 = _crank_wrenches(t, tree, nodes, sites, world, i, gear[0])
    c = t.common[i]
    out.length[world, i] = length
    f0 = nodes.vel[world, n0]
    f1 = nodes.vel[world, n1]
    out.velocity[world, i] = _along(f0, f1, nodes.vel[world, c], arm0, arm1, between, w0, w1)
    for f in range(wp.static(nfield)):
      g0 = nodes.fields[f, world, n0]
      g1 = nodes.fields[f, world, n1]
      gc = nodes.fields[f, world, c]
      out.fields[f, world, i] = _along(g0, g1, gc, arm0, arm1, between, w0, w1)

  return site_transmission


def _common_nodes(mjm: mujoco.MjModel, top: Topology) -> np.ndarray:
  """The common node of every actuator: only a reference site leaves common motion out."""
  of_body = top.arrays["of_body"]
  out = np.zeros(len(mjm.actuator_trntype), dtype=int)
  for i, (kind, (s0, s1)) in enumerate(zip(mjm.actuator_trntype, mjm.actuator_trnid, strict=True)):
    if kind == TrnType.SITE and s1 >= 0:
      out[i] = common_node(top, (of_body[mjm.site_bodyid[s0]], of_body[mjm.site_bodyid[s1]]))
  return out


def find_rates(
  rec: Recording,
  kin: Kinematics,
  over: Carried,
  *,
  tendons: "Rates | None",
  contacts: "ContactPool | None",
) -> Rates:
  """Records the transmissions.

  Args:
    rec: the recording.
    kin: the kinematics.
    over: the velocities along which rates are wanted.
    tendons: the rates of the tendons along the same velocities, None without tendons.
    contacts: the pool, None where there can be no contact or no actuator acts on one.

  Returns:
    The lengths of the actuators, with their rates along the velocities of `over`.
  """
  tape, m = rec.tape, rec.m
  transmissions = tape.struct(
    Transmissions,
    trntype=m.actuator_trntype,
    trnid=m.actuator_trnid,
    common=rec.constant(_common_nodes(rec.mjm, kin.topology)),
    world_fastest=tape.world_fastest,
    **rec.fixed("jnt_type", "jnt_qposadr", "jnt_dofadr"),
    **rec.leaves("actuator_gear", "actuator_cranklength"),
  )
  rates = make_rates(tape, nfield=over.count, count=m.nactuator)
  tendons = tendons or make_rates(tape, nfield=over.count, count=1)
  inputs = [transmissions, kin.state, over.coords, tendons, rates]
  kinds, joints = m.actuator_trntype.numpy(), m.jnt_type.numpy()
  to_joint = np.isin(kinds, (TrnType.JOINT, TrnType.JOINTINPARENT))
  joints = joints[m.actuator_trnid.numpy()[to_joint, 0]]
  kernel = joint_kernel(over.count, scalar=not np.isin(joints, (BALL, FREE)).any())
  tape.launch(kernel, tape.dim(m.nactuator), inputs=inputs, outputs=[])
  which = np.flatnonzero(np.isin(kinds, (TrnType.SITE, TrnType.SLIDERCRANK)))
  if len(which):
    inputs = [transmissions, rec.constant(which), kin.tree, kin.sites, over.nodes, rates]
    tape.launch(site_kernel(over.count), (tape.nworld, len(which)), inputs=inputs, outputs=[])
  if adhesion.any_body(m):
    adhesion.record(rec, kin, over, rates=rates, contacts=contacts)
  return rates


PART = Part(parameters=("actuator_gear", "actuator_cranklength"))
