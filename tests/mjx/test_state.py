"""State vectors against mj_getState and mj_setState."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers, worlds

_INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
# A mocap body, an equality, a delayed motor with activation and user data: every kind of state.
_XML = """
<mujoco>
  <size nuserdata="3"/>
  <worldbody>
    <body name="target" mocap="true" pos="1 2 3"><geom size=".1" contype="0"/></body>
    <body name="ball">
      <freejoint/>
      <geom size=".1"/>
    </body>
    <body name="arm" pos="1 0 0">
      <joint name="hinge" axis="0 1 0"/>
      <geom type="capsule" size=".05" fromto="0 0 0 0 0 -.5"/>
    </body>
  </worldbody>
  <equality><weld body1="target" body2="ball"/></equality>
  <actuator>
    <general joint="hinge" dyntype="filter" dynprm=".1" gainprm="1"/>
    <motor joint="hinge" delay=".01" nsample="4"/>
  </actuator>
</mujoco>
"""


def _model_and_state(rng):
  m = mujoco.MjModel.from_xml_string(_XML)
  d = mujoco.MjData(m)
  for name in ("qvel", "act", "qacc_warmstart", "ctrl", "qfrc_applied", "userdata"):
    getattr(d, name)[:] = rng.normal(size=getattr(d, name).shape)
  d.xfrc_applied[:] = rng.normal(size=d.xfrc_applied.shape)
  d.mocap_pos[:] = rng.normal(size=d.mocap_pos.shape)
  d.eq_active[:] = 0
  d.time = 0.5
  return m, d


def _c_state(m, d, spec):
  state = np.zeros(mujoco.mj_stateSize(m, int(spec)))
  mujoco.mj_getState(m, d, state, int(spec))
  return state.astype(np.float32)


@pytest.mark.parametrize("spec", [*(1 << i for i in range(15)), 0, 30, 8128, int(_INTEGRATION)])
def test_a_state_is_laid_out_as_mujoco_does(rng, spec):
  m, d = _model_and_state(rng)
  model, data = mjx.put_model(m), mjx.put_data(m, d)
  expected = _c_state(m, d, spec)
  assert mjx.state_size(model, spec) == mjx.state_size(m, spec) == expected.size
  np.testing.assert_array_equal(mjx.get_state(model, data, spec), expected)


def test_setting_a_state_is_the_inverse_of_getting_it_in_every_field(rng):
  m, d = _model_and_state(rng)
  model, data = mjx.put_model(m), mjx.put_data(m, d)
  start = mjx.make_data(model)
  state = mjx.get_state(model, data, _INTEGRATION)
  back = jax.jit(mjx.set_state, static_argnums=3)(model, start, state, int(_INTEGRATION))
  np.testing.assert_array_equal(mjx.get_state(model, back, _INTEGRATION), state)
  assert jax.tree.structure(back) == jax.tree.structure(start)
  for new, old in zip(jax.tree.leaves(back), jax.tree.leaves(start), strict=True):
    assert (new.shape, new.dtype) == (old.shape, old.dtype)


def test_states_of_a_batch_are_those_of_its_worlds(rng):
  m, d = _model_and_state(rng)
  model, data = mjx.put_model(m), mjx.put_data(m, d)
  times = jnp.arange(6, dtype=jnp.float32).reshape(2, 3)
  batch = worlds.repeat(data, 2, 3).replace(time=times)
  states = mjx.get_state(model, batch, _INTEGRATION)
  assert states.shape == (2, 3, mjx.state_size(model, _INTEGRATION))
  one = jax.vmap(jax.vmap(lambda d: mjx.get_state(model, d, _INTEGRATION)))(batch)
  np.testing.assert_array_equal(states, one)
  back = mjx.set_state(model, batch, states[0, 1], _INTEGRATION)
  assert (back.time == times[0, 1]).all() and back.qpos.shape == batch.qpos.shape


def test_a_state_restores_a_run_bit_for_bit():
  model = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path("humanoid"))))
  step = jax.jit(mjx.step)
  data = step(model, mjx.make_data(model))
  other = mjx.set_state(
    model, mjx.make_data(model), mjx.get_state(model, data, _INTEGRATION), _INTEGRATION
  )
  np.testing.assert_array_equal(step(model, data).qpos, step(model, other).qpos)


def test_a_wrong_signature_or_size_is_an_error(rng):
  m, d = _model_and_state(rng)
  model, data = mjx.put_model(m), mjx.put_data(m, d)
  with pytest.raises(ValueError, match="mjtState"):
    mjx.get_state(model, data, 1 << 20)
  with pytest.raises(ValueError, match="expected 1 values"):
    mjx.set_state(model, data, jnp.zeros(2), mujoco.mjtState.mjSTATE_TIME)
