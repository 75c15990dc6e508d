"""The force law of a row of constraints, and what rows are made from.

A row's force is -D (J qacc - aref). In a discrete step the reference is met at the end of the step,
and D is rescaled with the effective inertia, see `discrete_inertia.py`.
"""

import dataclasses

import warp as wp
from mujoco_warp._src.constraint import _contact_kbimp
from mujoco_warp._src.types import (
  MJ_MAXIMP,
  MJ_MINVAL,
  DisableBit,
  vec5,
  vec12,
)

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

# what a row is, to its law
TIE = 0
TOUCH = 1  # a limit or contact, whose spring a discrete step makes as soft as it can resolve
SLIP = 2  # friction loss, without a spring

# The model fields that rows of joints, of tendons and of equalities are made from.
JOINT_ROW_LEAVES = (
  *("jnt_solref", "jnt_solimp", "jnt_range", "jnt_margin"),
  *("dof_solref", "dof_solimp", "dof_frictionloss", "dof_invweight0", "qpos0"),
)
TENDON_ROW_LEAVES = (
  *("tendon_solref_lim", "tendon_solimp_lim", "tendon_solref_fri", "tendon_solimp_fri"),
  *("tendon_range", "tendon_margin", "tendon_frictionloss"),
  *("tendon_invweight0", "tendon_length0"),
)
EQUALITY_LEAVES = ("eq_solref", "eq_solimp", "eq_data")

FAINT = wp.constant(1e-6)  # the least share of an impedance, for 1 / 0 has no gradient


@struct
class Rows:
  """The rows that MJWarp made, and the constants of their force law."""

  flags: int
  discrete: bool
  world_fastest: bool  # see `Tape`
  acceleration: int  # the number of qacc among the carried velocities
  timestep: wp.array[float]
  type: wp.array2d[int]
  id: wp.array2d[int]
  state: wp.array2d[int]
  nefc: wp.array[int]
  mass: wp.array2d[float]  # of a discrete step: sum_c J_c^2 / M_cc
  metric: wp.array2d[float]  # sum_c J_c^2 / H_cc


@struct
class JointRows:
  """Limits and friction of joints: model fields."""

  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]
  jnt_dofadr: wp.array[int]
  jnt_solref: wp.array2d[wp.vec2]
  jnt_solimp: wp.array2d[vec5]
  jnt_range: wp.array2d[wp.vec2]
  jnt_margin: wp.array2d[float]
  dof_solref: wp.array2d[wp.vec2]
  dof_solimp: wp.array2d[vec5]
  dof_frictionloss: wp.array2d[float]
  dof_invweight0: wp.array2d[float]
  qpos0: wp.array2d[float]


@struct
class TendonRows:
  """Limits and friction of tendons: model fields."""

  tendon_solref_lim: wp.array2d[wp.vec2]
  tendon_solimp_lim: wp.array2d[vec5]
  tendon_solref_fri: wp.array2d[wp.vec2]
  tendon_solimp_fri: wp.array2d[vec5]
  tendon_range: wp.array2d[wp.vec2]
  tendon_margin: wp.array2d[float]
  tendon_frictionloss: wp.array2d[float]
  tendon_invweight0: wp.array2d[float]
  tendon_length0: wp.array2d[float]


@struct
class Equalities:
  """Equality constraints: model fields."""

  eq_type: wp.array[int]
  eq_obj1id: wp.array[int]
  eq_obj2id: wp.array[int]
  eq_objtype: wp.array[int]
  eq_solref: wp.array2d[wp.vec2]
  eq_solimp: wp.array2d[vec5]
  eq_data: wp.array2d[vec12]


@wp.func
def soft_spring(h: float, k: float, b: float, imp: float):
  """The spring and damper of a discrete step whose spring it can resolve."""
  excess = h * h * k * imp
  if excess > 1.0:
    most = MJ_MAXIMP * (1.0 - imp) / (imp * (1.0 - MJ_MAXIMP))
    k = 1.0 / (h * h * imp)
    b = wp.min(b / wp.sqrt(excess), wp.max(0.0, most - 2.0) / h)
  return k, b


@wp.func
def row_law(
  rows: Rows, world: int, kind: int, solref: wp.vec2, solimp: vec5, pos_imp: float
) -> wp.vec4:
  """The spring and the damper of a row, aref = -spring pos - damper J qvel; impedance and gain.

  The impedance is that at a position. A discrete step divides aref and 1/D by the gain.
  """
  h = of_world(rows.timestep, world)
  kbi = _contact_kbimp(rows.flags, h, solref, solimp, pos_imp, rows.discrete)
  imp = kbi[2]
  law = wp.vec4(kbi[0] * imp, kbi[1], imp, 1.0)
  if rows.discrete:
    k = kbi[0]
    b = kbi[1]
    if kind == SLIP:
      k = 0.0
    if kind == TOUCH and solref[0] > 0.0 and (rows.flags & DisableBit.REFSAFE) == 0:
      k, b = soft_spring(h, k, b, imp)
    gain = 1.0 + h * b + h * h * k * imp
    law = wp.vec4(k * imp / gain, (b + h * k * imp) / gain, imp, gain)
  return law


