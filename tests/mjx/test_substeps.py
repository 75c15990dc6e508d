"""Several steps in one call are the same steps in as many calls."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import worlds
from support.helpers import assert_same_leaves, model_path

COUNT = 4


def load(name):
  return mujoco.MjModel.from_xml_path(str(model_path(name)))


def _moving(name, nworld=3, **options):
  """Worlds that have come into contact."""
  m = mjx.put_model(load(name), **options)
  rng = np.random.default_rng(0)
  d = worlds.repeat(mjx.make_data(m), nworld)
  ctrl = rng.uniform(-0.3, 0.3, size=(nworld, m.nu))
  d = d.replace(
    qvel=jnp.asarray(0.3 * rng.normal(size=(nworld, m.nv)), jnp.float32),
    ctrl=jnp.asarray(ctrl, jnp.float32),
  )
  return m, jax.jit(jax.vmap(lambda m, d: mjx.step(m, d, substeps=30), (None, 0)))(m, d)


def _in_turn(m, d):
  return jax.lax.scan(lambda d, _: (mjx.step(m, d), None), d, length=COUNT)[0]


def _at_once(m, d):
  return mjx.step(m, d, substeps=COUNT)


def _both(m, d):
  return (jax.jit(jax.vmap(f, (None, 0)))(m, d) for f in (_in_turn, _at_once))


@pytest.mark.parametrize("name", ["hopper", "hand", "arm", "pile", "point_mass"])
def test_steps_at_once_are_steps_in_turn(name):
  m, d = _moving(name)
  assert_same_leaves(*_both(m, d))


def test_what_a_substep_lost_is_flagged():
  m = mjx.put_model(load("pile"))
  d = worlds.repeat(mjx.make_data(m, nconmax=2, njmax=6), 3)
  in_turn, at_once = _both(m, d)
  assert np.all(np.asarray(in_turn.overflow) != 0)
  assert np.all(np.asarray(at_once.overflow) != 0)
  if jax.default_backend() == "cpu":  # a GPU keeps other contacts of too many in every run
    np.testing.assert_array_equal(at_once.overflow, in_turn.overflow)


def test_a_world_that_goes_bad_on_the_way_is_reset_on_the_way():
  m, d = _moving("hopper", autoreset=True)
  d = d.replace(qvel=d.qvel.at[1, 0].set(jnp.inf))
  in_turn, at_once = _both(m, d)
  assert np.any(np.asarray(in_turn.warning[1]) != 0)
  np.testing.assert_allclose(in_turn.time[1], COUNT * m.opt.timestep, rtol=1e-6)
  assert_same_leaves(in_turn, at_once)


@pytest.mark.parametrize("options", [{}, {"autoreset": True}, {"gradient": "fd"}])
def test_their_gradient_is_that_of_the_steps(options):
  m, d = _moving("hopper", nworld=2, **options)

  def gradient(steps):
    def loss(mass, ctrl, d):
      after = steps(m.replace(body_mass=mass), d.replace(ctrl=ctrl))
      return jnp.sum(after.qpos**2) + jnp.sum(after.qvel**2) + jnp.sum(after.xpos)

    return jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (None, 0, 0)))(m.body_mass, d.ctrl, d)

  # the order of the sums over steps differs; what "fd" divides by its displacement the more
  tolerance = 2e-3 if options.get("gradient") == "fd" else 1e-5
  for a, b in zip(gradient(_in_turn), gradient(_at_once), strict=True):
    assert np.max(np.abs(a)) > 0
    np.testing.assert_allclose(b, a, atol=tolerance * np.max(np.abs(a)))


def test_a_result_without_a_rule_is_refused_by_name():
  m, d = _moving("hopper", nworld=1)
  d = jax.tree.map(lambda x: x[0], d)
  with pytest.raises(NotImplementedError, match="no analytic gradient from contact.solref"):
    jax.grad(lambda v: jnp.sum(_at_once(m, d.replace(qvel=v)).contact.solref))(d.qvel)


def test_a_model_put_without_gradient_says_so():
  m, d = _moving("hopper", nworld=1, gradient="none")
  d = jax.tree.map(lambda x: x[0], d)
  with pytest.raises(NotImplementedError, match="gradient='none'"):
    jax.grad(lambda v: jnp.sum(_at_once(m, d.replace(qvel=v)).qpos))(d.qvel)


@pytest.mark.parametrize("substeps", [0, -1, 1.5, True, "2"])
def test_a_count_of_substeps_that_makes_no_sense_is_refused(substeps):
  m = mjx.put_model(mujoco.MjModel.from_xml_string("<mujoco/>"))
  with pytest.raises(ValueError, match="substeps must be an integer of at least 1"):
    mjx.step(m, mjx.make_data(m), substeps=substeps)
