"""Trees fall asleep and wake as in C MuJoCo, and their sleep is part of the state alone."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data import fields

XML = """
<mujoco>
  <option timestep="0.005" sleep_tolerance="0.05"><flag sleep="enable"/></option>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
    <body pos="0.05 0 1.5"><freejoint/><geom type="sphere" size="0.1"/></body>
    <body pos="2 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def asleep():
  """A world in which both boxes sleep and the sphere falls towards one of them."""
  mj_model = mujoco.MjModel.from_xml_string(XML)
  m, data = mjx.put_model(mj_model), mujoco.MjData(mj_model)
  d, step = mjx.put_data(mj_model, data), jax.jit(mjx.step)
  for _ in range(80):
    d = step(m, d)
    mujoco.mj_step(mj_model, data)
  return m, d, data


def test_trees_sleep_and_wake_when_c_lets_them(asleep):
  m, d, data = asleep
  mj_model = m.spec.mj_model
  assert (data.tree_asleep >= 0).tolist() == [True, False, True]
  np.testing.assert_array_equal(d.tree_asleep >= 0, data.tree_asleep >= 0)
  step, woken, at_c = jax.jit(mjx.step), None, None
  for i in range(80):
    d = step(m, d)
    mujoco.mj_step(mj_model, data)
    if woken is None and d.tree_asleep[0] < 0:
      woken = i
    if at_c is None and data.tree_asleep[0] < 0:
      at_c = i
  assert woken is not None and abs(woken - at_c) <= 1  # a step by the rounding of the impact
  assert d.tree_asleep[2] >= 0
  np.testing.assert_array_equal(d.qvel[12:], 0)


def test_a_step_depends_on_the_state_alone_whatever_the_workspace_has_seen(asleep):
  m, d, _ = asleep
  alone = jax.jit(mjx.step)(m, d)  # a workspace that has seen the trees fall asleep
  pair = jax.tree.map(lambda x: jnp.stack([x, x]), d)
  fresh = jax.jit(jax.vmap(mjx.step, (None, 0)))(m, pair)  # one that has not
  for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(fresh), strict=True):
    np.testing.assert_array_equal(a, b[0])
  assert alone.tree_asleep[0] >= 0


def test_nothing_but_the_state_says_what_a_sleeping_tree_does(asleep):
  m, d, _ = asleep
  read = {*fields.STATE, "overflow"}
  marked = {
    f.name: jnp.full_like(getattr(d, f.name), jnp.nan)
    for f in fields.data_fields()
    if f.name not in read and f.dtype == np.float32
  }
  after, plain = mjx.step(m, d.replace(**marked)), mjx.step(m, d)
  for name in ("qpos", "qvel", "xpos", "cvel", "qacc", "qfrc_bias", "tree_asleep"):
    got, expected = getattr(after, name), getattr(plain, name)
    np.testing.assert_array_equal(got, expected, err_msg=name)


def test_a_force_wakes_a_tree(asleep):
  m, d, _ = asleep
  pushed = d.replace(qfrc_applied=d.qfrc_applied.at[12].set(30.0))
  after = jax.jit(mjx.step)(m, pushed)
  assert after.tree_asleep[2] < 0 and after.qvel[12] > 0
