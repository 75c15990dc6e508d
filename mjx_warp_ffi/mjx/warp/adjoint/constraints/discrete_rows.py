"""The sums over the dofs with which a discrete step rescales a row; see `discrete_inertia.py`.

A row's sums are `mass`, that of J_c^2 / M_cc, and `metric`, that of J_c^2 / H_cc.
"""

import warp as wp
from mujoco_warp._src.types import ConstraintType, EqType, JointType

from mjx_warp_ffi.mjx.warp.adjoint.constraints.discrete_inertia import Diagonals, DiscreteInertia
from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import (
  Constraints,
  Equalities,
  JointRows,
  Rows,
  TendonRows,
  bound,
  make_joint_rows,
  make_tendon_rows,
  polynomial,
)
from mjx_warp_ffi.mjx.warp.adjoint.constraints.welds import ends, rotation_rate
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Sites
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  point_velocity,
  rotation_vector,
  unit_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording


@wp.func
def _joint_entry(
  rows: Rows, joints: JointRows, equalities: Equalities, state: State, world: int, r: int, k: int
):
  """The dof of the k-th entry of a row of joints, -1 if there is none, and its square."""
  kind = rows.type[world, r]
  o = rows.id[world, r]
  c = wp.int32(-1)
  x = wp.float32(1.0)
  if kind == ConstraintType.LIMIT_JOINT:
    if joints.jnt_type[o] == JointType.BALL:
      turn = rotation_vector(unit_at(state.qpos, world, joints.jnt_qposadr[o]))
      x = turn[k] * turn[k] / wp.dot(turn, turn)
      c = joints.jnt_dofadr[o] + k
    elif k == 0:
      c = joints.jnt_dofadr[o]
  elif kind == ConstraintType.FRICTION_DOF:
    if k == 0:
      c = o
  elif kind == ConstraintType.EQUALITY:
    if equalities.eq_type[o] == EqType.JOINT:
      j2 = equalities.eq_obj2id[o]
      if k == 0:
        c = joints.jnt_dofadr[equalities.eq_obj1id[o]]
      elif k == 1 and j2 >= 0:
        data = of_world(equalities.eq_data, world, o)
        i = joints.jnt_qposadr[j2]
        rest = of_world(joints.qpos0, world, i)
        y, slope = polynomial(data, state.qpos[world, i] - rest)
        c = joints.jnt_dofadr[j2]
        x = slope * slope
  return c, x


@wp.kernel(module="unique")
def joint_rows(
  # In and out:
  rows: Rows,
  # Model:
  joints: JointRows,
  equalities: Equalities,
  # In:
  state: State,
  diagonals: Diagonals,
):
  """Limits, friction and equalities of joints, a thread per world and row."""
  world, r = wp.tid()
  if r >= rows.nefc[world]:
    return
  mass = wp.float32(0.0)
  metric = wp.float32(0.0)
  for k in range(3):
    c, x = _joint_entry(rows, joints, equalities, state, world, r, k)
    if c >= 0:
      mass = mass + x / diagonals.mass[world, c]
      metric = metric + x / diagonals.metric[world, c]
  if mass > 0.0:
    rows.mass[world, r] = mass
    rows.metric[world, r] = metric


@wp.func
def _tendon_entry(
  tendons: TendonRows,
  equalities: Equalities,
  lengths: Rates,
  unit: Rates,
  world: int,
  e: int,
  c: int,
) -> float:
  """The entry of an equality of tendons."""
  t1 = equalities.eq_obj1id[e]
  t2 = equalities.eq_obj2id[e]
  x = unit.fields[c, world, t1]
  if t2 >= 0:
    data = of_world(equalities.eq_data, world, e)
    rest = of_world(tendons.tendon_length0, world, t2)
    y, slope = polynomial(data, lengths.length[world, t2] - rest)
    x = x - slope * unit.fields[c, world, t2]
  return x


