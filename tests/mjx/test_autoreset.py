"""Bad states: their bits, that they stay in their world, and resets as mj_step does them."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers, worlds

_QPOS, _QVEL, _QACC = (
  1 << int(w)
  for w in (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
  )
)
# The worlds of the tests: what is put where before a step.
_BAD = {
  "healthy": {},
  "nan position": {"qpos": np.nan},
  "huge position": {"qpos": 2e10},
  "infinite velocity": {"qvel": np.inf},
  "both": {"qpos": np.nan, "qvel": np.nan},
  "bad acceleration": {"qfrc_applied": 1e30},
  "huge velocity": {"qvel": -1e11},
  "nan force": {"xfrc_applied": np.nan},
  "nan control": {"ctrl": np.nan},
}


@functools.cache
def _load(name):
  return mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))


@functools.cache
def _model(name, autoreset):
  return mjx.put_model(_load(name), autoreset=autoreset)


@functools.cache
def _step():
  return jax.jit(jax.vmap(mjx.step, (None, 0)))


def _c_warning(d):
  return sum(1 << i for i, w in enumerate(d.warning) if w.number)


def _batch(m, d):
  """A world for each entry of `_BAD`, all from the state of an MjData."""
  start = mjx.put_data(m.spec.mj_model, d, nconmax=32, njmax=128)
  batch = worlds.repeat(start, len(_BAD))
  for i, values in enumerate(_BAD.values()):
    for name, value in values.items():
      old = getattr(batch, name)
      batch = batch.replace(**{name: old.at[(i, *(-1,) * (old.ndim - 1))].set(value)})
  return batch


def _moving(name):
  """An MjData some steps from the start, with every input in use."""
  m = _load(name)
  d = mujoco.MjData(m)
  if m.nkey:
    mujoco.mj_resetDataKeyframe(m, d, m.nkey - 1)
  d.ctrl[:] = 0.1
  d.qfrc_applied[:] = 0.01
  for _ in range(5):
    mujoco.mj_step(m, d)
  return d


@pytest.mark.parametrize("name", ["humanoid", "hand", "drives"])
def test_bad_worlds_are_reset_as_mj_step_does_and_the_others_go_on(name):
  m, d = _model(name, True), _moving(name)
  got = _step()(m, _batch(m, d))
  plain = _step()(_model(name, False), _batch(m, d))
  for i, (case, values) in enumerate(_BAD.items()):
    if case == "nan control" and name == "drives":
      continue  # C puts it into the history of a delayed control, and NaN comes out of that later
    c = mujoco.MjData(m.spec.mj_model)
    mujoco.mj_copyData(c, m.spec.mj_model, d)
    for field, value in values.items():
      getattr(c, field).flat[-1] = value
    mujoco.mj_step(m.spec.mj_model, c)
    assert int(got.warning[i]) == _c_warning(c), case
    for field in ("time", "qpos", "qvel", "act", "ctrl", "qfrc_applied", "mocap_pos", "xpos"):
      if field == "ctrl" and case == "nan control":
        continue  # autoreset returns the controls that were used
      # a step in single precision
      np.testing.assert_allclose(
        getattr(got, field)[i], getattr(c, field), atol=2e-5, rtol=1e-4, err_msg=f"{case} {field}"
      )
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(plain), strict=True):
    helpers.assert_same(x[0], y[0])


def test_a_reset_world_equals_the_first_step_of_a_fresh_one():
  m, d = _model("humanoid", True), _moving("humanoid")
  got = _step()(m, _batch(m, d))
  fresh = mjx.make_data(m, nconmax=32, njmax=128)
  fresh = _step()(m, worlds.repeat(fresh, len(_BAD)))
  for i in range(1, list(_BAD).index("nan control")):  # which alone is no reason for a reset
    for name in ("qpos", "qvel", "time", "qacc_warmstart", "qacc", "ctrl", "sensordata", "xpos"):
      helpers.assert_same(getattr(got, name)[i], getattr(fresh, name)[i], name)


def test_without_autoreset_bad_states_set_bits_and_stay_in_their_world():
  m, d = _model("humanoid", False), _moving("humanoid")
  got = _step()(m, _batch(m, d))
  expected = [0, _QPOS | _QACC, _QPOS, _QVEL | _QACC, _QPOS | _QVEL | _QACC, _QACC]
  for i, bits in enumerate(expected):
    assert int(got.warning[i]) & bits == bits, list(_BAD)[i]
  alone = _step()(m, jax.tree.map(lambda x: x[:1], _batch(m, d)))
  for name in ("qpos", "qvel", "qacc", "sensordata", "ncon", "overflow", "warning"):
    helpers.assert_same(getattr(got, name)[0], getattr(alone, name)[0], name)
  assert int(got.overflow[0]) == 0


def test_many_bad_worlds_take_nothing_from_the_others():
  m = _model("pile", False)
  healthy = worlds.repeat(mjx.make_data(m), 32)
  got = healthy.replace(qpos=healthy.qpos.at[1:].set(jnp.nan))
  for _ in range(20):
    got, healthy = _step()(m, got), _step()(m, healthy)
  helpers.assert_same(got.qpos[0], healthy.qpos[0])
  assert int(got.overflow[0]) == 0 and int(got.ncon[0]) > 0


def test_bits_accumulate_and_a_reset_clears_them():
  m = _model("humanoid", False)
  d = mjx.make_data(m)
  step = jax.jit(mjx.step)
  d = step(m, d.replace(qvel=d.qvel.at[0].set(1e11)))
  assert int(d.warning) & _QVEL
  d = step(m, d.replace(qvel=jnp.zeros(m.nv), qpos=m.qpos0.at[0].set(jnp.inf)))
  assert int(d.warning) & _QVEL and int(d.warning) & _QPOS
  assert int(mjx.reset(m, d).warning) == 0


def test_a_scan_of_resets_goes_on_for_ever():
  m = _model("humanoid", True)
  d = mjx.make_data(m)

  @jax.jit
  def run(d):
    def one(d, i):
      d = mjx.step(m, d.replace(qvel=jnp.where(i % 7 == 3, jnp.nan, d.qvel)))
      return d, (d.time, d.warning)

    return jax.lax.scan(one, d, jnp.arange(21))

  d, (time, warning) = run(d)
  assert jnp.isfinite(d.qpos).all()
  # in every seventh step the clock starts again
  counted = np.concatenate([np.arange(1, 4), np.arange(1, 8), np.arange(1, 8), np.arange(1, 5)])
  np.testing.assert_allclose(time, counted * float(m.opt.timestep), rtol=1e-5)
  assert int(warning[2]) == 0 and int(warning[3]) == _QVEL


def test_it_works_without_conditional_nodes_too():
  m = _model("hopper", True)
  plain = m.tree_replace({"opt.graph_conditional": False})
  bad = mjx.make_data(m).replace(qfrc_applied=jnp.full(m.nv, 1e30))
  helpers.assert_same(jax.jit(mjx.step)(m, bad).qpos, jax.jit(mjx.step)(plain, bad).qpos)


@pytest.mark.gpu
def test_conditional_nodes_reset_on_the_gpu():
  m, d = _model("humanoid", True), _moving("humanoid")
  got = _step()(m, _batch(m, d))
  again = _step()(m, _batch(m, d))
  assert jnp.isfinite(got.qpos).all() and jnp.isfinite(again.qpos).all()
  assert (got.warning[1:] != 0).all() and got.warning[0] == 0


def test_plastic_springs_forget_what_they_yielded():
  xml = """
  <mujoco><worldbody>
    <body><joint axis="0 1 0" stiffness="50" springref="20" springyield="1"/>
      <geom size=".1" pos="0 0 -.3" contype="0"/>
      <body pos="0 0 -.3"><joint type="ball" stiffness="50" springyield="1"/>
        <geom size=".1" pos="0 0 -.3" contype="0"/></body></body>
  </worldbody></mujoco>"""
  mj_model = mujoco.MjModel.from_xml_string(xml)
  m = mjx.put_model(mj_model, autoreset=True)
  c = mujoco.MjData(mj_model)
  d = jax.jit(mjx.step)(m, mjx.make_data(m).replace(qvel=jnp.full(m.nv, 2.0)))
  c.qvel[:] = 2.0
  for _ in range(200):
    mujoco.mj_step(mj_model, c)
    d = jax.jit(mjx.step)(m, d)
  start = mujoco.MjData(mj_model).plastic
  assert np.abs(np.asarray(d.plastic) - start).max() > 1e-3
  np.testing.assert_allclose(mjx.reset(m, d).plastic, start, rtol=1e-6)
  d = jax.jit(mjx.step)(m, d.replace(qvel=jnp.full(m.nv, jnp.nan)))
  c.qvel[:] = np.nan
  mujoco.mj_step(mj_model, c)
  np.testing.assert_allclose(d.plastic, c.plastic, rtol=1e-6)


def _loss(m, d):
  """A loss of a short rollout, and of the controls that come out of it."""

  def loss(u, v):
    def one(d, _):
      d = mjx.step(m, d)
      return d, jnp.sum(d.qpos) + 0.1 * jnp.sum(d.ctrl**2)

    return jnp.sum(jax.lax.scan(one, d.replace(ctrl=u, qvel=v), None, 3)[1])

  return jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (0, 0)))


def test_a_reset_world_contributes_zero_to_gradients_and_the_others_all_of_theirs():
  m, plain = _model("hopper", True), _model("hopper", False)
  d = mjx.make_data(m)
  u = jnp.full((3, m.nu), 0.1)
  v = jnp.stack([jnp.full(m.nv, 0.1), jnp.full(m.nv, jnp.nan), jnp.full(m.nv, 1e11)])
  by_ctrl, by_qvel = _loss(m, d)(u, v)
  expected = _loss(plain, d)(u[:1], v[:1])
  np.testing.assert_allclose(by_ctrl[0], expected[0][0], rtol=1e-5)
  np.testing.assert_allclose(by_qvel[0], expected[1][0], rtol=1e-5)
  assert jnp.abs(by_qvel[0]).max() > 0 and jnp.abs(by_ctrl[0]).max() > 0
  np.testing.assert_array_equal(by_qvel[1:], 0)
  np.testing.assert_array_equal(by_ctrl[1:], 0)


def test_the_gradient_of_a_parameter_leaves_reset_worlds_out():
  m, d = _model("hopper", True), mjx.make_data(_model("hopper", True))
  v = jnp.stack([jnp.full(m.nv, 0.1), jnp.full(m.nv, jnp.nan)])

  def loss(mass, v):
    step = jax.vmap(lambda v: mjx.step(m.replace(body_mass=mass), d.replace(qvel=v)).qvel.sum())
    return step(v).sum()

  both, one = jax.jit(jax.grad(loss))(m.body_mass, v), jax.jit(jax.grad(loss))(m.body_mass, v[:1])
  np.testing.assert_allclose(both, one, rtol=1e-5)
  assert jnp.isfinite(both).all() and jnp.abs(both).max() > 0
