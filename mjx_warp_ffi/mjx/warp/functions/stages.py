"""The stages of the forward dynamics, each with all that it builds on.

A stage is a pure function of the state: it runs the pipeline from the start to its own end, so that
its results do not depend on what an earlier call has left in a workspace.
"""

from __future__ import annotations

from collections.abc import Callable

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import forward as mjw_forward
from mujoco_warp._src import sleep as mjw_sleep
from mujoco_warp._src import smooth as mjw_smooth

from mjx_warp_ffi.mjx.data.enums import DisableBit, EnableBit
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope
from mjx_warp_ffi.mjx.warp.ffi import Staged
from mjx_warp_ffi.mjx.warp.functions.forward import CONTACTS, absent
from mjx_warp_ffi.mjx.warp.gradient.vjp import differentiable


@wp.kernel(enable_backward=False)
def world_body(
  # Data out:
  xpos: wp.array2d[wp.vec3],
  xquat: wp.array2d[wp.quat],
  xmat: wp.array2d[wp.mat33],
  xipos: wp.array2d[wp.vec3],
  ximat: wp.array2d[wp.mat33],
):
  """The pose of the world body: the identity, a thread a world."""
  world = wp.tid()
  xpos[world, 0] = wp.vec3()
  xquat[world, 0] = wp.quat(1.0, 0.0, 0.0, 0.0)
  xmat[world, 0] = wp.identity(n=3, dtype=float)
  xipos[world, 0] = wp.vec3()
  ximat[world, 0] = wp.identity(n=3, dtype=float)


Run = Callable[[mjw.Model, mjw.Data], None]


def begin(m: mjw.Model, d: mjw.Data) -> None:
  """The pose of the world, which mujoco_warp sets in make_data only, and the trees that wake."""
  wp.launch(world_body, d.nworld, outputs=[d.xpos, d.xquat, d.xmat, d.xipos, d.ximat])
  if m.opt.enableflags & EnableBit.SLEEP and not m.opt.disableflags & DisableBit.ISLAND:
    mjw_sleep.wake(m, d)
    mjw_sleep.update_sleep(m, d)


def no_sensors(m: mjw.Model, d: mjw.Data) -> None:
  """Zeroes the sensors, as the first of their stages expects."""
  d.sensordata.zero_()


def tendon_bias(m: mjw.Model, d: mjw.Data) -> None:
  """Adds the bias force of moving tendon inertia to qfrc_bias."""
  mjw_smooth.tendon_bias(m, d, d.qfrc_bias)


def rne_with_acceleration(m: mjw.Model, d: mjw.Data) -> None:
  """The bias force with the force of the acceleration qacc in it."""
  mjw.rne(m, d, flg_acc=True)


def solve_constraints(m: mjw.Model, d: mjw.Data) -> None:
  """The constraint solve; with the discrete integrator it ends with a correction of free bodies."""
  mjw.solve(m, d)
  if m.opt.integrator == mjw.IntegratorType.DISCRETE:
    mjw_forward._launch_discrete_free_gyro(m, d, d.qacc, d.qacc, False)


def acceleration_sensors(m: mjw.Model, d: mjw.Data) -> None:
  """The sensors of the acceleration stage, and the body accelerations if one reads them."""
  mjw.sensor_acc(m, d)


def mass_matrix(m: mjw.Model, d: mjw.Data) -> None:
  """The joint-space inertia from the axes and inertias that `d` holds, armature included."""
  mjw.crb(m, d)
  mjw_smooth.tendon_armature(m, d)


POSITION: tuple[Run, ...] = (begin, mjw.fwd_position)
VELOCITY = (*POSITION, mjw.fwd_velocity)
ACTUATION = (*VELOCITY, mjw.fwd_actuation)
ACCELERATION = (*ACTUATION, mjw.fwd_acceleration)
SOLVE = (*ACCELERATION, solve_constraints)
_SENSED_POSITION = (*POSITION, no_sensors, mjw.sensor_pos)
_SENSED_VELOCITY = (*_SENSED_POSITION, mjw.fwd_velocity, mjw.sensor_vel)
_SENSED_ACCELERATION = (*_SENSED_VELOCITY, mjw.fwd_actuation, mjw.fwd_acceleration)
_SENSED_ACCELERATION += (solve_constraints, acceleration_sensors)


def chain(*parts: Run) -> Run:
  """One function that runs several."""

  def run(m: mjw.Model, d: mjw.Data) -> None:
    for part in parts:
      part(m, d)

  return run


