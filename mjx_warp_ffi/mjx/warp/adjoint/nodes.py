"""The tree, swept from the root: poses, velocity fields and the acceleration of every joint node.

`topology` says which nodes there are. A node's fields are spatial vectors at its origin in world
axes: `vel` of the velocity qvel, `acc` of (qvel, qacc) without gravity, and `fields`, the velocity
fields V(x) of the frozen generalised velocities x in `coords` (`Fields` numbers them).
"""

import dataclasses
import functools

import mujoco
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.spatial import (
  mul,
  point_acceleration,
  point_velocity,
  rotate,
  unit_at,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape import Tape
from mjx_warp_ffi.mjx.warp.adjoint.topology import BALL, FREE, HINGE, NONE, SLIDE, topology


@dataclasses.dataclass(frozen=True)
class Fields:
  """Where the frozen velocities stand in `coords` and `fields`; -1: not carried.

  w: the virtual velocity; field 0 is that of rows, w or their own. y, z: those of the implicit
  term, y . M z. a: qacc as a velocity (J qacc, without the Jdot qvel that `acc` has). i, x, p, u:
  the virtual velocities of inertia, of applied, passive and actuator forces, all w unless such
  forces have cotangents; n: see `forces`. m: u without the dofs whose total actuator force is at
  its limit. k, b, f: those of springs, dampers and fluid, p unless one alone has a cotangent. g:
  that of the compensation of gravity, p, or m at the dofs whose actuators compensate. s, t: the
  virtual velocity of the cotangent of qacc_smooth, and that acceleration.
  """

  w: int
  y: int
  z: int
  a: int
  i: int
  x: int
  p: int
  u: int
  n: int
  m: int
  k: int
  b: int
  f: int
  g: int
  s: int
  t: int
  count: int


def make_fields(
  *,
  second: bool,
  acceleration: bool,
  masked: bool,
  forces: bool,
  compensated: bool,
  smooth: bool,
  passive: tuple[str, ...],
  rows: bool,
) -> Fields:
  """The fields of a step with these needs beside w, of passive forces by their names here."""
  names = ["rows"] * rows + ["w"] + ["y", "z"] * second + ["a"] * (acceleration or forces)
  names += ["i", "x", "p", "u", "n"] * forces + ["m"] * masked
  if compensated and (masked or forces):
    passive = tuple(dict.fromkeys((*passive, "g")))
  names += [*passive] + ["s", "t"] * smooth
  at = {name: names.index(name) if name in names else NONE for name in "wyzaixpunmkbfgst"}
  if not forces:
    at |= dict.fromkeys("ixpu", at["w"])
  if "m" not in names:
    at["m"] = at["u"]
  at |= {name: at["p"] for name in "kbfg" if name not in names}
  return Fields(**at, count=len(names))


@wp.struct
class Tree:
  """The topology, shared by all worlds."""

  parent: wp.array[int]
  placed: wp.array[int]  # the body whose offset the node applies, or -1
  mocap: wp.array[int]  # the mocap body that the node is, or -1
  jnt: wp.array[int]  # or -1
  kind: wp.array[int]  # type of the joint, or -1
  qposadr: wp.array[int]
  dofadr: wp.array[int]
  of_body: wp.array[int]  # the node of each body
  free_root: wp.array[int]  # of each body: the node of the free rigid body that it is part of; -1


@wp.struct
class Frames:
  """Offsets of bodies and joints: model fields, of one row or one a world."""

  body_pos: wp.array2d[wp.vec3]
  body_quat: wp.array2d[wp.quat]
  jnt_pos: wp.array2d[wp.vec3]
  jnt_axis: wp.array2d[wp.vec3]
  qpos0: wp.array2d[float]


@wp.struct
class State:
  """Inputs of the step, and the acceleration that it solved for."""

  qpos: wp.array2d[float]
  qvel: wp.array2d[float]
  qacc: wp.array2d[float]
  mocap_pos: wp.array2d[wp.vec3]
  mocap_quat: wp.array2d[wp.quat]


@wp.struct
class Nodes:
  """What the sweep writes, (nworld, nnode)."""

  xpos: wp.array2d[wp.vec3]
  xquat: wp.array2d[wp.quat]
  vel: wp.array2d[wp.spatial_vector]
  acc: wp.array2d[wp.spatial_vector]
  fields: wp.array3d[wp.spatial_vector]  # (nfield, nworld, nnode)
  # the derivative of `acc` by the velocity along qacc - z, of the implicit integrator
  polar: wp.array2d[wp.spatial_vector]


@dataclasses.dataclass(frozen=True)
class Carried:
  """Nodes with the fields of some generalised velocities, `coords`, and how many there are."""

  nodes: Nodes
  coords: wp.array
  count: int


@wp.func
def twist(
  kind: int, axis: wp.vec3, q: wp.quat, x: wp.array2d[float], world: int, d: int
) -> wp.spatial_vector:
  """The velocity that a joint adds: the angular one, and the linear one of a translation."""
  ang = wp.vec3(0.0)
  lin = wp.vec3(0.0)
  if kind == FREE:
    lin = vec_at(x, world, d)
    ang = rotate(q, vec_at(x, world, d + 3))
  elif kind == BALL:
    ang = rotate(q, vec_at(x, world, d))
  elif kind == SLIDE:
    lin = axis * x[world, d]
  elif kind == HINGE:
    ang = axis * x[world, d]
  return wp.spatial_vector(ang, lin)


@wp.func
def moved(
  f: wp.spatial_vector, r: wp.vec3, arm: wp.vec3, t: wp.spatial_vector
) -> wp.spatial_vector:
  """The field of a node from its parent's, r away, and its joint's twist about -arm."""
  om = wp.spatial_top(f)
  rel = wp.spatial_top(t)
  lin = wp.spatial_bottom(f) + wp.cross(om, r) + wp.cross(rel, arm) + wp.spatial_bottom(t)
  return wp.spatial_vector(om + rel, lin)


@wp.func
def placed(tree: Tree, frames: Frames, state: State, world: int, n: int, xk: wp.vec3, qk: wp.quat):
  """The pose of a node from its parent's, the axis of its joint, and its origin from the anchor."""
  kind = tree.kind[n]
  j = tree.jnt[n]
  i = tree.qposadr[n]
  b = tree.placed[n]
  x = xk
  q = qk
  axis = wp.vec3(0.0)
  arm = wp.vec3(0.0)
  if tree.mocap[n] >= 0:
    x = state.mocap_pos[world, tree.mocap[n]]
    q = state.mocap_quat[world, tree.mocap[n]]
  elif b >= 0:
    x = x + rotate(q, frames.body_pos[world % frames.body_pos.shape[0], b])
    q = mul(q, frames.body_quat[world % frames.body_quat.shape[0], b])
  if kind == FREE:
    x = vec_at(state.qpos, world, i)
    q = unit_at(state.qpos, world, i + 3)
  elif kind != NONE:
    local = frames.jnt_axis[world % frames.jnt_axis.shape[0], j]
    offset = frames.jnt_pos[world % frames.jnt_pos.shape[0], j]
    axis = rotate(q, local)
    if kind == SLIDE:
      x = x + axis * (state.qpos[world, i] - frames.qpos0[world % frames.qpos0.shape[0], i])
    else:
      x = x + rotate(q, offset)
      if kind == BALL:
        q = mul(q, unit_at(state.qpos, world, i))
      else:
        half = 0.5 * (state.qpos[world, i] - frames.qpos0[world % frames.qpos0.shape[0], i])
        u = wp.sin(half) * local
        q = mul(q, wp.quat(wp.cos(half), u[0], u[1], u[2]))
      arm = -rotate(q, offset)
      x = x + arm
  return x, wp.normalize(q), axis, arm


@wp.func
def turned(
  f: wp.spatial_vector,
  v: wp.spatial_vector,
  u: wp.spatial_vector,
  r: wp.vec3,
  arm: wp.vec3,
  tv: wp.spatial_vector,
  tu: wp.spatial_vector,
) -> wp.spatial_vector:
  """The derivative of a node's acceleration by the velocity, from that of its parent, f.

  v and u are the parent's fields of the velocity and of the direction, tv and tu the joint's.
  """
  om = wp.spatial_top(v)
  omu = wp.spatial_top(u)
  rel = wp.spatial_top(tv)
  relu = wp.spatial_top(tu)
  about = wp.cross(rel, arm)
  aboutu = wp.cross(relu, arm)
  lin = point_velocity(f, r) + wp.cross(om, wp.cross(omu, r)) + wp.cross(omu, wp.cross(om, r))
  lin = lin + wp.cross(rel, aboutu) + wp.cross(relu, about)
  lin = lin + 2.0 * wp.cross(om, aboutu + wp.spatial_bottom(tu))
  lin = lin + 2.0 * wp.cross(omu, about + wp.spatial_bottom(tv))
  return wp.spatial_vector(wp.spatial_top(f) + wp.cross(om, relu) + wp.cross(omu, rel), lin)


@functools.cache
def sweep_kernel(fields: Fields, *, polar: bool) -> wp.Kernel:
  """One level of the tree, a thread per world and node; the parents' values are there already."""

  @wp.kernel(module="unique")
  def sweep(
    tree: Tree,
    nodes: wp.array[int],
    frames: Frames,
    state: State,
    coords: wp.array3d[float],
    out: Nodes,
  ):
    world, it = wp.tid()
    n = nodes[it]
    k = tree.parent[n]
    kind = tree.kind[n]
    d = tree.dofadr[n]
    xk = out.xpos[world, k]
    x, q, axis, arm = placed(tree, frames, state, world, n, xk, out.xquat[world, k])
    out.xpos[world, n] = x
    out.xquat[world, n] = q
    r = x - xk
    fv = out.vel[world, k]
    tv = twist(kind, axis, q, state.qvel, world, d)
    out.vel[world, n] = moved(fv, r, arm, tv)
    for f in range(wp.static(fields.count)):
      t = twist(kind, axis, q, coords[f], world, d)
      out.fields[f, world, n] = moved(out.fields[f, world, k], r, arm, t)
    if wp.static(polar):
      tu = twist(kind, axis, q, coords[wp.static(fields.a)], world, d)
      tu = tu - twist(kind, axis, q, coords[wp.static(fields.z)], world, d)
      fu = out.fields[wp.static(fields.a), world, k] - out.fields[wp.static(fields.z), world, k]
      out.polar[world, n] = turned(out.polar[world, k], fv, fu, r, arm, tv, tu)
    om = wp.spatial_top(fv)
    rel = wp.spatial_top(tv)
    about = wp.cross(rel, arm)
    ta = twist(kind, axis, q, state.qacc, world, d)
    fa = out.acc[world, k]
    ang = wp.spatial_top(fa) + wp.spatial_top(ta) + wp.cross(om, rel)
    lin = point_acceleration(fa, om, r) + wp.cross(wp.spatial_top(ta), arm)
    lin = lin + wp.spatial_bottom(ta) + wp.cross(rel, about)
    lin = lin + 2.0 * wp.cross(om, about + wp.spatial_bottom(tv))
    out.acc[world, n] = wp.spatial_vector(ang, lin)

  return sweep


class Sweep:
  """The node arrays of a workspace and the launches that fill them.

  Args:
    mjm: the model.
    tape: records the launches.
    frames: the `Frames` of the model.
    state: the `State` of the workspace.
    fields: which frozen velocities are carried.
    track: whether these get a gradient.
    polar: whether the derivative of the acceleration by the velocity is carried.
  """

  def __init__(
    self,
    mjm: mujoco.MjModel,
    tape: Tape,
    *,
    frames: Frames,
    state: State,
    fields: Fields,
    track: bool = False,
    polar: bool = False,
  ):
    """See the class."""
    self.topology = top = topology(mjm)
    self.fields = fields
    ints = {k: wp.array(x, dtype=int, device=tape.device) for k, x in top.arrays.items()}
    self.tree = tape.struct(Tree, **ints)
    shape = (tape.nworld, fields.count)
    self.coords = wp.zeros((shape[1], shape[0], mjm.nv), dtype=float, device=tape.device)
    if track:
      tape.track(self.coords)
    self.slices = [self.coords[i] for i in range(fields.count)]
    self.arrays = dict(
      xpos=tape.array(top.count, dtype=wp.vec3),
      xquat=tape.array(top.count, dtype=wp.quat),
      vel=tape.array(top.count, dtype=wp.spatial_vector),
      acc=tape.array(top.count, dtype=wp.spatial_vector),
      fields=tape.stack(fields.count, top.count, dtype=wp.spatial_vector),
      polar=tape.array(top.count if polar else 1, dtype=wp.spatial_vector),
    )
    identity = wp.quat(1.0, 0.0, 0.0, 0.0)  # of the world, which no launch writes
    self.arrays["xquat"].fill_(identity)
    self.nodes = tape.struct(Nodes, **self.arrays)
    self.carried = Carried(self.nodes, self.coords, fields.count)
    kernel = sweep_kernel(fields, polar=polar)
    for level in top.levels:
      nodes = wp.array(level, dtype=int, device=tape.device)
      inputs = [self.tree, nodes, frames, state, self.coords, self.nodes]
      tape.launch(kernel, (tape.nworld, len(level)), inputs=inputs, outputs=[])
