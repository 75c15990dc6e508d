"""The power of constraint rows that are not contacts: limits, friction loss and equalities.

A row's force is a function of its position, J qvel and J qacc, all read off the joints and the
fields; which rows exist and which side of the force law holds stays as the solver left it.
"""

import warp as wp
from mujoco_warp._src.types import ConstraintState, ConstraintType, EqType, JointType, vec5

from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import (
  EQUALITY_LEAVES,
  JOINT_ROW_LEAVES,
  SLIP,
  TENDON_ROW_LEAVES,
  TIE,
  TOUCH,
  Constraints,
  Equalities,
  JointRows,
  Rows,
  TendonRows,
  bound,
  make_joint_rows,
  make_tendon_rows,
  polynomial,
  quadratic_power,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import State
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  rotation_vector,
  safe_length,
  unit_at,
  vec_at,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import world_and_item


@wp.func
def limited_joint(
  rows: Rows, joints: JointRows, state: State, coords: wp.array3d[float], world: int, j: int
):
  """The position of a joint's limit, and its rates along qvel, qacc and field 0."""
  i = joints.jnt_qposadr[j]
  d = joints.jnt_dofadr[j]
  limits = of_world(joints.jnt_range, world, j)
  margin = of_world(joints.jnt_margin, world, j)
  pos = wp.float32(0.0)
  jv = wp.float32(0.0)
  ja = wp.float32(0.0)
  jw = wp.float32(0.0)
  if joints.jnt_type[j] == JointType.BALL:
    turn = rotation_vector(unit_at(state.qpos, world, i))
    angle = safe_length(turn)
    axis = -turn / angle
    pos = wp.max(limits[0], limits[1]) - angle - margin
    jv = wp.dot(axis, vec_at(state.qvel, world, d))
    ja = wp.dot(axis, vec_at(coords[rows.acceleration], world, d))
    jw = wp.dot(axis, vec_at(coords[0], world, d))
  else:
    lower = state.qpos[world, i] - limits[0]
    upper = limits[1] - state.qpos[world, i]
    side = wp.float32(-1.0)
    pos = upper - margin
    if lower < upper:
      side = 1.0
      pos = lower - margin
    jv = side * state.qvel[world, d]
    ja = side * coords[rows.acceleration, world, d]
    jw = side * coords[0, world, d]
  return pos, jv, ja, jw


@wp.func
def joint_limit_law(joints: JointRows, world: int, j: int):
  """The solref, the solimp and the inverse weight of a joint's limit."""
  d = joints.jnt_dofadr[j]
  solref = of_world(joints.jnt_solref, world, j)
  solimp = of_world(joints.jnt_solimp, world, j)
  return solref, solimp, of_world(joints.dof_invweight0, world, d)


@wp.func
def limited_tendon(rows: Rows, tendons: TendonRows, rates: Rates, world: int, t: int):
  """The position of a tendon's limit, and its rates along qvel, qacc and field 0."""
  limits = of_world(tendons.tendon_range, world, t)
  lower = rates.length[world, t] - limits[0]
  upper = limits[1] - rates.length[world, t]
  side = wp.float32(-1.0)
  pos = upper
  if lower < upper:
    side = 1.0
    pos = lower
  pos = pos - of_world(tendons.tendon_margin, world, t)
  jv = side * rates.velocity[world, t]
  ja = side * rates.fields[rows.acceleration, world, t]
  jw = side * rates.fields[0, world, t]
  return pos, jv, ja, jw


@wp.func
def tendon_limit_law(tendons: TendonRows, world: int, t: int):
  """The solref, the solimp and the inverse weight of a tendon's limit."""
  solref = of_world(tendons.tendon_solref_lim, world, t)
  solimp = of_world(tendons.tendon_solimp_lim, world, t)
  return solref, solimp, of_world(tendons.tendon_invweight0, world, t)


@wp.func
def _equality_law(equalities: Equalities, world: int, e: int):
  """The solref and the solimp of an equality."""
  solref = of_world(equalities.eq_solref, world, e)
  return solref, of_world(equalities.eq_solimp, world, e)


@wp.func
def _slipping(rows: Rows, world: int, r: int) -> float:
  """The sign of the force of a row of friction loss that slips, 0 if it sticks."""
  sign = wp.float32(0.0)
  if rows.state[world, r] == ConstraintState.LINEARNEG:
    sign = 1.0
  elif rows.state[world, r] == ConstraintState.LINEARPOS:
    sign = -1.0
  return sign


@wp.func
def _equality_joint(
  rows: Rows,
  equalities: Equalities,
  joints: JointRows,
  state: State,
  coords: wp.array3d[float],
  world: int,
  e: int,
):
  """The inverse weight, position and rates of two joints tied by a polynomial, or one held."""
  j1 = equalities.eq_obj1id[e]
  j2 = equalities.eq_obj2id[e]
  data = of_world(equalities.eq_data, world, e)
  i1 = joints.jnt_qposadr[j1]
  d1 = joints.jnt_dofadr[j1]
  row0 = world % joints.qpos0.shape[0]
  roww = world % joints.dof_invweight0.shape[0]
  pos = state.qpos[world, i1] - joints.qpos0[row0, i1]
  jv = state.qvel[world, d1]
  ja = coords[rows.acceleration, world, d1]
  jw = coords[0, world, d1]
  weight = joints.dof_invweight0[roww, d1]
  if j2 >= 0:
    i2 = joints.jnt_qposadr[j2]
    d2 = joints.jnt_dofadr[j2]
    y, slope = polynomial(data, state.qpos[world, i2] - joints.qpos0[row0, i2])
    pos = pos - y
    jv = jv - slope * state.qvel[world, d2]
    ja = ja - slope * coords[rows.acceleration, world, d2]
    jw = jw - slope * coords[0, world, d2]
    weight = weight + joints.dof_invweight0[roww, d2]
  else:
    pos = pos - data[0]
  return weight, pos, jv, ja, jw


@wp.func
def _equality_tendon(
  rows: Rows, equalities: Equalities, tendons: TendonRows, rates: Rates, world: int, e: int
):
  """The inverse weight, position and rates of two tendons tied by a polynomial, or one held."""
  t1 = equalities.eq_obj1id[e]
  t2 = equalities.eq_obj2id[e]
  data = of_world(equalities.eq_data, world, e)
  row0 = world % tendons.tendon_length0.shape[0]
  roww = world % tendons.tendon_invweight0.shape[0]
  pos = rates.length[world, t1] - tendons.tendon_length0[row0, t1]
  jv = rates.velocity[world, t1]
  ja = rates.fields[rows.acceleration, world, t1]
  jw = rates.fields[0, world, t1]
  weight = tendons.tendon_invweight0[roww, t1]
  if t2 >= 0:
    y, slope = polynomial(data, rates.length[world, t2] - tendons.tendon_length0[row0, t2])
    pos = pos - y
    jv = jv - slope * rates.velocity[world, t2]
    ja = ja - slope * rates.fields[rows.acceleration, world, t2]
    jw = jw - slope * rates.fields[0, world, t2]
    weight = weight + tendons.tendon_invweight0[roww, t2]
  else:
    pos = pos - data[0]
  return weight, pos, jv, ja, jw


@wp.kernel(module="unique")
def joint_row_power(
  # In:
  rows: Rows,
  # Model:
  joints: JointRows,
  equalities: Equalities,
  # In:
  state: State,
  coords: wp.array3d[float],
  # Out:
  power: wp.array2d[float],
):
  """Limits, friction and equalities of joints, a thread per world and row."""
  i, j = wp.tid()
  world, r = world_and_item(i, j, rows.world_fastest)
  law = wp.int32(-1)
  solref = wp.vec2()
  solimp = vec5()
  weight = wp.float32(0.0)
  pos = wp.float32(0.0)
  jv = wp.float32(0.0)
  ja = wp.float32(0.0)
  jw = wp.float32(0.0)
  p = wp.float32(0.0)
  if r < rows.nefc[world]:
    kind = rows.type[world, r]
    k = rows.id[world, r]
    if kind == ConstraintType.LIMIT_JOINT:
      if rows.state[world, r] == ConstraintState.QUADRATIC:
        law = TOUCH
        pos, jv, ja, jw = limited_joint(rows, joints, state, coords, world, k)
        solref, solimp, weight = joint_limit_law(joints, world, k)
    elif kind == ConstraintType.FRICTION_DOF:
      jw = coords[0, world, k]
      sign = _slipping(rows, world, r)
      if sign == 0.0:
        law = SLIP
        solref = of_world(joints.dof_solref, world, k)
        solimp = of_world(joints.dof_solimp, world, k)
        weight = of_world(joints.dof_invweight0, world, k)
        jv = state.qvel[world, k]
        ja = coords[rows.acceleration, world, k]
      else:
        p = sign * of_world(joints.dof_frictionloss, world, k) * jw
    elif kind == ConstraintType.EQUALITY:
      if equalities.eq_type[k] == EqType.JOINT:
        law = TIE
        solref, solimp = _equality_law(equalities, world, k)
        weight, pos, jv, ja, jw = _equality_joint(rows, equalities, joints, state, coords, world, k)
  if law >= 0:
    p = quadratic_power(rows, world, r, law, solref, solimp, weight, pos, jv, ja, jw)
  power[world, r] = p


@wp.kernel(module="unique")
def tendon_row_power(
  # In:
  rows: Rows,
  # Model:
  tendons: TendonRows,
  equalities: Equalities,
  # In:
  rates: Rates,
  # Out:
  power: wp.array2d[float],
):
  """Limits, friction and equalities of tendons, a thread per world and row."""
  i, j = wp.tid()
  world, r = world_and_item(i, j, rows.world_fastest)
  law = wp.int32(-1)
  solref = wp.vec2()
  solimp = vec5()
  weight = wp.float32(0.0)
  pos = wp.float32(0.0)
  jv = wp.float32(0.0)
  ja = wp.float32(0.0)
  jw = wp.float32(0.0)
  p = wp.float32(0.0)
  if r < rows.nefc[world]:
    kind = rows.type[world, r]
    k = rows.id[world, r]
    if kind == ConstraintType.LIMIT_TENDON:
      if rows.state[world, r] == ConstraintState.QUADRATIC:
        law = TOUCH
        pos, jv, ja, jw = limited_tendon(rows, tendons, rates, world, k)
        solref, solimp, weight = tendon_limit_law(tendons, world, k)
    elif kind == ConstraintType.FRICTION_TENDON:
      jw = rates.fields[0, world, k]
      sign = _slipping(rows, world, r)
      if sign == 0.0:
        law = SLIP
        solref = of_world(tendons.tendon_solref_fri, world, k)
        solimp = of_world(tendons.tendon_solimp_fri, world, k)
        weight = of_world(tendons.tendon_invweight0, world, k)
        jv = rates.velocity[world, k]
        ja = rates.fields[rows.acceleration, world, k]
      else:
        loss = of_world(tendons.tendon_frictionloss, world, k)
        p = sign * loss * jw
    elif kind == ConstraintType.EQUALITY:
      if equalities.eq_type[k] == EqType.TENDON:
        law = TIE
        solref, solimp = _equality_law(equalities, world, k)
        weight, pos, jv, ja, jw = _equality_tendon(rows, equalities, tendons, rates, world, k)
  if law >= 0:
    p = quadratic_power(rows, world, r, law, solref, solimp, weight, pos, jv, ja, jw)
  power[world, r] = p


def record(
  rec: Recording,
  kin: Kinematics,
  constraints: Constraints,
  *,
  tendons: "Rates | None",
  apart: bool = False,
) -> None:
  """Records limits, friction loss and equalities of joints and tendons.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    constraints: the rows.
    tendons: the lengths of the tendons, None if there are none.
    apart: whether the rows of joints may run beside the rest of a section of the tape.
  """
  tape, dim = rec.tape, bound(rec)
  rows, equalities = constraints.rows, constraints.equalities
  inputs = [rows, make_joint_rows(rec), equalities, kin.state, kin.coords]
  with tape.beside(apart):
    tape.power(joint_row_power, dim, inputs=inputs)
  if rec.m.ntendon:
    inputs = [rows, make_tendon_rows(rec), equalities, tendons]
    tape.power(tendon_row_power, dim, inputs=inputs)


PART = Part(
  parameters=(*JOINT_ROW_LEAVES, *TENDON_ROW_LEAVES, *EQUALITY_LEAVES, "opt.timestep"),
)
