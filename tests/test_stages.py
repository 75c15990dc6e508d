"""Each stage equals C MuJoCo's from any state, whatever its Data held before."""

import helpers
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import model_path

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp import fields

# What each stage is compared in.
POSES = ("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "site_xmat")
COM = (*POSES, "subtree_com", "cdof", "cinert")
TENDON = (*COM, "ten_length", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
POSITION = (*TENDON, "actuator_length", "nefc", "ne", "nf", "nl", "ncon")
COM_VEL = (*COM, "cvel", "cdof_dot")
PASSIVE = ("qfrc_passive", "qfrc_spring", "qfrc_damper", "qfrc_gravcomp", "qfrc_bias")
VELOCITY = (*POSITION, *COM_VEL, "actuator_velocity", "ten_velocity", *PASSIVE)
ACTUATION = (*VELOCITY, "actuator_force", "qfrc_actuator", "act_dot")
ACCELERATION = (*ACTUATION, "qfrc_smooth", "qacc_smooth")
SOLVE = (*ACCELERATION, "qacc", "qfrc_constraint")

STAGES = {
  "kinematics": POSES,
  "com_pos": COM,
  "camlight": (*COM, "cam_xpos", "cam_xmat", "light_xpos"),
  "flex": COM,
  **dict.fromkeys(("tendon", "crb", "tendon_armature", "factor_m"), TENDON),
  **dict.fromkeys(("collision", "make_constraint", "transmission", "fwd_position"), POSITION),
  "com_vel": COM_VEL,
  "subtree_vel": ("subtree_linvel", "subtree_angmom"),
  **dict.fromkeys(("passive", "rne", "tendon_bias", "fwd_velocity"), VELOCITY),
  "fwd_actuation": ACTUATION,
  "fwd_acceleration": ACCELERATION,
  "solve": SOLVE,
  "rne_postconstraint": ("cacc", "cfrc_int", "cfrc_ext"),
  "sensor_acc": ("sensordata",),
}

# float32 against float64, relative to the largest value of a field; accelerations lose another
# digit in the solve, and what follows from them.
RTOL = 2e-5
RTOL_SOLVED = 1e-3
SOLVED = ("qacc", "qacc_smooth", "qfrc_constraint", "cacc", "cfrc_int", "cfrc_ext", "sensordata")


def load(name: str, **options) -> mujoco.MjModel:
  mj_model = mujoco.MjModel.from_xml_path(str(model_path(name)))
  mj_model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
  mj_model.opt.tolerance = 0  # as many iterations as it takes, or C stops sooner than float32 needs
  mj_model.opt.iterations = 50
  for key, value in options.items():
    setattr(mj_model.opt, key, value)
  return mj_model


def moving(mj_model: mujoco.MjModel, seed: int = 0, steps: int = 30) -> mujoco.MjData:
  """A state in motion, with contacts where the model has some."""
  rng = np.random.default_rng(seed)
  data = mujoco.MjData(mj_model)
  data.qvel[:] = rng.normal(0, 0.3, mj_model.nv)
  low, high = np.where(mj_model.actuator_ctrllimited[:, None], mj_model.actuator_ctrlrange, 1).T
  data.ctrl[:] = rng.uniform(-abs(low), high)
  for _ in range(steps):
    mujoco.mj_step(mj_model, data)
  data.qfrc_applied[:] = rng.normal(0, 0.1, mj_model.nv)
  data.xfrc_applied[1:] = rng.normal(0, 0.1, (mj_model.nbody - 1, 6))
  return data


def float32_state(mj_model: mujoco.MjModel, data: mujoco.MjData) -> mujoco.MjData:
  """The state as the Data holds it, so that C starts from the same numbers."""
  for name in ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "qacc_warmstart"):
    value = getattr(data, name)
    value[...] = value.astype(np.float32)
  return data


def emptied(d: mjx.Data) -> mjx.Data:
  """The Data with NaN in every result of floats."""
  read = {*fields.STATE, "overflow"}
  names = [f.name for f in fields.data_fields() if f.name not in read and f.dtype == np.float32]
  return d.replace(**{n: jnp.full_like(getattr(d, n), jnp.nan) for n in names})


def assert_equal_to_c(result: mjx.Data, data: mujoco.MjData, names: tuple[str, ...]) -> None:
  for name in names:
    expected = np.asarray(getattr(data, name), float).ravel()
    got = np.asarray(getattr(result, name), float).ravel()
    if expected.size == 0:
      continue
    rtol = RTOL_SOLVED if name in SOLVED else RTOL
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * scale, err_msg=name)


def everything(mj_model: mujoco.MjModel, data: mujoco.MjData) -> None:
  mujoco.mj_forward(mj_model, data)
  mujoco.mj_rnePostConstraint(mj_model, data)
  mujoco.mj_subtreeVel(mj_model, data)


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
