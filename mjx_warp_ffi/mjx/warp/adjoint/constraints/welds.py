"""The power of connect and weld equalities.

Their reference acceleration has Jdot qvel in it, so the rows see the true acceleration of the two
points; that is what `Nodes.acc` has, while J qacc itself enters alone only in a discrete step.
"""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import (
  ConstraintType,
  DisableBit,
  EqType,
  IntegratorType,
  ObjType,
  vec12,
)

from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import (
  EQUALITY_LEAVES,
  TIE,
  Constraints,
  Equalities,
  Rows,
  row_law,
  stiffness,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Sites, site_frame
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  conj,
  imag,
  mul,
  point_acceleration,
  point_velocity,
  pure,
  rotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class WeldWeights:
  """The inverse weights of the bodies, a model field, and the body whose weight each one has."""

  body_invweight0: wp.array2d[wp.vec2]
  body: wp.array[int]


@wp.func
def _arm(q: wp.quat, data: vec12, i: int) -> wp.vec3:
  """An anchor of the equality's data in world axes."""
  return rotate(q, wp.vec3(data[i], data[i + 1], data[i + 2]))


@wp.func
def ends(
  equalities: Equalities, tree: Tree, nodes: Nodes, sites: Sites, world: int, e: int, k: int
):
  """The body, node, arm and orientation of end k of an equality."""
  o = equalities.eq_obj1id[e]
  if k == 1:
    o = equalities.eq_obj2id[e]
  data = of_world(equalities.eq_data, world, e)
  weld = equalities.eq_type[e] == EqType.WELD
  body = o
  if equalities.eq_objtype[e] == ObjType.SITE:
    body = sites.site_bodyid[o]
  n = tree.of_body[body]
  q = nodes.xquat[world, n]
  arm = wp.vec3(0.0)
  if equalities.eq_objtype[e] == ObjType.SITE:
    n, arm, q = site_frame(sites, tree, nodes, world, o)
  else:
    if (k == 0) == weld:  # a weld has the anchor of its second body first
      arm = _arm(q, data, 3)
    else:
      arm = _arm(q, data, 0)
    if k == 0 and weld:
      q = mul(q, wp.quat(data[6], data[7], data[8], data[9]))
  return body, n, arm, q


@wp.func
def _rotation_residual(
  fv0: wp.spatial_vector,
  fv1: wp.spatial_vector,
  fa0: wp.spatial_vector,
  fa1: wp.spatial_vector,
  q0: wp.quat,
  q1: wp.quat,
  scale: float,
) -> wp.vec3:
  """The second derivative in time of scale * imag(conj(q1) q0)."""
  om0 = pure(wp.spatial_top(fv0))
  om1 = pure(wp.spatial_top(fv1))
  dom = pure(wp.spatial_top(fv0) - wp.spatial_top(fv1))
  dal = pure(wp.spatial_top(fa0) - wp.spatial_top(fa1))
  x = mul(mul(conj(0.5 * mul(om1, q1)), dom), q0)
  x = x + mul(mul(conj(q1), dal), q0)
  x = x + mul(mul(conj(q1), dom), 0.5 * mul(om0, q0))
  return 0.5 * scale * imag(x)


@wp.func
def rotation_rate(
  f0: wp.spatial_vector, f1: wp.spatial_vector, q0: wp.quat, q1: wp.quat, scale: float
) -> wp.vec3:
  """The rate of scale * imag(conj(q1) q0) along a velocity field."""
  dom = pure(wp.spatial_top(f0) - wp.spatial_top(f1))
  return 0.5 * scale * imag(mul(mul(conj(q1), dom), q0))


@wp.func
def _stiffnesses(rows: Rows, world: int, r: int, weight: float, law: wp.vec4) -> wp.vec3:
  """The stiffnesses D of three rows."""
  d = wp.vec3(stiffness(rows, weight, law, 0.0, 1.0))
  if rows.discrete:
    d = wp.vec3(
      stiffness(rows, weight, law, rows.mass[world, r], rows.metric[world, r]),
      stiffness(rows, weight, law, rows.mass[world, r + 1], rows.metric[world, r + 1]),
      stiffness(rows, weight, law, rows.mass[world, r + 2], rows.metric[world, r + 2]),
    )
  return d


@wp.func
def _acceleration(
  rows: Rows,
  nodes: Nodes,
  world: int,
  n0: int,
  n1: int,
  arm0: wp.vec3,
  arm1: wp.vec3,
  law: wp.vec4,
) -> wp.vec3:
  """The relative acceleration of both points, of which Jdot qvel is the reference's."""
  om0 = wp.spatial_top(nodes.vel[world, n0])
  om1 = wp.spatial_top(nodes.vel[world, n1])
  acc = point_acceleration(nodes.acc[world, n0], om0, arm0)
  acc = acc - point_acceleration(nodes.acc[world, n1], om1, arm1)
  if rows.discrete:
    qacc = point_velocity(nodes.fields[rows.acceleration, world, n0], arm0)
    qacc = qacc - point_velocity(nodes.fields[rows.acceleration, world, n1], arm1)
    acc = qacc + (acc - qacc) / law[3]
  return acc


@wp.func
def _turn_acceleration(
  rows: Rows,
  nodes: Nodes,
  world: int,
  n0: int,
  n1: int,
  q0: wp.quat,
  q1: wp.quat,
  scale: float,
  law: wp.vec4,
) -> wp.vec3:
  """The relative angular acceleration, scaled, of which likewise a part is the reference's."""
  fv0 = nodes.vel[world, n0]
  fv1 = nodes.vel[world, n1]
  acc = _rotation_residual(fv0, fv1, nodes.acc[world, n0], nodes.acc[world, n1], q0, q1, scale)
  if rows.discrete:
    fa0 = nodes.fields[rows.acceleration, world, n0]
    fa1 = nodes.fields[rows.acceleration, world, n1]
    qacc = rotation_rate(fa0, fa1, q0, q1, scale)
    acc = qacc + (acc - qacc) / law[3]
  return acc


@wp.func
def _tied_power(
  rows: Rows,
  weights: WeldWeights,
  equalities: Equalities,
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  cut: wp.array2d[wp.spatial_vector],
  given: bool,
  world: int,
  e: int,
  r: int,
) -> float:
  """The power of all rows of one connect or weld, from r on.

  It is that on the first carried velocity, or on the velocities `cut` of bodies if they are given.
  """
  b0, n0, arm0, q0 = ends(equalities, tree, nodes, sites, world, e, 0)
  b1, n1, arm1, q1 = ends(equalities, tree, nodes, sites, world, e, 1)
  fv0 = nodes.vel[world, n0]
  fv1 = nodes.vel[world, n1]
  fw0 = wp.spatial_vector()
  fw1 = wp.spatial_vector()
  if given:
    fw0 = cut[world, b0]
    fw1 = cut[world, b1]
  else:
    fw0 = nodes.fields[0, world, n0]
    fw1 = nodes.fields[0, world, n1]
  pos = nodes.xpos[world, n0] + arm0 - nodes.xpos[world, n1] - arm1
  vel = point_velocity(fv0, arm0) - point_velocity(fv1, arm1)
  virtual = point_velocity(fw0, arm0) - point_velocity(fw1, arm1)
  data = of_world(equalities.eq_data, world, e)
  weld = equalities.eq_type[e] == EqType.WELD
  scale = data[10]
  square = wp.dot(pos, pos)
  turn = wp.vec3(0.0)
  if weld:
    turn = scale * imag(mul(conj(q1), q0))
    square = square + wp.dot(turn, turn)
  size = wp.float32(0.0)
  if square > 0.0:
    size = wp.sqrt(square)
  solref = of_world(equalities.eq_solref, world, e)
  solimp = of_world(equalities.eq_solimp, world, e)
  law = row_law(rows, world, TIE, solref, solimp, size)
  row = world % weights.body_invweight0.shape[0]
  weight = weights.body_invweight0[row, weights.body[b0]]
  weight = weight + weights.body_invweight0[row, weights.body[b1]]
  acc = _acceleration(rows, nodes, world, n0, n1, arm0, arm1, law)
  force = _stiffnesses(rows, world, r, weight[0], law)
  p = -wp.dot(wp.cw_mul(force, acc + law[1] * vel + law[0] * pos), virtual)
  if weld:
    residual = _turn_acceleration(rows, nodes, world, n0, n1, q0, q1, scale, law)
    residual = residual + law[0] * turn + law[1] * rotation_rate(fv0, fv1, q0, q1, scale)
    rate = rotation_rate(fw0, fw1, q0, q1, scale)
    torque = _stiffnesses(rows, world, r + 3, weight[1], law)
    p = p - wp.dot(wp.cw_mul(torque, residual), rate)
  return p


@wp.kernel(module="unique")
def weld_row_power(
  # In:
  rows: Rows,
  # Model:
  weights: WeldWeights,
  equalities: Equalities,
  # In:
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  cut: wp.array2d[wp.spatial_vector],
  given: bool,
  # Out:
  power: wp.array2d[float],
):
  """Connects and welds, a thread per world and row: the first row of each does all of them."""
  world, r = wp.tid()
  p = wp.float32(0.0)
  if r < rows.nefc[world]:
    if rows.type[world, r] == ConstraintType.EQUALITY:
      e = rows.id[world, r]
      first = r == 0
      if r > 0:
        first = rows.id[world, r - 1] != e
      kind = equalities.eq_type[e]
      if first and (kind == EqType.CONNECT or kind == EqType.WELD):
        p = _tied_power(rows, weights, equalities, tree, nodes, sites, cut, given, world, e, r)
  power[world, r] = p


def record(
  rec: Recording, kin: Kinematics, constraints: Constraints, *, virtual: wp.array | None = None
) -> None:
  """Records the connects and welds.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    constraints: the rows and the equality constraints.
    virtual: velocities of the bodies at their origins, (nworld, nbody), which take the place of the
      first carried velocity.
  """
  m, tape = rec.m, rec.tape
  # MJWarp takes the weights of the bodies that these are welded to where J is sparse
  bodies = m.body_weldid.numpy() if m.is_sparse else np.arange(m.nbody)
  weights = tape.struct(WeldWeights, body=rec.constant(bodies), **rec.leaves("body_invweight0"))
  given = virtual is not None
  cut = wp.zeros((1, 1), dtype=wp.spatial_vector) if virtual is None else virtual
  inputs = [constraints.rows, weights, constraints.equalities]
  inputs += [kin.tree, kin.nodes, kin.sites, cut, given]
  dim = (tape.nworld, min(rec.d.njmax, 6 * m.neq))
  tape.power(weld_row_power, dim, inputs=inputs)


def act(mjm: mujoco.MjModel, m: mjw.Model) -> bool:
  """Whether connects or welds can act."""
  off = m.opt.disableflags & (DisableBit.CONSTRAINT | DisableBit.EQUALITY)
  return not off and bool(np.any(np.isin(mjm.eq_type, (EqType.CONNECT, EqType.WELD))))


def missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal for what has no rule with connects and welds."""
  if m.opt.integrator == IntegratorType.RK4 and m.opt.disableflags & DisableBit.CONTACT:
    if act(mjm, m):
      # the rows of later stages read velocities of the first: nothing calls back in between
      yield "RK4 with connects or welds and contacts off"


PART = Part(parameters=("body_invweight0", *EQUALITY_LEAVES, "opt.timestep"), missing=missing)
