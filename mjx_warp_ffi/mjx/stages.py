"""The stages of the forward and inverse dynamics, one by one.

Each function takes a Model and a Data of one world (batch it with `jax.vmap`) and returns the Data
with the results of that stage filled; fields that the stage does not compute pass through. A stage
is a pure function of the state (`qpos`, `qvel`, `act`, inputs): it runs the pipeline up to and
including itself, so calls need no order, and each costs all stages before it. Stages whose results
are of interest together are one call (`fwd_position`, `fwd_velocity`, `forward`).

Each has a gradient, as `Model.gradient` says. That of `rne`, of `inverse` and of a stage before the
solve solves nothing; fields that pass through pass their cotangents through.

All raise ValueError for a wrong shape or dtype or a Data of another model, TypeError for other
types.
"""

from __future__ import annotations

import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.forward import step
from mjx_warp_ffi.mjx.warp.functions import stages as backend

_STAGE = mujoco.mjtStage
_INTEGRATOR = mujoco.mjtIntegrator


def kinematics(m: Model, d: Data) -> Data:
  """Poses of bodies, inertial frames, joints, geoms and sites, as mj_kinematics."""
  return backend.kinematics(m, d)


def com_pos(m: Model, d: Data) -> Data:
  """Centers of mass `subtree_com`, inertias `cinert` and axes `cdof`, as mj_comPos."""
  return backend.com_pos(m, d)


def camlight(m: Model, d: Data) -> Data:
  """Poses of cameras and lights, as mj_camlight."""
  return backend.camlight(m, d)


def flex(m: Model, d: Data) -> Data:
  """Vertices and edges of flexes, as mj_flex."""
  return backend.flex(m, d)


def tendon(m: Model, d: Data) -> Data:
  """Tendon lengths, as mj_tendon."""
  return backend.tendon(m, d)


def crb(m: Model, d: Data) -> Data:
  """Poses, as `tendon`; the inertia matrix that mj_crb computes is `mjx.full_m(m, d)`."""
  return backend.tendon(m, d)


def tendon_armature(m: Model, d: Data) -> Data:
  """Poses, as `tendon`; the tendons' armature is in the matrix `mjx.full_m(m, d)`."""
  return backend.tendon(m, d)


def factor_m(m: Model, d: Data) -> Data:
  """Poses, as `tendon`; factors of the inertia matrix never leave the workspace."""
  return backend.tendon(m, d)


def collision(m: Model, d: Data) -> Data:
  """Contacts (`contact`, `ncon`), with the other results of `fwd_position`, as mj_collision."""
  return backend.fwd_position(m, d)


def make_constraint(m: Model, d: Data) -> Data:
  """Numbers of constraint rows (`nefc`, `ne`, `nf`, `nl`); `mjx.constraint_rows` gives the rows."""
  return backend.fwd_position(m, d)


def transmission(m: Model, d: Data) -> Data:
  """Actuator lengths, with the other results of `fwd_position`, as mj_transmission."""
  return backend.fwd_position(m, d)


def fwd_position(m: Model, d: Data) -> Data:
  """All results that depend on the position alone, as mj_fwdPosition."""
  return backend.fwd_position(m, d)


def com_vel(m: Model, d: Data) -> Data:
  """Body velocities `cvel` and axis rates `cdof_dot`, as mj_comVel."""
  return backend.com_vel(m, d)


def subtree_vel(m: Model, d: Data) -> Data:
  """`subtree_linvel` and `subtree_angmom`, as mj_subtreeVel."""
  return backend.subtree_vel(m, d)


def passive(m: Model, d: Data) -> Data:
  """Passive forces, with the other results of `fwd_velocity`, as mj_passive."""
  return backend.fwd_velocity(m, d)


def rne(m: Model, d: Data, flg_acc: bool = False) -> Data:
  """`qfrc_bias`, as mj_rne, with the other results of `fwd_velocity`.

  Args:
    m: the model.
    d: the state.
    flg_acc: whether `d.qacc` is included: the force M qacc + bias.

  Returns:
    The Data with `qfrc_bias`.
  """
  return backend.rne_with_qacc(m, d) if flg_acc else backend.fwd_velocity(m, d)


def tendon_bias(m: Model, d: Data) -> Data:
  """`qfrc_bias` with the tendons' part, as `fwd_velocity`."""
  return backend.fwd_velocity(m, d)


def fwd_velocity(m: Model, d: Data) -> Data:
  """All results that depend on position and velocity, as mj_fwdVelocity."""
  return backend.fwd_velocity(m, d)


