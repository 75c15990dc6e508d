"""Every stage and function of a state under jit, vmap, nested vmap and scan is C MuJoCo's."""

import copy
import functools
import inspect

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx import stages, support
from support import stage_reference

# One of each: joints, geoms that meet as in C, tendons, actuators, constraints, sensors, a flex.
XML = """
<mujoco>
  <option timestep="0.002" density="5" viscosity="0.01"><flag energy="enable"/></option>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <light name="lamp" mode="targetbody" target="trunk" pos="0 0 3"/>
    <camera name="eye" mode="trackcom" pos="0 -3 1"/>
    <site name="anchor" pos="0 0 1"/>
    <body name="target" mocap="true" pos="0.5 0.5 0.5"/>
    <body name="trunk" pos="0 0 0.1" gravcomp="0.2"><freejoint/>
      <geom name="trunk" type="capsule" size="0.1 0.2" euler="0 90 0" mass="3"/>
      <geom name="foot" size="0.1" pos="0 0.2 0" condim="4"/>
      <site name="imu" pos="0.1 0 0.1" euler="10 20 30"/>
      <body name="arm" pos="0.3 0 0.1">
        <joint name="shoulder" type="ball" range="0 0.2" limited="true" damping="0.1"/>
        <geom name="arm" type="capsule" size="0.05" fromto="0 0 0 0.4 0 0"/>
        <body name="hand" pos="0.4 0 0">
          <joint name="wrist" axis="0 1 0" range="-0.2 0.3" limited="true" damping="0.1"
            stiffness="1" armature="0.01" frictionloss="0.1"/>
          <geom name="hand" size="0.08" pos="0.1 0 0"/>
          <site name="tip" pos="0.2 0 0"/>
        </body>
      </body>
    </body>
    <body name="cart" pos="0 1 0.5">
      <joint name="slide" type="slide" axis="1 0 0" damping="1"/>
      <geom name="cart" type="box" size="0.1 0.1 0.1" contype="0" conaffinity="0"/>
    </body>
    <flexcomp name="cloth" type="grid" count="3 3 1" spacing="0.1 0.1 0.1" pos="-1 0 1"
      radius="0.01" dim="2" mass="0.1">
      <contact contype="0" conaffinity="0" selfcollide="none"/>
      <edge equality="true"/><pin id="0 1 2"/>
    </flexcomp>
  </worldbody>
  <tendon>
    <fixed name="cord" armature="0.01"><joint joint="wrist" coef="1.5"/></fixed>
    <spatial name="rope" stiffness="2" damping="0.1">
      <site site="anchor"/><geom geom="foot"/><site site="imu"/><site site="tip"/>
    </spatial>
  </tendon>
  <equality>
    <weld body1="target" body2="hand" solref="0.2 1"/>
    <joint joint1="slide" joint2="wrist" polycoef="0 0.5 0 0 0"/>
  </equality>
  <actuator>
    <position name="turn" joint="wrist" kp="5"/>
    <general name="slow" joint="slide" dyntype="filter" dynprm="0.1" gainprm="2"/>
    <motor name="pull" tendon="rope" gear="0.7"/>
    <muscle name="muscle" tendon="cord" lengthrange="-1 1"/>
  </actuator>
  <sensor>
    <magnetometer site="imu"/><rangefinder site="imu"/><tendonpos tendon="rope"/>
    <framequat objtype="geom" objname="arm"/><e_potential/><e_kinetic/>
    <velocimeter site="imu"/><gyro site="imu"/><subtreeangmom body="trunk"/>
    <accelerometer site="imu"/><force site="tip"/><actuatorfrc actuator="turn"/>
    <touch site="imu"/><contact geom1="trunk" data="found force" reduce="netforce"/>
  </sensor>
</mujoco>
"""
NWORLD = 3
FLEX = ("flexvert_xpos", "flexedge_length")
# What each stage is compared in, with what the model adds to those of stage_reference.py.
STAGES = {
  **stage_reference.STAGES,
  "flex": FLEX,
  "fwd_position": (*stage_reference.POSITION, *FLEX),
  "fwd_velocity": (*stage_reference.VELOCITY, "flexedge_velocity", "qfrc_fluid"),
}
INTEGRATORS = {
  "euler": mujoco.mjtIntegrator.mjINT_EULER,
  "implicit": mujoco.mjtIntegrator.mjINT_IMPLICIT,
  "rungekutta4": mujoco.mjtIntegrator.mjINT_RK4,
  "discrete": mujoco.mjtIntegrator.mjINT_DISCRETE,
}


