"""Resets: a reset world equals a fresh one, and the others keep every bit."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers, worlds


@functools.cache
def _model(name):
  return mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path(name))))


def _batch(data, *shape):
  return worlds.repeat(data, *shape)


@functools.cache
def _stepped(name, nworld=4):
  """Worlds that have moved for some steps, each in its own way."""
  m = _model(name)
  d = _batch(mjx.make_data(m), nworld)
  push = jnp.arange(nworld, dtype=jnp.float32)[:, None] * jnp.ones((nworld, m.nv), jnp.float32)
  d = d.replace(qvel=0.1 * push)
  step = jax.jit(jax.vmap(mjx.step, (None, 0)))
  for _ in range(3):
    d = step(m, d)
  return d


def _assert_worlds_equal(a, b):
  paths = jax.tree.leaves_with_path(a)
  for (path, x), y in zip(paths, jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))


def _world(d, i):
  return jax.tree.map(lambda x: x[i], d)


@pytest.mark.parametrize("name", ["humanoid", "drives"])
def test_a_reset_world_equals_a_fresh_one_and_the_others_keep_every_bit(name):
  m, d = _model(name), _stepped(name)
  mask = jnp.array([False, True, False, True])
  after = jax.jit(mjx.reset)(m, d, mask)
  fresh = mjx.make_data(m)
  for i in range(4):
    _assert_worlds_equal(_world(after, i), fresh if mask[i] else _world(d, i))


def test_a_world_with_nan_is_healthy_after_its_reset_and_steps_like_a_fresh_one():
  m = _model("humanoid")
  d = _batch(mjx.make_data(m), 2)
  d = d.replace(qpos=d.qpos.at[0].set(jnp.nan))
  step = jax.jit(jax.vmap(mjx.step, (None, 0)))
  bad = step(m, d)
  assert jnp.isnan(bad.qpos[0]).any() and bad.warning[0] != 0 and bad.warning[1] == 0
  again = mjx.reset(m, bad, jnp.array([True, False]))
  fresh = step(m, _batch(mjx.make_data(m), 2))
  _assert_worlds_equal(_world(step(m, again), 0), _world(fresh, 0))


def test_where_takes_whole_worlds_inside_and_outside_of_vmap():
  m, d = _model("humanoid"), _stepped("humanoid")
  fresh = _batch(mjx.make_data(m), 4)
  mask = jnp.array([True, False, False, True])
  outside = mjx.where(mask, fresh, d)
  inside = jax.vmap(mjx.where)(mask, fresh, d)
  by_hand = jax.vmap(lambda k, a, b: jax.tree.map(lambda x, y: jnp.where(k, x, y), a, b))
  _assert_worlds_equal(outside, inside)
  _assert_worlds_equal(outside, by_hand(mask, fresh, d))
  _assert_worlds_equal(mjx.where(mask, mjx.make_data(m), d), outside)


def test_a_reset_works_under_nested_vmap_and_on_nested_batches():
  m, d = _model("humanoid"), _stepped("humanoid")
  nested = jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), d)
  mask = jnp.array([[True, False], [False, True]])
  outside = mjx.reset(m, nested, mask)
  inside = jax.vmap(jax.vmap(mjx.reset, (None, 0, 0)), (None, 0, 0))(m, nested, mask)
  _assert_worlds_equal(outside, inside)
  rows = mjx.reset(m, nested, mask[:, 0])  # whole rows of worlds
  _assert_worlds_equal(_world(rows, 1), _world(nested, 1))
  assert (rows.time[0] == 0).all()


@pytest.mark.parametrize("name", ["humanoid", "quadruped", "muscle_arm"])
def test_a_keyframe_is_what_mujoco_resets_to(name):
  m, d = _model(name), _stepped(name)
  c = mujoco.MjData(m.spec.mj_model)
  mujoco.mj_resetDataKeyframe(m.spec.mj_model, c, m.nkey - 1)
  after = mjx.reset(m, d, jnp.array([False, True, True, False]), keyframe=m.nkey - 1)
  spec = mujoco.mjtState.mjSTATE_INTEGRATION
  expected = mjx.get_state(m, mjx.put_data(m.spec.mj_model, c), spec)
  got = mjx.get_state(m, after, spec)
  np.testing.assert_array_equal(got[1], expected)
  np.testing.assert_array_equal(got[0], mjx.get_state(m, d, spec)[0])
  each = mjx.reset(m, d, keyframe=jnp.full(4, m.nkey - 1))
  np.testing.assert_array_equal(mjx.get_state(m, each, spec)[3], expected)


def test_a_keyframe_has_a_name_and_a_wrong_one_is_an_error():
  m, d = _model("humanoid"), _stepped("humanoid")
  name = m.spec.mj_model.key(0).name
  _assert_worlds_equal(mjx.reset(m, d, keyframe=name), mjx.reset(m, d, keyframe=0))
  with pytest.raises(ValueError, match=f"nowhere.*{name}"):
    mjx.reset(m, d, keyframe="nowhere")
  with pytest.raises(ValueError, match="keyframe=99"):
    mjx.reset(m, d, keyframe=99)


def test_a_reset_follows_the_model_of_each_world():
  m = _model("humanoid")
  heights = m.qpos0.at[2].add(1.0)
  batch = m.replace(qpos0=jnp.stack([m.qpos0, heights]))
  d = _batch(mjx.make_data(m), 2)
  outside = mjx.reset(batch, d)
  inside = jax.vmap(mjx.reset, in_axes=(mjx.model_axes(batch), 0))(batch, d)
  _assert_worlds_equal(outside, inside)
  assert outside.qpos[1, 2] == m.qpos0[2] + 1.0


def test_a_reset_runs_nothing_of_mujoco_warp():
  m, d = _model("humanoid"), _stepped("humanoid")
  text = jax.jit(mjx.reset).lower(m, d, jnp.zeros(4, bool)).as_text()
  assert "custom_call" not in text


def test_masks_that_do_not_fit_are_errors():
  m, d = _model("humanoid"), _stepped("humanoid")
  with pytest.raises(ValueError, match="leading axes"):
    mjx.reset(m, d, jnp.zeros(3, bool))
  with pytest.raises(TypeError, match="boolean"):
    mjx.reset(m, d, jnp.zeros(4, jnp.int32))
  with pytest.raises(ValueError, match="structure"):
    mjx.where(jnp.zeros(4, bool), _batch(mjx.make_data(m, nconmax=8), 4), d)
  with pytest.raises(ValueError, match="another model"):
    mjx.reset(_model("drives"), d)
