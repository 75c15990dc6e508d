"""Each stage equals C MuJoCo's from any state, whatever its Data held before."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers
from support.helpers import model_path
from support.stage_reference import (
  RTOL,
  STAGES,
  assert_equal_to_c,
  emptied,
  everything,
  float32_state,
  moving,
)


def load(name: str, **options) -> mujoco.MjModel:
  mj_model = mujoco.MjModel.from_xml_path(str(model_path(name)))
  mj_model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
  mj_model.opt.tolerance = 0  # as many iterations as it takes, or C stops sooner than float32 needs
  mj_model.opt.iterations = 50
  for key, value in options.items():
    setattr(mj_model.opt, key, value)
  return mj_model


TENDON_STAGES = ("tendon", "fwd_position", "fwd_actuation", "rne_postconstraint")


@pytest.mark.parametrize(
  ("stage", "model"),
  [*((s, "humanoid") for s in STAGES), *((s, "muscle_arm") for s in TENDON_STAGES)],
)
def test_a_stage_is_c_mujocos_whatever_the_data_held(stage, model):
  mj_model = load(model)
  data = float32_state(mj_model, moving(mj_model))
  m, d = mjx.put_model(mj_model), emptied(mjx.put_data(mj_model, data))
  result = jax.jit(getattr(mjx, stage))(m, d)
  everything(mj_model, data)
  assert_equal_to_c(result, data, STAGES[stage])
  if stage in ("kinematics", "com_pos", "com_vel", "subtree_vel"):
    assert np.isnan(result.qacc).all()  # what a stage does not compute passes through


def test_contacts_of_an_earlier_state_do_not_linger_in_those_of_a_stage():
  mj_model = load("hopper")
  m = mjx.put_model(mj_model)
  d = jax.jit(mjx.forward)(m, mjx.put_data(mj_model, moving(mj_model, steps=300)))
  assert d.ncon > 0
  above = d.replace(qpos=d.qpos.at[1].add(1.0))
  collision = jax.jit(mjx.collision)
  for _ in range(2):
    result = collision(m, above)
    assert result.ncon == 0 and np.all(result.contact.dist == 1) and np.all(result.contact.geom < 0)


@pytest.mark.parametrize("stage", ["sensor_pos", "sensor_vel", "sensor_acc"])
def test_a_sensor_stage_keeps_the_sensors_of_later_stages(stage):
  mj_model = load("hopper")
  data = float32_state(mj_model, moving(mj_model))
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  d = d.replace(sensordata=jnp.full_like(d.sensordata, 7.0))
  result = np.asarray(getattr(mjx, stage)(m, d).sensordata)
  mujoco.mj_forward(mj_model, data)
  order = {"sensor_pos": 1, "sensor_vel": 2, "sensor_acc": 3}[stage]
  stages = np.repeat(mj_model.sensor_needstage, mj_model.sensor_dim)
  assert (stages <= order).any() and set(stages) == {1, 2, 3}
  expected = np.where(stages <= order, data.sensordata, 7.0)
  np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3 * max(1, abs(expected).max()))


def test_energies_are_computed_without_the_flag():
  mj_model = load("humanoid")
  data = float32_state(mj_model, moving(mj_model))
  mujoco.mj_forward(mj_model, data)
  mj_model.opt.enableflags = 0
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  np.testing.assert_allclose(mjx.energy_pos(m, d).energy[0], data.energy[0], rtol=RTOL)
  np.testing.assert_allclose(mjx.energy_vel(m, d).energy[1], data.energy[1], rtol=RTOL)


@pytest.mark.parametrize("model", ["humanoid", "muscle_arm"])
def test_inverse_dynamics_are_c_mujocos(model):
  mj_model = load(model)
  data = float32_state(mj_model, moving(mj_model))
  mujoco.mj_forward(mj_model, data)
  data.qacc[:] = data.qacc.astype(np.float32)
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  result = jax.jit(mjx.inverse)(m, d)
  mujoco.mj_inverse(mj_model, data)
  scale = np.abs(data.qfrc_constraint).max() + np.abs(data.qfrc_bias).max()
  error = np.abs(np.asarray(result.qfrc_inverse) - data.qfrc_inverse).max()
  assert error < 1e-4 * scale  # the difference of large forces in float32
  assert_equal_to_c(result, data, ("sensordata",))


def test_rne_with_the_acceleration_adds_the_inertial_force():
  mj_model = load("humanoid")
  data = float32_state(mj_model, moving(mj_model))
  mujoco.mj_forward(mj_model, data)
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  for flag in (False, True):
    expected = np.zeros(mj_model.nv)
    mujoco.mj_rne(mj_model, data, flag, expected)
    got = mjx.rne(m, d, flag).qfrc_bias
    np.testing.assert_allclose(got, expected, rtol=0, atol=RTOL * np.abs(expected).max())


INTEGRATOR = mujoco.mjtIntegrator


@pytest.mark.parametrize(
  ("stage", "integrator"),
  [
    ("euler", INTEGRATOR.mjINT_EULER),
    ("rungekutta4", INTEGRATOR.mjINT_RK4),
    ("implicit", INTEGRATOR.mjINT_IMPLICIT),
    ("implicit", INTEGRATOR.mjINT_IMPLICITFAST),
    ("discrete", INTEGRATOR.mjINT_DISCRETE),
  ],
)
def test_an_integrator_is_a_step(stage, integrator):
  mj_model = load("double_pendulum", integrator=integrator)
  data = float32_state(mj_model, moving(mj_model))
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  result = jax.jit(getattr(mjx, stage))(m, d)
  mujoco.mj_step(mj_model, data)
  assert_equal_to_c(result, data, ("time", "qpos", "qvel", "qacc"))
  helpers.assert_same(result.qpos, mjx.step(m, d).qpos)


def test_an_integrator_that_does_not_fit_the_model_says_so():
  mj_model = load("double_pendulum")
  m, d = mjx.put_model(mj_model), mjx.make_data(mj_model)
  with pytest.raises(ValueError, match="integrator=mjINT_DISCRETE"):
    mjx.discrete(m, d)
  mj_model.opt.integrator = INTEGRATOR.mjINT_DISCRETE
  m = mjx.put_model(mj_model)
  for name in ("euler", "implicit", "rungekutta4"):
    with pytest.raises(ValueError, match=name):
      getattr(mjx, name)(m, d)


def test_a_stage_checks_its_arguments():
  m, d = (mjx.put_model(load("double_pendulum")), mjx.make_data(load("hopper")))
  with pytest.raises(ValueError, match="another model"):
    mjx.fwd_position(m, d)
  with pytest.raises(TypeError, match="Model and a Data"):
    mjx.kinematics(m, None)