@wp.kernel(module="unique")
def tendon_rows(
  # In and out:
  rows: Rows,
  # Model:
  tendons: TendonRows,
  equalities: Equalities,
  # In:
  lengths: Rates,
  unit: Rates,
  diagonals: Diagonals,
):
  """Limits, friction and equalities of tendons, a thread per world and row."""
  world, r = wp.tid()
  if r >= rows.nefc[world]:
    return
  kind = rows.type[world, r]
  o = rows.id[world, r]
  tied = wp.bool(False)
  if kind == ConstraintType.EQUALITY:
    tied = equalities.eq_type[o] == EqType.TENDON
  if not tied and kind != ConstraintType.LIMIT_TENDON and kind != ConstraintType.FRICTION_TENDON:
    return
  mass = wp.float32(0.0)
  metric = wp.float32(0.0)
  for c in range(diagonals.mass.shape[1]):
    x = wp.float32(0.0)
    if tied:
      x = _tendon_entry(tendons, equalities, lengths, unit, world, o, c)
    else:
      x = unit.fields[c, world, o]
    mass += x * x / diagonals.mass[world, c]
    metric += x * x / diagonals.metric[world, c]
  rows.mass[world, r] = mass
  rows.metric[world, r] = metric


@wp.func
def _place(rows: Rows, world: int, r: int) -> int:
  """Which row of its equality a row is."""
  k = wp.int32(0)
  for i in range(1, 6):
    if r >= i:
      tied = rows.type[world, r - i] == ConstraintType.EQUALITY
      if rows.id[world, r - i] == rows.id[world, r] and tied:
        k = i
  return k


@wp.kernel(module="unique")
def tied_rows(
  # In and out:
  rows: Rows,
  # Model:
  equalities: Equalities,
  # In:
  tree: Tree,
  nodes: Nodes,
  sites: Sites,
  diagonals: Diagonals,
):
  """Connects and welds, a thread per world and row; `nodes` have the unit velocities."""
  world, r = wp.tid()
  if r >= rows.nefc[world]:
    return
  if rows.type[world, r] != ConstraintType.EQUALITY:
    return
  e = rows.id[world, r]
  kind = equalities.eq_type[e]
  if kind != EqType.CONNECT and kind != EqType.WELD:
    return
  b0, n0, arm0, q0 = ends(equalities, tree, nodes, sites, world, e, 0)
  b1, n1, arm1, q1 = ends(equalities, tree, nodes, sites, world, e, 1)
  scale = of_world(equalities.eq_data, world, e)[10]
  k = _place(rows, world, r)
  mass = wp.float32(0.0)
  metric = wp.float32(0.0)
  for c in range(diagonals.mass.shape[1]):
    f0 = nodes.fields[c, world, n0]
    f1 = nodes.fields[c, world, n1]
    rate = wp.vec3(0.0)
    if k < 3:
      rate = point_velocity(f0, arm0) - point_velocity(f1, arm1)
    else:
      rate = rotation_rate(f0, f1, q0, q1, scale)
    x = rate[k % 3]
    mass += x * x / diagonals.mass[world, c]
    metric += x * x / diagonals.metric[world, c]
  rows.mass[world, r] = mass
  rows.metric[world, r] = metric


def record(
  rec: Recording,
  kin: Kinematics,
  constraints: Constraints,
  *,
  inertia: DiscreteInertia,
  tendons: "Rates | None",
) -> None:
  """Records the sums of all rows but those of contacts, in a discrete step.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    constraints: the rows.
    inertia: the diagonals of the inertia, and the unit velocities of the dofs.
    tendons: the lengths of the tendons, None if there are none.
  """
  tape, dim = rec.tape, (rec.tape.nworld, bound(rec))
  rows, equalities, diagonals = constraints.rows, constraints.equalities, inertia.diagonals
  inputs = [rows, make_joint_rows(rec), equalities, kin.state, diagonals]
  tape.launch(joint_rows, dim, inputs=inputs, outputs=[])
  if rec.m.ntendon:
    inputs = [rows, make_tendon_rows(rec), equalities, tendons, inertia.unit_tendons, diagonals]
    tape.launch(tendon_rows, dim, inputs=inputs, outputs=[])
  if rec.m.neq:
    inputs = [rows, equalities, kin.tree, inertia.unit.nodes, kin.sites, diagonals]
    tape.launch(tied_rows, dim, inputs=inputs, outputs=[])
