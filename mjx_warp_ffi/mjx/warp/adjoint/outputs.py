"""Cotangents of what a step reports besides its state: poses, velocities, momenta, lengths.

The reports are functions of the nodes at the state before the step. Each kernel is that function
for a group of them; only its adjoint runs, seeded by the cotangents.
"""

import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.attached import Geoms, Sites, geom_frame, site_frame
from mjx_warp_ffi.mjx.warp.adjoint.forces import ACCELERATION, FORCES, PASSIVE
from mjx_warp_ffi.mjx.warp.adjoint.nodes import Frames, Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.smooth import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.spatial import (
  conj,
  matrix,
  mul,
  point_velocity,
  pure,
  rotate,
  unit_at,
  unrotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape import world_and_item
from mjx_warp_ffi.mjx.warp.adjoint.topology import BALL, FREE, SLIDE

BODIES = ("xpos", "xquat", "xmat", "xipos", "ximat")
JOINTS = ("xanchor", "xaxis")
GEOMS = ("geom_xpos", "geom_xmat")
SITES = ("site_xpos", "site_xmat")
SUBTREES = ("subtree_com", "subtree_linvel", "subtree_angmom", "cvel")
TENDONS = ("ten_length", "ten_velocity")
ACTUATORS = ("actuator_length", "actuator_velocity")
REPORTS = (*BODIES, *JOINTS, *GEOMS, *SITES, *SUBTREES, *TENDONS, *ACTUATORS)
REPORTS += (*FORCES, *PASSIVE, ACCELERATION, "actuator_force", "act_dot", "sensordata")
REPORTS += ("energy", "cacc", "cfrc_int", "cfrc_ext", "cdof", "cdof_dot", "cinert")
REPORTS += ("cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
REPORTS += ("contact.dist", "contact.pos", "contact.frame")


@wp.struct
class Joints:
  """The joints and their nodes."""

  node: wp.array[int]
  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]


@wp.struct
class Subtrees:
  """The bodies below each body, itself included, and what they weigh together."""

  body_rootid: wp.array[int]
  body_subtreenum: wp.array[int]
  body_subtreemass: wp.array2d[float]


@wp.kernel(module="unique")
def body_pose(
  tree: Tree,
  nodes: Nodes,
  inertia: Inertia,
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
  xmat: wp.array2d[wp.mat33],
  xipos: wp.array2d[wp.vec3],
  ximat: wp.array2d[wp.mat33],
):
  """The poses of the bodies and of their inertial frames."""
  world, b = wp.tid()
  n = tree.of_body[b]
  x = nodes.xpos[world, n]
  q = nodes.xquat[world, n]
  xpos[world, b] = x
  xquat[world, b] = q
  xmat[world, b] = matrix(q)
  _mass, _moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  xipos[world, b] = x + c
  ximat[world, b] = matrix(qi)


@wp.kernel(module="unique")
def joint_pose(
  joints: Joints,
  nodes: Nodes,
  frames: Frames,
  state: State,
  xanchor: wp.array2d[wp.vec3],
  xaxis: wp.array2d[wp.vec3],
):
  """Anchors and axes of the joints, as they are before the joint moves its body."""
  world, j = wp.tid()
  n = joints.node[j]
  x = nodes.xpos[world, n]
  q = nodes.xquat[world, n]
  kind = joints.jnt_type[j]
  i = joints.jnt_qposadr[j]
  axis = frames.jnt_axis[world % frames.jnt_axis.shape[0], j]
  if kind != FREE:
    x = x + rotate(q, frames.jnt_pos[world % frames.jnt_pos.shape[0], j])
    if kind == BALL:
      q = mul(q, conj(unit_at(state.qpos, world, i)))
    axis = rotate(q, axis)
    if kind == SLIDE:
      x = x - axis * (state.qpos[world, i] - frames.qpos0[world % frames.qpos0.shape[0], i])
  xanchor[world, j] = x
  xaxis[world, j] = axis


@wp.kernel(module="unique")
def geom_pose(
  tree: Tree,
  nodes: Nodes,
  geoms: Geoms,
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
):
  """The poses of the geoms, a thread per world and geom."""
  i, j = wp.tid()
  world, g = world_and_item(i, j, tree.world_fastest)
  n, arm, axes = geom_frame(geoms, tree, nodes, world, g)
  xpos[world, g] = nodes.xpos[world, n] + arm
  xmat[world, g] = matrix(axes)


@wp.kernel(enable_backward=False)
def geom_pose_adjoint(
  tree: Tree,
  nodes: Nodes,
  geoms: Geoms,
  cot_xpos: wp.array2d[wp.vec3],
  cot_xmat: wp.array2d[wp.mat33],
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
):
  """The adjoint of `geom_pose` by the poses of the nodes, for cotangents that are mostly zero."""
  i, j = wp.tid()
  world, g = world_and_item(i, j, tree.world_fastest)
  pull = cot_xpos[world, g]
  turn = cot_xmat[world, g]
  if pull == wp.vec3(0.0) and turn == wp.mat33(0.0):
    return
  n, arm, axes = geom_frame(geoms, tree, nodes, world, g)
  columns = wp.transpose(matrix(axes))
  pulls = wp.transpose(turn)
  torque = wp.cross(arm, pull)
  for k in range(3):
    torque += wp.cross(columns[k], pulls[k])
  wp.atomic_add(xpos, world, n, pull)
  # a rotation by r turns q by (0, r / 2) q
  wp.atomic_add(xquat, world, n, mul(pure(2.0 * torque), nodes.xquat[world, n]))


@wp.kernel(module="unique")
def site_pose(
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  xpos: wp.array2d[wp.vec3],
  xmat: wp.array2d[wp.mat33],
):
  """The poses of the sites."""
  world, s = wp.tid()
  n, arm, axes = site_frame(sites, tree, nodes, world, s)
  xpos[world, s] = nodes.xpos[world, n] + arm
  xmat[world, s] = matrix(axes)


@wp.func
def body_centre(tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int) -> wp.vec3:
  """The centre of mass of a body from the origin of its node."""
  local = inertia.body_ipos[world % inertia.body_ipos.shape[0], b]
  return rotate(nodes.xquat[world, tree.of_body[b]], local)


@wp.kernel(module="unique")
def subtree_centre(
  tree: Tree,
  nodes: Nodes,
  inertia: Inertia,
  subtrees: Subtrees,
  com: wp.array2d[wp.vec3],
):
  """The centres of mass of the subtrees."""
  world, b = wp.tid()
  mass = wp.max(1.0e-15, subtrees.body_subtreemass[world % subtrees.body_subtreemass.shape[0], b])
  s = wp.vec3(0.0)
  for k in range(b, b + subtrees.body_subtreenum[b]):
    x = nodes.xpos[world, tree.of_body[k]] + body_centre(tree, nodes, inertia, world, k)
    # divided here: after the loop, reverse mode would not know the sum
    s += x * (inertia.body_mass[world % inertia.body_mass.shape[0], k] / mass)
  com[world, b] = s


@wp.func
def body_momentum(
  tree: Tree, nodes: Nodes, inertia: Inertia, world: int, b: int
) -> wp.spatial_vector:
  """The angular momentum of a body about its centre of mass, and its linear momentum."""
  mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  f = nodes.vel[world, tree.of_body[b]]
  local = wp.cw_mul(moments, unrotate(qi, wp.spatial_top(f)))
  return wp.spatial_vector(rotate(qi, local), mass * point_velocity(f, c))


@wp.kernel(module="unique")
def subtree_velocity(
  tree: Tree,
  nodes: Nodes,
  inertia: Inertia,
  subtrees: Subtrees,
  com: wp.array2d[wp.vec3],
  linvel: wp.array2d[wp.vec3],
  angmom: wp.array2d[wp.vec3],
  cvel: wp.array2d[wp.spatial_vector],
):
  """Velocities of centres of mass, angular momenta about them, and the field at the tree's."""
  world, b = wp.tid()
  mass = wp.max(1.0e-15, subtrees.body_subtreemass[world % subtrees.body_subtreemass.shape[0], b])
  c = com[world, b]
  lin = wp.vec3(0.0)
  ang = wp.vec3(0.0)
  for k in range(b, b + subtrees.body_subtreenum[b]):
    p = body_momentum(tree, nodes, inertia, world, k)
    x = nodes.xpos[world, tree.of_body[k]] + body_centre(tree, nodes, inertia, world, k)
    lin += wp.spatial_bottom(p) / mass
    ang += wp.spatial_top(p) + wp.cross(x - c, wp.spatial_bottom(p))
  linvel[world, b] = lin
  angmom[world, b] = ang
  n = tree.of_body[b]
  f = nodes.vel[world, n]
  r = com[world, subtrees.body_rootid[b]] - nodes.xpos[world, n]
  cvel[world, b] = wp.spatial_vector(wp.spatial_top(f), point_velocity(f, r))


@wp.kernel(enable_backward=False)
def add_seed(cotangent: wp.array2d[float], gradient: wp.array2d[float]):
  """Adds a cotangent to a gradient."""
  world, i = wp.tid()
  gradient[world, i] = gradient[world, i] + cotangent[world, i]


def seed(step, name: str, *, array: wp.array) -> None:
  """Adds the cotangent of a report to the gradient of the array that holds it."""
  cotangent = step.cotangents.get(name)
  if cotangent is not None:
    dim = array.shape

    def backward():
      wp.launch(add_seed, dim, inputs=[cotangent], outputs=[array.grad])

    step.tape.call(backward=backward)


def record_centres(step) -> tuple[wp.array, list]:
  """Records the centres of mass of the subtrees: their array, and the inputs of their kernel."""
  m, tape, sweep = step.m, step.tape, step.sweep
  fixed = {f: getattr(m, f) for f in ("body_rootid", "body_subtreenum")}
  subtrees = tape.struct(Subtrees, **fixed, **step.leaves("body_subtreemass"))
  inputs = [sweep.tree, sweep.nodes, step.inertia, subtrees]
  com = tape.array(m.nbody, dtype=wp.vec3)
  tape.launch(subtree_centre, (tape.nworld, m.nbody), inputs=inputs, outputs=[com])
  return com, inputs


def record(step) -> None:
  """Records the reports of a `StageAdjoint` that have a cotangent."""
  tape, m, sweep = step.tape, step.m, step.sweep
  nodes = [sweep.tree, sweep.nodes]
  if step.reports(BODIES):
    tape.output(body_pose, inputs=[*nodes, step.inertia], outputs=step.reports(BODIES))
  if step.reports(JOINTS):
    kinds = {f: getattr(m, f) for f in ("jnt_type", "jnt_qposadr")}
    jnt = sweep.topology.arrays["jnt"]
    order = step.constant((jnt >= 0).nonzero()[0])
    joints = tape.struct(Joints, node=order, **kinds)
    inputs = [joints, sweep.nodes, step.frames, step.state]
    tape.output(joint_pose, inputs=inputs, outputs=step.reports(JOINTS))
  if step.reports(GEOMS):
    dim = tape.dim(m.ngeom)
    tape.output(geom_pose, inputs=[*nodes, step.geoms], outputs=step.reports(GEOMS), dim=dim)
  if step.reports(SITES):
    tape.output(site_pose, inputs=[*nodes, step.sites], outputs=step.reports(SITES))
  if step.reports(SUBTREES):
    com, inputs = record_centres(step)
    rest = step.reports(SUBTREES[1:])
    if rest:
      tape.output(subtree_velocity, inputs=[*inputs, com], outputs=rest)
    if "subtree_com" in step.cotangents:
      # the first to run backwards: the velocities add to it
      cotangent = step.cotangents["subtree_com"]
      tape.call(backward=lambda: wp.copy(com.grad, cotangent))
  for names, rates in ((TENDONS, step.tendon_rates), (ACTUATORS, step.actuator_rates)):
    if rates is not None:
      for name, field in zip(names, ("length", "velocity"), strict=True):
        seed(step, name, array=tape.field(rates, field))
