"""The step as any JAX function: jit, vmap, scan, while_loop, remat, donation."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers


@functools.cache
def humanoid() -> mujoco.MjModel:
  return mujoco.MjModel.from_xml_path(str(helpers.model_path("humanoid")))


@pytest.fixture(scope="module")
def model() -> mjx.Model:
  return mjx.put_model(humanoid())


def make(m: mjx.Model, seed: int) -> mjx.Data:
  rng = np.random.default_rng(seed)
  d = mjx.make_data(m, nconmax=24, njmax=96)
  qpos = humanoid().qpos0 + 0.05 * rng.standard_normal(m.nq)
  qpos[2] = 1.0
  return d.replace(qpos=qpos, qvel=0.1 * rng.standard_normal(m.nv))


def batch(m: mjx.Model, size: int) -> mjx.Data:
  return jax.tree.map(lambda *x: jnp.stack(x), *[make(m, i) for i in range(size)])


def assert_same(a: mjx.Data, b: mjx.Data, *, atol: float = 0.0) -> None:
  for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
    name = jax.tree_util.keystr(path)
    if atol:
      x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
      scale = max(1.0, float(np.abs(y).max(initial=0)))
      np.testing.assert_allclose(x, y, atol=atol * scale, err_msg=name)
    else:
      np.testing.assert_array_equal(x, y, err_msg=name)


def test_eager_and_jitted_calls_agree(model):
  d = make(model, 0)
  assert_same(jax.jit(mjx.step)(model, d), mjx.step(model, d))


def test_disabling_jit_changes_nothing(model):
  d = make(model, 0)
  expected = mjx.step(model, d)
  with jax.disable_jit():
    got = jax.vmap(mjx.step, in_axes=(None, 0))(model, jax.tree.map(lambda x: x[None], d))
  assert_same(jax.tree.map(lambda x: x[0], got), expected)


def test_the_same_input_gives_the_same_bits_whatever_ran_between(model):
  x, y = make(model, 0), make(model, 1)
  step = jax.jit(mjx.step)
  first, _, last = step(model, x), step(model, y), step(model, x)
  assert_same(first, last)


def test_nested_vmap_equals_one_vmap(model):
  d = batch(model, 6)
  flat = jax.jit(jax.vmap(mjx.step, in_axes=(None, 0)))(model, d)
  nested = jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), d)
  got = jax.jit(jax.vmap(jax.vmap(mjx.step, in_axes=(None, 0)), in_axes=(None, 0)))(model, nested)
  assert_same(jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), got), flat)


def test_a_batch_axis_at_the_end_works(model):
  d = batch(model, 4)
  expected = jax.vmap(mjx.step, in_axes=(None, 0))(model, d)
  last = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), d)
  got = jax.vmap(mjx.step, in_axes=(None, -1), out_axes=-1)(model, last)
  assert_same(jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), got), expected)


def test_one_field_batched_alone_is_broadcast_over_the_rest(model):
  d = make(model, 0)
  ctrl = jnp.linspace(-1, 1, 3 * model.nu, dtype=jnp.float32).reshape(3, model.nu)
  got = jax.vmap(lambda u: mjx.step(model, d.replace(ctrl=u)))(ctrl)
  for i in range(3):
    one = mjx.step(model, d.replace(ctrl=ctrl[i]))
    np.testing.assert_allclose(got.qpos[i], one.qpos, atol=1e-6)  # threads add in another order


@pytest.mark.parametrize("name", ["body_mass", "geom_friction", "dof_damping"])
def test_one_leaf_of_the_model_batched_alone_gives_each_world_its_own(model, name):
  d = make(model, 0)
  leaf = getattr(model, name)
  leaves = leaf * jnp.asarray([0.5, 1.0, 2.0], jnp.float32).reshape(3, *[1] * leaf.ndim)
  got = jax.vmap(lambda x: mjx.step(model.replace(**{name: x}), d))(leaves)
  for i in range(3):
    one = mjx.step(model.replace(**{name: leaves[i]}), d)
    np.testing.assert_allclose(got.qvel[i], one.qvel, atol=1e-4)  # velocities of some 10 rad/s


def test_a_batched_model_is_mapped_by_in_axes(model):
  d = make(model, 0)
  models = jax.vmap(lambda k: model.replace(body_mass=model.body_mass * k))(
    jnp.asarray([1.0, 1.5], jnp.float32)
  )
  got = jax.vmap(mjx.step, in_axes=(0, None))(models, d)
  one = mjx.step(model.replace(body_mass=model.body_mass * np.float32(1.5)), d)
  np.testing.assert_allclose(got.qvel[1], one.qvel, atol=1e-4)


def test_scan_while_loop_and_remat_agree_with_a_python_loop(model):
  d = make(model, 0)
  expected = d
  for _ in range(5):
    expected = jax.jit(mjx.step)(model, expected)
  scanned, _ = jax.jit(
    lambda m, d: jax.lax.scan(lambda d, _: (mjx.step(m, d), None), d, None, length=5)
  )(model, d)
  _, looped = jax.jit(
    lambda m, d: jax.lax.while_loop(
      lambda s: s[0] < 5, lambda s: (s[0] + 1, mjx.step(m, s[1])), (0, d)
    )
  )(model, d)
  rematted = d
  for _ in range(5):
    rematted = jax.jit(jax.checkpoint(mjx.step))(model, rematted)
  for got in (scanned, looped, rematted):
    assert_same(got, expected)


def test_a_batched_while_loop_stops_each_world_by_itself(model):
  d = batch(model, 3)

  def fall(d: mjx.Data, n: jax.Array) -> mjx.Data:
    return jax.lax.while_loop(lambda d: d.time < n * 0.005 - 0.001, lambda d: mjx.step(model, d), d)

  got = jax.jit(jax.vmap(fall))(d, jnp.asarray([1.0, 2.0, 3.0], jnp.float32))
  np.testing.assert_allclose(got.time, [0.005, 0.01, 0.015], rtol=1e-6)


def test_a_branch_under_vmap_keeps_worlds_apart(model):
  d = batch(model, 2)
  frozen = jax.vmap(lambda d, go: jax.lax.cond(go, lambda d: mjx.step(model, d), lambda d: d, d))(
    d, jnp.asarray([True, False])
  )
  np.testing.assert_array_equal(frozen.qpos[1], d.qpos[1])
  assert float(jnp.abs(frozen.qvel[0] - d.qvel[0]).max()) > 0


def test_donation_works_and_no_two_leaves_share_a_buffer(model):
  d = make(model, 0)
  pointers = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(d) if x.size]
  assert len(pointers) == len(set(pointers))
  # inputs pass through without a copy, and would be deleted with the donated Data
  expected = jax.tree.map(jnp.copy, mjx.step(model, d))
  step = jax.jit(mjx.step, donate_argnums=1)
  assert_same(step(model, d), expected)
  assert d.qpos.is_deleted()


def test_a_new_data_shares_no_buffer_with_the_model(model):
  theirs = {x.unsafe_buffer_pointer() for x in jax.tree.leaves(model) if x.size}
  d = mjx.make_data(model)
  assert not theirs & {x.unsafe_buffer_pointer() for x in jax.tree.leaves(d) if x.size}


def test_carry_types_are_stable_and_strong(model):
  d = make(model, 0)
  out = jax.eval_shape(mjx.step, model, d)
  for (path, x), y in zip(jax.tree.leaves_with_path(d), jax.tree.leaves(out), strict=True):
    assert (x.shape, x.dtype) == (y.shape, y.dtype), path
    assert not x.weak_type and not y.weak_type, path


def test_where_selects_whole_worlds(model):
  a, b = batch(model, 4), batch(model, 4)
  b = jax.vmap(mjx.step, in_axes=(None, 0))(model, b)
  mask = jnp.asarray([True, False, True, False])
  got = jax.tree.map(lambda x, y: jnp.where(mask.reshape(4, *[1] * (x.ndim - 1)), x, y), a, b)
  np.testing.assert_array_equal(got.qpos[1], b.qpos[1])
  np.testing.assert_array_equal(got.qpos[0], a.qpos[0])


def test_nan_in_one_world_stays_there(model):
  d = batch(model, 4)
  d = d.replace(qpos=d.qpos.at[1].set(jnp.nan))
  got = jax.vmap(mjx.step, in_axes=(None, 0))(model, d)
  clean = jax.vmap(mjx.step, in_axes=(None, 0))(model, batch(model, 4))
  for i in (0, 2, 3):
    np.testing.assert_allclose(got.qpos[i], clean.qpos[i], atol=1e-6)
  assert int(got.warning[1]) != 0 and not np.any(np.asarray(got.warning)[[0, 2, 3]])


def test_a_saved_and_restored_state_goes_on_with_the_same_bits(model):
  d = make(model, 0)
  step = jax.jit(mjx.step)
  for _ in range(30):
    d = step(model, d)
  state = mjx.get_state(model, d, mujoco.mjtState.mjSTATE_INTEGRATION)
  fresh = mjx.set_state(model, make(model, 5), state, mujoco.mjtState.mjSTATE_INTEGRATION)
  a, b = step(model, d), step(model, fresh)
  for name in ("qpos", "qvel", "qacc", "sensordata", "xpos", "qfrc_constraint"):
    np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_equal_models_share_a_compilation():
  step = jax.jit(lambda m, d: mjx.step(m, d))
  a, b = mjx.put_model(humanoid()), mjx.put_model(humanoid())
  step(a, make(a, 0))
  step(b.replace(body_mass=b.body_mass * 2), make(b, 0))
  assert step._cache_size() == 1
  step(b.tree_replace({"opt.iterations": 3}), make(b, 0))
  assert step._cache_size() == 2