def fwd_actuation(m: Model, d: Data) -> Data:
  """Actuator forces and `act_dot`, as mj_fwdActuation."""
  return backend.fwd_actuation(m, d)


def fwd_acceleration(m: Model, d: Data) -> Data:
  """`qfrc_smooth` and `qacc_smooth`, as mj_fwdAcceleration."""
  return backend.fwd_acceleration(m, d)


def solve(m: Model, d: Data) -> Data:
  """`qacc` and `qfrc_constraint`, as mj_fwdConstraint."""
  return backend.solve(m, d)


def rne_postconstraint(m: Model, d: Data) -> Data:
  """`cacc`, `cfrc_int` and `cfrc_ext` of the solved acceleration, as mj_rnePostConstraint."""
  return backend.rne_postconstraint(m, d)


def sensor_pos(m: Model, d: Data) -> Data:
  """Sensors of the position stage, as mj_sensorPos; other sensors keep their values."""
  return _keep_later_sensors(m, d, backend.sensor_pos(m, d), _STAGE.mjSTAGE_POS)


def sensor_vel(m: Model, d: Data) -> Data:
  """Sensors of the position and velocity stages, as mj_sensorVel; other ones keep their values."""
  return _keep_later_sensors(m, d, backend.sensor_vel(m, d), _STAGE.mjSTAGE_VEL)


def sensor_acc(m: Model, d: Data) -> Data:
  """All sensors, as mj_sensorAcc."""
  return backend.sensor_acc(m, d)


def energy_pos(m: Model, d: Data) -> Data:
  """Potential energy `energy[0]`, as mj_energyPos, whatever the enable flags."""
  after = backend.energy_pos(m, d)
  return after.replace(energy=d.energy.at[0].set(after.energy[0]))


def energy_vel(m: Model, d: Data) -> Data:
  """Kinetic energy `energy[1]`, as mj_energyVel, whatever the enable flags."""
  after = backend.energy_vel(m, d)
  return after.replace(energy=d.energy.at[1].set(after.energy[1]))


def inverse(m: Model, d: Data) -> Data:
  """Inverse dynamics: `qfrc_inverse` from qpos, qvel and qacc, as mj_inverse.

  It has gradients with respect to `qacc` too, but none from sensors.
  """
  return backend.inverse(m, d)


def euler(m: Model, d: Data) -> Data:
  """A step that ends by semi-implicit Euler, whatever `opt.integrator`, as mj_Euler."""
  _not_discrete(m, "euler")
  return step(_ending(m, _INTEGRATOR.mjINT_EULER), d)


def implicit(m: Model, d: Data) -> Data:
  """A step that ends by the implicit integrator, or implicitfast if that is the model's."""
  _not_discrete(m, "implicit")
  fast = m.opt.integrator == _INTEGRATOR.mjINT_IMPLICITFAST
  return step(m if fast else _ending(m, _INTEGRATOR.mjINT_IMPLICIT), d)


def rungekutta4(m: Model, d: Data) -> Data:
  """A step of fourth-order Runge-Kutta, whatever `opt.integrator`, as mj_RungeKutta."""
  _not_discrete(m, "rungekutta4")
  return step(_ending(m, _INTEGRATOR.mjINT_RK4), d)


def discrete(m: Model, d: Data) -> Data:
  """A step of the discrete integrator, which must be the model's: its solve differs.

  Raises:
    ValueError: if `opt.integrator` is another one.
  """
  if m.opt.integrator != mujoco.mjtIntegrator.mjINT_DISCRETE:
    raise ValueError(
      "discrete needs a model with opt.integrator=mjINT_DISCRETE, whose constraint solve differs"
    )
  return step(m, d)


def _ending(m: Model, integrator: mujoco.mjtIntegrator) -> Model:
  """The model with another integrator."""
  return m.tree_replace({"opt.integrator": int(integrator)})


def _not_discrete(m: Model, name: str) -> None:
  if m.opt.integrator == mujoco.mjtIntegrator.mjINT_DISCRETE:
    raise ValueError(
      f"{name} cannot end a step whose constraints are solved for the discrete integrator: set"
      " opt.integrator, or call mjx.discrete"
    )


def _keep_later_sensors(m: Model, before: Data, after: Data, last: mujoco.mjtStage) -> Data:
  """The sensors up to a stage from `after`, the others from `before`."""
  later = np.repeat(m.sensor_needstage > int(last), m.sensor_dim)
  return after.replace(sensordata=jnp.where(later, before.sensordata, after.sensordata))