@functools.cache
def scene(integrator: int = mujoco.mjtIntegrator.mjINT_EULER):
  """The model, states of C MuJoCo after `mj_forward`, and both here, the states as a batch."""
  mj_model = mujoco.MjModel.from_xml_string(XML)
  mj_model.opt.tolerance, mj_model.opt.iterations = 0, 50  # float32 stops later than C
  mj_model.opt.integrator = integrator
  states = [stage_reference.moving(mj_model, seed) for seed in range(NWORLD)]
  for data in states:
    stage_reference.float32_state(mj_model, data)
    stage_reference.everything(mj_model, data)
    stage_reference.everything(mj_model, data)  # a kinetic energy is a call late in C
    data.qacc[:] = data.qacc.astype(np.float32)  # inverse dynamics read it
  assert min(data.ncon for data in states) > 0 and max(data.ncon for data in states) > 1
  put = [mjx.put_data(mj_model, data) for data in states]
  return mj_model, states, mjx.put_model(mj_model), jax.tree.map(lambda *x: jnp.stack(x), *put)


def in_every_way(function, m: mjx.Model, batch: mjx.Data) -> list:
  """The results of all worlds in jit under vmap, nested vmap, scan and vmap of scan."""

  def scan(m, worlds):
    return jax.lax.scan(lambda carry, d: (carry, function(m, d)), 0, worlds)[1]

  def run(m, batch):
    over = jax.vmap(function, (None, 0))
    column = jax.tree.map(lambda x: x[:, None], batch)
    nested = jax.vmap(over, (None, 0))(m, column), jax.vmap(scan, (None, 0))(m, column)
    return over(m, batch), scan(m, batch), *jax.tree.map(lambda x: x[:, 0], nested)

  return jax.device_get(jax.jit(run)(m, batch))


def world(results, i: int):
  return jax.tree.map(lambda x: x[i], results)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_in_every_transformation_is_c_mujocos(stage):
  _, states, m, batch = scene()
  for results in in_every_way(getattr(mjx, stage), m, jax.vmap(stage_reference.emptied)(batch)):
    for i, data in enumerate(states):
      stage_reference.assert_equal_to_c(world(results, i), data, STAGES[stage])


@pytest.mark.parametrize("stage", INTEGRATORS)
def test_an_integrator_in_every_transformation_is_c_mujocos(stage):
  mj_model, states, m, batch = scene(INTEGRATORS[stage])
  after = [copy.copy(data) for data in states]
  for data in after:
    mujoco.mj_step(mj_model, data)
  for results in in_every_way(getattr(mjx, stage), m, jax.vmap(stage_reference.emptied)(batch)):
    for i, data in enumerate(after):
      names = ("time", "qpos", "qvel", "act", "qacc", "sensordata")
      stage_reference.assert_equal_to_c(world(results, i), data, names)


def inertia(m, data):
  full = np.zeros((m.nv, m.nv))
  mujoco.mj_fullM(m, data, full)
  return full


def tendon_jacobian(m, data):
  full = np.zeros((m.ntendon, m.nv))
  pattern = (m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind.ravel())
  mujoco.mju_sparse2dense(full, data.ten_J.ravel(), *pattern)
  return full


def actuator_moment(m, data):
  full = np.zeros((m.nactuator, m.nv))
  pattern = (data.moment_rownnz, data.moment_rowadr, data.moment_colind.ravel())
  mujoco.mju_sparse2dense(full, data.actuator_moment.ravel(), *pattern)
  return full


def deriv_smooth_vel(m, data):
  """Differences of the forces, symmetrized as implicitfast has them."""
  result, eps = np.zeros((m.nv, m.nv)), 1e-5
  for i in range(m.nv):
    for sign in (1, -1):
      moved = copy.copy(data)
      moved.qvel[i] += sign * eps
      mujoco.mj_forward(m, moved)
      result[:, i] += sign * (moved.qfrc_passive + moved.qfrc_actuator) / (2 * eps)
  return (result + result.T) / 2


