"""put_model, make_data, put_data, get_data, get_data_into, and what they refuse."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers


@functools.cache
def load(name: str) -> mujoco.MjModel:
  return mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))


def stepped(name: str, steps: int = 30) -> mujoco.MjData:
  m = load(name)
  d = mujoco.MjData(m)
  for _ in range(steps):
    mujoco.mj_step(m, d)
  return d


def test_a_model_has_the_values_of_the_mjmodel_in_float32():
  mj_model = load("humanoid")
  m = mjx.put_model(mj_model)
  np.testing.assert_array_equal(m.body_mass, mj_model.body_mass.astype(np.float32))
  np.testing.assert_array_equal(m.geom_friction, mj_model.geom_friction.astype(np.float32))
  assert m.opt.gravity.dtype == jnp.float32
  assert (m.nv, m.opt.integrator) == (mj_model.nv, mj_model.opt.integrator)
  assert float(m.stat.meaninertia) == mj_model.stat.meaninertia
  assert m.body("pelvis").id == mj_model.body("pelvis").id


def test_static_arrays_cannot_be_written():
  m = mjx.put_model(load("humanoid"))
  with pytest.raises(ValueError, match="read-only"):
    m.geom_bodyid[0] = 3


def test_changing_the_mjmodel_later_does_not_change_the_model():
  mj_model = mujoco.MjModel.from_xml_path(str(helpers.model_path("cartpole")))
  m = mjx.put_model(mj_model)
  before = float(m.body_mass[1])
  mj_model.body_mass[1] = 99.0
  assert float(m.body_mass[1]) == before
  assert float(m.spec.mj_model.body_mass[1]) == pytest.approx(before)


@pytest.mark.parametrize("name", ["humanoid", "hand", "muscle_arm", "drives"])
def test_data_goes_to_jax_and_back_unchanged(name):
  mj_model, c = load(name), stepped(name)
  back = mjx.get_data(mj_model, mjx.put_data(mj_model, c))
  assert back.ncon == c.ncon
  for field in ("qpos", "qvel", "act", "ctrl", "xpos", "xmat", "qacc", "sensordata", "ten_length"):
    np.testing.assert_allclose(
      getattr(back, field), getattr(c, field), rtol=1e-6, atol=1e-6, err_msg=field
    )
  np.testing.assert_allclose(back.contact.dist, c.contact.dist, atol=1e-7)
  np.testing.assert_allclose(back.contact.frame, c.contact.frame, atol=1e-6)


def test_one_world_of_a_batch_is_fetched_alone():
  mj_model = load("cartpole")
  m = mjx.put_model(mj_model)
  d = jax.vmap(lambda x: mjx.make_data(m).replace(qpos=x))(
    jnp.arange(6, dtype=jnp.float32).reshape(3, 2)
  )
  result = mujoco.MjData(mj_model)
  mjx.get_data_into(result, mj_model, d, world=2)
  np.testing.assert_array_equal(result.qpos, [4, 5])
  assert [x.qpos[0] for x in mjx.get_data(mj_model, d)] == [0, 2, 4]
  many = [mujoco.MjData(mj_model) for _ in range(3)]
  mjx.get_data_into(many, mj_model, d)
  np.testing.assert_array_equal(many[1].qpos, [2, 3])


def test_a_result_that_does_not_match_the_batch_is_refused():
  mj_model = load("cartpole")
  m = mjx.put_model(mj_model)
  d = jax.tree.map(lambda x: jnp.stack([x, x]), mjx.make_data(m))
  with pytest.raises(ValueError, match="world=i"):
    mjx.get_data_into(mujoco.MjData(mj_model), mj_model, d)


def test_an_unknown_implementation_is_refused():
  with pytest.raises(ValueError, match="impl='warp'"):
    mjx.put_model(load("cartpole"), impl="jax")
  assert mjx.put_model(load("cartpole"), impl="warp").nq == 2


def test_a_feature_that_mujoco_warp_lacks_is_refused_by_name():
  mj_model = mujoco.MjModel.from_xml_string(
    "<mujoco><option><flag multiccd='enable'/></option><option noslip_iterations='1'"
    " integrator='discrete'/><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"
  )
  with pytest.raises(NotImplementedError, match="noslip"):
    mjx.put_model(mj_model)


def test_another_type_is_refused():
  with pytest.raises(TypeError, match="MjModel"):
    mjx.put_model("humanoid.xml")  # type: ignore


@pytest.mark.parametrize("gradient", ["exact", "", None])
def test_an_unknown_gradient_is_refused(gradient):
  with pytest.raises(ValueError, match="analytic, fd, none"):
    mjx.put_model(load("cartpole"), gradient=gradient)


def test_capacities_are_checked():
  m = mjx.put_model(load("humanoid"))
  with pytest.raises(ValueError, match="not both"):
    mjx.make_data(m, nconmax=8, naconmax=100)
  with pytest.raises(ValueError, match="unknown capacity"):
    mjx.make_data(m, nconmx=8)
  with pytest.raises(ValueError, match="njmax"):
    mjx.make_data(m, njmax=-1)
  with pytest.raises(ValueError, match="nconmax=10"):
    mjx.put_data(load("humanoid"), _with_ten_contacts(), nconmax=3)


def _with_ten_contacts() -> mujoco.MjData:
  m = load("humanoid")
  d = mujoco.MjData(m)
  while d.ncon != 10:
    d.qpos[2] -= 0.02
    mujoco.mj_forward(m, d)
  return d


def test_replace_converts_and_checks():
  m = mjx.put_model(load("humanoid"))
  d = mjx.make_data(m)
  assert d.replace(qpos=np.zeros(m.nq)).qpos.dtype == jnp.float32
  with pytest.raises(ValueError, match=r"qpos: expected shape \(28,\)"):
    d.replace(qpos=np.zeros(3))
  with pytest.raises(ValueError, match="did you mean qpos"):
    d.replace(qposs=np.zeros(m.nq))
  with pytest.raises(TypeError, match="eq_active"):
    mjx.make_data(mjx.put_model(load("hand"))).replace(eq_active=np.zeros(load("hand").neq))
  with pytest.raises(ValueError, match="structure"):
    m.replace(nv=3)
  with pytest.raises(ValueError, match="body_mass"):
    m.replace(body_mass=np.zeros(2))
  g = m.tree_replace({"opt.gravity": [0, 0, -1.0], "opt.iterations": 7}).opt
  assert (float(g.gravity[2]), g.iterations) == (-1.0, 7)


def test_a_step_refuses_what_does_not_fit():
  m = mjx.put_model(load("humanoid"))
  d = mjx.make_data(m)
  other = mjx.put_model(load("cartpole"))
  with pytest.raises(ValueError, match="another model"):
    mjx.step(other, d)
  with pytest.raises(ValueError, match="jax.vmap"):
    mjx.step(m, jax.tree.map(lambda x: jnp.stack([x, x]), d))
  with pytest.raises(ValueError, match=r"jax.vmap\(mjx.step, in_axes=\(mjx.model_axes\(m\), 0\)\)"):
    mjx.step(jax.tree.map(lambda x: jnp.stack([x, x]), m), d)
  with pytest.raises(TypeError, match="MjModel"):
    mjx.step(load("humanoid"), d)  # type: ignore
  half = jax.tree.map(lambda x: x, d)
  object.__setattr__(half, "qvel", d.qvel.astype(jnp.float16))
  with pytest.raises(ValueError, match="float16"):
    jax.jit(mjx.step)(m, half)


def test_nothing_is_printed():
  code = (
    "import jax, mujoco, mjx_warp_ffi.mjx as mjx;"
    "from support import helpers;"
    "mj_model = mujoco.MjModel.from_xml_path(str(helpers.model_path('cartpole')));"
    "m = mjx.put_model(mj_model);"
    "d = mjx.make_data(m);"
    "mjx.render(m, d, mjx.create_render_context(mj_model, cam_res=(4, 4)));"
    "jax.grad(lambda q: mjx.step(m, d.replace(qpos=q)).qpos.sum())(d.qpos)"
  )
  env = helpers.environment()
  done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert done.stdout == ""