@wp.func
def soft_law(gap: float, width: float):
  """The position of a smoothed contact, the share of its impedance, and where to take that."""
  pos = gap - 0.5 * width
  share = wp.float32(1.0)
  depth = gap
  if gap > 0.0:
    left = wp.max(1.0 - gap / width, 0.0)
    pos = -0.5 * width * left * left
    share = wp.max(left * left * (3.0 - 2.0 * left), FAINT)
    depth = 0.0
  return pos, share, depth


@wp.func
def regularisation(invweight: float, imp: float) -> float:
  """The stiffness D of a row."""
  return 1.0 / wp.max(invweight * (1.0 - imp) / imp, MJ_MINVAL)


@wp.func
def stiffness(rows: Rows, invweight: float, law: wp.vec4, mass: float, metric: float) -> float:
  """The stiffness D of a row, for a discrete step rescaled by mass / metric."""
  d = regularisation(invweight, law[2])
  if rows.discrete:
    least = regularisation(invweight, MJ_MAXIMP)
    d = wp.min(d * law[3], least)
    if mass > MJ_MINVAL:
      d = d * mass / metric
  return d


@wp.func
def quadratic_power(
  rows: Rows,
  world: int,
  r: int,
  kind: int,
  solref: wp.vec2,
  solimp: vec5,
  invweight: float,
  pos: float,
  jv: float,
  ja: float,
  jw: float,
) -> float:
  """The power of a row with a quadratic cost."""
  law = row_law(rows, world, kind, solref, solimp, pos)
  residual = ja + law[1] * jv + law[0] * pos
  d = regularisation(invweight, law[2])
  if rows.discrete:
    d = stiffness(rows, invweight, law, rows.mass[world, r], rows.metric[world, r])
  return -d * residual * jw


@wp.func
def polynomial(data: vec12, x: float):
  """The quartic of an equality and its slope."""
  y = data[0] + x * (data[1] + x * (data[2] + x * (data[3] + x * data[4])))
  slope = data[1] + x * (2.0 * data[2] + x * (3.0 * data[3] + x * 4.0 * data[4]))
  return y, slope


@dataclasses.dataclass(frozen=True)
class Constraints:
  """What all kinds of constraint rows are made from.

  Attributes:
    rows: the rows of the workspace, and the constants of their force law.
    equalities: the equality constraints of the model.
  """

  rows: Rows
  equalities: Equalities


def make_constraints(rec: Recording, kin: Kinematics) -> Constraints:
  """The rows and the equality constraints."""
  return Constraints(rows=make_rows(rec, kin), equalities=make_equalities(rec))


def make_rows(rec: Recording, kin: Kinematics) -> Rows:
  """The rows of the workspace."""
  d, tape, discrete = rec.d, rec.tape, rec.scheme.discrete
  shape = d.njmax if discrete else 1
  return tape.struct(
    Rows,
    flags=int(rec.m.opt.disableflags),
    discrete=discrete,
    world_fastest=tape.world_fastest,
    acceleration=kin.velocities.acceleration,
    timestep=rec.leaf("opt.timestep"),
    type=d.efc.type,
    id=d.efc.id,
    state=d.efc.state,
    nefc=d.nefc,
    mass=tape.array(shape),
    metric=tape.array(shape),
  )


def make_equalities(rec: Recording) -> Equalities:
  """The equality constraints of the model."""
  fixed = rec.fixed("eq_type", "eq_obj1id", "eq_obj2id", "eq_objtype")
  leaves = rec.leaves(*EQUALITY_LEAVES)
  return rec.tape.struct(Equalities, **fixed, **leaves)


def make_joint_rows(rec: Recording) -> JointRows:
  """The limits and the friction loss of the joints."""
  fixed = rec.fixed("jnt_type", "jnt_qposadr", "jnt_dofadr")
  return rec.tape.struct(JointRows, **fixed, **rec.leaves(*JOINT_ROW_LEAVES))


def make_tendon_rows(rec: Recording) -> TendonRows:
  """The limits and the friction loss of the tendons."""
  return rec.tape.struct(TendonRows, **rec.leaves(*TENDON_ROW_LEAVES))


def bound(rec: Recording) -> int:
  """How many rows the equalities, friction losses and limits can have."""
  m = rec.m
  return min(rec.d.njmax, 6 * m.neq + m.nv + m.njnt + 2 * m.ntendon)