POINT, FORCE, TORQUE = np.float32([[0.3, 0.1, 0.2], [1, 2, -3], [0.5, -1, 0.2]])
HAND = 4


def apply_ft(m, data):
  result = np.zeros(m.nv)
  where = (x.astype(float) for x in (FORCE, TORQUE, POINT))
  mujoco.mj_applyFT(m, data, *where, HAND, result)
  return result


def xfrc_accumulate(m, data):
  result = np.zeros(m.nv)
  for i, wrench in enumerate(data.xfrc_applied):
    mujoco.mj_applyFT(m, data, wrench[:3], wrench[3:], data.xipos[i], i, result)
  return result


def jac(m, data):
  linear, rotation = np.zeros((2, 3, m.nv))
  mujoco.mj_jac(m, data, linear, rotation, POINT.astype(float), HAND)
  return linear.T, rotation.T


def jacobians(reference, count):
  def of_all(m, data):
    found = np.zeros((getattr(m, count), 2, 3, m.nv))
    for i, (linear, rotation) in enumerate(found):
      reference(m, data, linear, rotation, i)
    return found[:, 0].swapaxes(1, 2), found[:, 1].swapaxes(1, 2)

  return of_all


def rows_together(m, d):
  """What the constraint rows do together: their order may be another one."""
  rows = mjx.constraint_rows(m, d)
  exact = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
  weighted = rows.J.T * rows.D
  return rows.nefc, exact(rows.J.T, rows.force), exact(weighted, rows.J), exact(weighted, rows.aref)


def rows_of_c(m, data):
  dense = np.reshape(data.efc_J, (data.nefc, m.nv))
  weighted = dense.T * data.efc_D
  return data.nefc, dense.T @ data.efc_force, weighted @ dense, weighted @ data.efc_aref


def contact_forces(m, data):
  """Their sum in the frame of the world: the order of contacts may be another one."""
  total, local = np.zeros((2, 3)), np.zeros(6)
  for i in range(data.ncon):
    mujoco.mj_contactForce(m, data, i, local)
    total += local.reshape(2, 3) @ data.contact.frame[i].reshape(3, 3)
  return total.ravel()


PAIRS = ([0, 0, 1, 2], [1, 4, 4, 3])  # planes, capsules and spheres
EYE, AIMS = np.float32([0.2, -1, 0.5]), np.float32([[0, 1, -0.4], [0.2, 1, -0.45], [0, 0, 1]])


def distances(m, data):
  segments = np.zeros((4, 6))
  found = [
    mujoco.mj_geomDistance(m, data, a, b, 10.0, s) for a, b, s in zip(*PAIRS, segments, strict=True)
  ]
  return np.array(found), segments


def rays(m, data):
  found = []
  for aim in AIMS.astype(float):
    geom, normal = np.zeros(1, np.int32), np.zeros(3)
    at = (EYE.astype(float), aim)
    dist = mujoco.mj_ray(m, data, *at, None, 1, -1, geom, normal)
    found.append((dist, geom[0], normal))
  return tuple(np.array(x) for x in zip(*found, strict=True))


def state(m, data):
  result = np.zeros(mujoco.mj_stateSize(m, STATE))
  mujoco.mj_getState(m, data, result, STATE)
  return result


STATE = mujoco.mjtState.mjSTATE_INTEGRATION


def inverse(m, data):
  after = copy.copy(data)
  mujoco.mj_inverse(m, after)
  return np.r_[after.qfrc_inverse, after.qfrc_constraint]


def sensors(stage: str, last: mujoco.mjtStage):
  """A stage's own sensors, and those in C."""

  def own(m):
    return np.repeat(m.sensor_needstage <= int(last), m.sensor_dim)

  return (
    lambda m, d: getattr(mjx, stage)(m, d).sensordata[np.flatnonzero(own(m))],
    lambda m, data: data.sensordata[own(m)],
  )


def all_of(name: str, count: str):
  function = getattr(mjx, name)
  return lambda m, d: function(m, d, np.arange(getattr(m, count)))


