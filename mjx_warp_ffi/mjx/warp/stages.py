"""The stages of the forward dynamics, each with all that it builds on.

A stage is a pure function of the state: it runs the pipeline up to and including itself, so that it
depends on nothing that an earlier call has left behind.
"""

from __future__ import annotations

from collections.abc import Callable

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import forward as mjw_forward
from mujoco_warp._src import sleep as mjw_sleep
from mujoco_warp._src import smooth as mjw_smooth

from mjx_warp_ffi.mjx.types import Data, Model
from mjx_warp_ffi.mjx.warp import fields
from mjx_warp_ffi.mjx.warp import support_kernels as kernels
from mjx_warp_ffi.mjx.warp.computed import Stage
from mjx_warp_ffi.mjx.warp.forward import CONTACTS, INPUTS, INTEGRATED
from mjx_warp_ffi.mjx.warp.types import DisableBit, EnableBit

Part = Callable[[mjw.Model, mjw.Data], None]


def world_pose(m: mjw.Model, d: mjw.Data) -> None:
  """The pose of the world, which mujoco_warp sets in make_data only; it is staged in here."""
  wp.launch(kernels._world_body, d.nworld, outputs=[d.xpos, d.xquat, d.xmat, d.xipos, d.ximat])


def begin(m: mjw.Model, d: mjw.Data) -> None:
  """The pose of the world, and the trees that wake."""
  world_pose(m, d)
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
  """The bias force with that of qacc."""
  mjw.rne(m, d, flg_acc=True)


def unsmooth(m: mjw.Model, d: mjw.Data) -> None:
  """The constraint solve; with the discrete integrator it ends by a correction of free bodies."""
  mjw.solve(m, d)
  if m.opt.integrator == mjw.IntegratorType.DISCRETE:
    mjw_forward._launch_discrete_free_gyro(m, d, d.qacc, d.qacc, False)


def acceleration_sensors(m: mjw.Model, d: mjw.Data) -> None:
  """The sensors of the acceleration stage; the body accelerations if one needs them."""
  mjw.sensor_acc(m, d)


def mass_matrix(m: mjw.Model, d: mjw.Data) -> None:
  """The joint-space inertia from the poses, velocity axes and inertias that d holds."""
  mjw.crb(m, d)
  mjw_smooth.tendon_armature(m, d)


POSITION: tuple[Part, ...] = (begin, mjw.fwd_position)
VELOCITY = (*POSITION, mjw.fwd_velocity)
ACTUATION = (*VELOCITY, mjw.fwd_actuation)
ACCELERATION = (*ACTUATION, mjw.fwd_acceleration)
SOLVE = (*ACCELERATION, unsmooth)
_SENSED_POSITION = (*POSITION, no_sensors, mjw.sensor_pos)
_SENSED_VELOCITY = (*_SENSED_POSITION, mjw.fwd_velocity, mjw.sensor_vel)


def chain(*parts: Part) -> Part:
  """One function that runs several."""

  def run(m: mjw.Model, d: mjw.Data) -> None:
    for part in parts:
      part(m, d)

  return run


def _results(m: Model) -> tuple[str, ...]:
  """The fields that a pipeline may compute; kept ones come back as they were."""
  return tuple(f.name for f in fields.data_fields() if f.name not in INTEGRATED | INPUTS)


def _with_contacts(m: Model) -> tuple[str, ...]:
  return (*_results(m), *CONTACTS)


def _integrated(m: Model) -> tuple[str, ...]:
  return (*(f.name for f in fields.data_fields() if f.name not in INPUTS), *CONTACTS)


def _kinematic(name: str, *parts: Part) -> Callable[[Model, Data], Data]:
  """A stage before collisions and constraints."""
  return Stage(chain(*parts), name, _results, rows=False)


def _dynamic(name: str, *parts: Part) -> Callable[[Model, Data], Data]:
  """A stage with collisions and constraints."""
  return Stage(chain(*parts), name, _with_contacts)


def _integrator(name: str, *parts: Part) -> Callable[[Model, Data], Data]:
  """A whole step."""
  return Stage(chain(world_pose, mjw.forward, *parts), name, _integrated)


kinematics = _kinematic("kinematics", begin, mjw.kinematics)
com_pos = _kinematic("com_pos", begin, mjw.kinematics, mjw.com_pos)
camlight = _kinematic("camlight", begin, mjw.kinematics, mjw.com_pos, mjw.camlight)
tendon = _kinematic("tendon", begin, mjw.fwd_kinematics)
flex = _kinematic("flex", begin, mjw.kinematics, mjw.com_pos, mjw.flex)
subtree_vel = _kinematic(
  "subtree_vel", begin, mjw.kinematics, mjw.com_pos, mjw.com_vel, mjw.subtree_vel
)
com_vel = _kinematic("com_vel", begin, mjw.kinematics, mjw.com_pos, mjw.com_vel)
energy_pos = _kinematic("energy_pos", begin, mjw.fwd_kinematics, mjw.energy_pos)
energy_vel = _kinematic("energy_vel", begin, mjw.fwd_kinematics, mass_matrix, mjw.energy_vel)

fwd_position = _dynamic("fwd_position", *POSITION)
fwd_velocity = _dynamic("fwd_velocity", *VELOCITY)
rne_with_qacc = _dynamic("rne_with_qacc", *VELOCITY, rne_with_acceleration, tendon_bias)
fwd_actuation = _dynamic("fwd_actuation", *ACTUATION)
fwd_acceleration = _dynamic("fwd_acceleration", *ACCELERATION)
solve = _dynamic("solve", *SOLVE)
rne_postconstraint = _dynamic("rne_postconstraint", *SOLVE, mjw.rne_postconstraint)
sensor_pos = _dynamic("sensor_pos", *_SENSED_POSITION)
sensor_vel = _dynamic("sensor_vel", *_SENSED_VELOCITY)
sensor_acc = _dynamic(
  *("sensor_acc", *_SENSED_VELOCITY),
  *(mjw.fwd_actuation, mjw.fwd_acceleration, unsmooth, acceleration_sensors),
)
inverse = _dynamic("inverse", begin, no_sensors, mjw.inverse)

euler = _integrator("euler", mjw.euler)
implicit = _integrator("implicit", mjw.implicit)
rungekutta4 = _integrator("rungekutta4", mjw.rungekutta4)
discrete = _integrator("discrete", mjw.discrete)