# What each stage computes; a Data keeps its other fields. Those of a stage with contacts have them.
_POSES = ("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis")
_POSES += ("geom_xpos", "geom_xmat", "site_xpos", "site_xmat")
_CENTRES = (*_POSES, "subtree_com", "cinert", "cdof")
_FLEX = (*_CENTRES, "flexvert_xpos", "flexedge_length")
_CAMLIGHT = (*_CENTRES, "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
_LENGTHS = (*_CAMLIGHT, *_FLEX[len(_CENTRES) :], "ten_length")
_PLACED = (*_LENGTHS, "actuator_length", "ne", "nf", "nl", "nefc", "overflow", *CONTACTS)
_FIELDS = ("cvel", "cdof_dot")
_MOMENTA = ("subtree_linvel", "subtree_angmom")
_RATES = (*_PLACED, *_FIELDS, "ten_velocity", "actuator_velocity", "flexedge_velocity")
_PASSIVE = ("qfrc_bias", "qfrc_passive", "qfrc_spring", "qfrc_damper", "qfrc_gravcomp")
_PASSIVE += ("qfrc_fluid", "qfrc_adhesion")
_MOVING = (*_RATES, *_PASSIVE)
_DRIVEN = (*_MOVING, "actuator_force", "qfrc_actuator", "act_dot")
_PUSHED = (*_DRIVEN, "qfrc_smooth", "qacc_smooth")
_SOLVED = (*_PUSHED, "qacc", "qfrc_constraint", "solver_niter")
_REACTIONS = ("cacc", "cfrc_int", "cfrc_ext")


def _stage(
  name: str,
  scope: Scope,
  computes: tuple[str, ...],
  *,
  runs: tuple[Run, ...],
  rows: bool = True,
  reads: tuple[str, ...] = (),
) -> Callable[[Model, Data], Data]:
  """A part of the pipeline as a function of one world, with its derivative."""

  def outputs(m: Model) -> tuple[str, ...]:
    left = absent(m.spec)
    return tuple(n for n in computes if n not in left)

  return differentiable(Staged(chain(*runs), name, outputs), scope, rows=rows, reads=reads)


def _kinematic(name: str, computes: tuple[str, ...], *runs: Run) -> Callable[[Model, Data], Data]:
  """A stage before collisions and constraints."""
  return _stage(name, Scope.FORCES, computes, runs=(begin, *runs), rows=False)


kinematics = _kinematic("kinematics", _POSES, mjw.kinematics)
com_pos = _kinematic("com_pos", _CENTRES, mjw.kinematics, mjw.com_pos)
camlight = _kinematic("camlight", _CAMLIGHT, mjw.kinematics, mjw.com_pos, mjw.camlight)
tendon = _kinematic("tendon", _LENGTHS, mjw.fwd_kinematics)
flex = _kinematic("flex", _FLEX, mjw.kinematics, mjw.com_pos, mjw.flex)
_VELOCITIES = (mjw.kinematics, mjw.com_pos, mjw.com_vel)
com_vel = _kinematic("com_vel", (*_CENTRES, *_FIELDS), *_VELOCITIES)
subtree_vel = _kinematic(
  "subtree_vel", (*_CENTRES, *_FIELDS, *_MOMENTA), *_VELOCITIES, mjw.subtree_vel
)
energy_pos = _kinematic("energy_pos", (*_LENGTHS, "energy"), mjw.fwd_kinematics, mjw.energy_pos)
energy_vel = _kinematic(
  "energy_vel", (*_LENGTHS, "energy"), mjw.fwd_kinematics, mass_matrix, mjw.energy_vel
)

fwd_position = _stage("fwd_position", Scope.FORCES, _PLACED, runs=POSITION)
fwd_velocity = _stage("fwd_velocity", Scope.FORCES, _MOVING, runs=VELOCITY)
fwd_actuation = _stage("fwd_actuation", Scope.FORCES, _DRIVEN, runs=ACTUATION)
fwd_acceleration = _stage("fwd_acceleration", Scope.SMOOTH, _PUSHED, runs=ACCELERATION)
solve = _stage("solve", Scope.FORWARD, _SOLVED, runs=SOLVE)
rne_postconstraint = _stage(
  "rne_postconstraint",
  Scope.FORWARD,
  (*_SOLVED, *_REACTIONS),
  runs=(*SOLVE, mjw.rne_postconstraint),
)
sensor_pos = _stage("sensor_pos", Scope.FORCES, (*_PLACED, "sensordata"), runs=_SENSED_POSITION)
sensor_vel = _stage("sensor_vel", Scope.FORCES, (*_MOVING, "sensordata"), runs=_SENSED_VELOCITY)
sensor_acc = _stage(
  "sensor_acc", Scope.FORWARD, (*_SOLVED, "sensordata"), runs=_SENSED_ACCELERATION
)

# These start from the acceleration in the Data.
rne_with_qacc = _stage(
  "rne",
  Scope.RNE,
  _MOVING,
  runs=(*VELOCITY, rne_with_acceleration, tendon_bias),
  reads=("qacc",),
)
inverse = _stage(
  "inverse",
  Scope.INVERSE,
  (*_MOVING, "qfrc_constraint", "qfrc_inverse", "sensordata"),
  runs=(begin, no_sensors, mjw.inverse),
  reads=("qacc", "actuator_force", "qfrc_actuator"),  # the forces for their sensors
)