# Functions of a state and what C MuJoCo has for them; the tolerance where it is not RTOL's.
FUNCTIONS = {
  "full_m": (mjx.full_m, inertia),
  "mul_m": (
    lambda m, d: mjx.mul_m(m, d, jnp.arange(1.0, m.nv + 1)),
    lambda m, data: inertia(m, data) @ np.arange(1.0, m.nv + 1),
  ),
  "tendon_jacobian": (mjx.tendon_jacobian, tendon_jacobian),
  "actuator_moment": (mjx.actuator_moment, actuator_moment),
  "deriv_smooth_vel": (mjx.deriv_smooth_vel, deriv_smooth_vel, 1e-4),  # steep muscle curves
  "jac": (lambda m, d: mjx.jac(m, d, POINT, HAND), jac),
  "jac_body": (all_of("jac_body", "nbody"), jacobians(mujoco.mj_jacBody, "nbody")),
  "jac_body_com": (all_of("jac_body_com", "nbody"), jacobians(mujoco.mj_jacBodyCom, "nbody")),
  "jac_site": (all_of("jac_site", "nsite"), jacobians(mujoco.mj_jacSite, "nsite")),
  "jac_geom": (all_of("jac_geom", "ngeom"), jacobians(mujoco.mj_jacGeom, "ngeom")),
  "apply_ft": (lambda m, d: mjx.apply_ft(m, d, FORCE, TORQUE, POINT, HAND), apply_ft),
  "xfrc_accumulate": (mjx.xfrc_accumulate, xfrc_accumulate),
  "constraint_rows": (rows_together, rows_of_c, stage_reference.RTOL_SOLVED),
  "contact_force": (
    lambda m, d: jnp.sum(mjx.contact_force(m, d, None, True), axis=0),
    contact_forces,
    stage_reference.RTOL_SOLVED,
  ),
  "geom_distance": (lambda m, d: mjx.geom_distance(m, d, *PAIRS), distances),
  "ray": (lambda m, d: mjx.ray(m, d, EYE, AIMS), lambda m, data: rays(m, data)[:2]),
  "ray_normal": (lambda m, d: mjx.ray_normal(m, d, EYE, AIMS), rays),
  "get_state": (lambda m, d: mjx.get_state(m, d, STATE), state),
  "set_state": (
    lambda m, d: mjx.set_state(m, mjx.make_data(m), mjx.get_state(m, d, STATE), STATE).qpos,
    lambda m, data: data.qpos,
  ),
  "energy_pos": (lambda m, d: mjx.energy_pos(m, d).energy[0], lambda m, data: data.energy[0]),
  "energy_vel": (lambda m, d: mjx.energy_vel(m, d).energy[1], lambda m, data: data.energy[1]),
  "sensor_pos": sensors("sensor_pos", mujoco.mjtStage.mjSTAGE_POS),
  "sensor_vel": sensors("sensor_vel", mujoco.mjtStage.mjSTAGE_VEL),
  # the difference of large forces, such as those of constraints
  "inverse": (
    lambda m, d: jnp.r_[mjx.inverse(m, d).qfrc_inverse, mjx.inverse(m, d).qfrc_constraint],
    inverse,
    1e-4,
  ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_in_every_transformation_is_c_mujocos(name):
  mj_model, states, m, batch = scene()
  function, reference, *tolerance = FUNCTIONS[name]
  expected = [jax.tree.leaves(reference(mj_model, data)) for data in states]
  for results in in_every_way(function, m, batch):
    for i, values in enumerate(expected):
      for got, value in zip(jax.tree.leaves(world(results, i)), values, strict=True):
        atol = (*tolerance, stage_reference.RTOL)[0] * max(1.0, np.abs(value).max())
        np.testing.assert_allclose(got, value, rtol=0, atol=atol)


def test_every_stage_and_function_of_a_state_is_here():
  names = set()
  for module in (stages, support):
    for name, function in inspect.getmembers(module, inspect.isfunction):
      own = function.__module__ == module.__name__ and not name.startswith("_")
      if own and "d" in inspect.signature(function).parameters:
        names.add(name)
  assert names <= {*STAGES, *INTEGRATORS, *FUNCTIONS}
