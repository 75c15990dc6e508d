"""Derived constants against mj_setConst, one model at a time and batched."""

import functools

import helpers
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx

_WRITTEN = (
  *("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0"),
  *("geom_aabb", "geom_rbound", "tendon_length0", "tendon_invweight0", "eq_data"),
  *("cam_pos0", "cam_poscom0", "cam_mat0", "light_pos0", "light_poscom0", "light_dir0"),
)
# Single precision through a factorisation of the inertia matrix, whose condition is up to 1e4.
_TOLERANCE = dict(rtol=2e-3, atol=1e-5)


def _load(name):
  return mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))


@functools.cache
def _set_const():
  return jax.jit(mjx.set_const)


def _randomize(m, rng):
  """Changes in an MjModel that the constants depend on."""
  for name in ("body_mass", "body_inertia", "dof_armature", "actuator_gear", "tendon_armature"):
    getattr(m, name)[:] *= rng.uniform(0.5, 2.0, size=getattr(m, name).shape)
  m.body_inertia[:] = m.body_mass[:, None] * rng.uniform(0.01, 0.012, size=(m.nbody, 3))
  moving = m.body_weldid != 0
  bodies = moving & (m.body_simple == 0)  # C refuses others
  m.body_ipos[bodies] += rng.uniform(-0.01, 0.01, size=(bodies.sum(), 3))
  m.body_pos[moving] += rng.uniform(-0.01, 0.01, size=(moving.sum(), 3))
  m.cam_pos[:] += rng.uniform(-0.1, 0.1, size=m.cam_pos.shape)
  m.light_pos[:] += rng.uniform(-0.1, 0.1, size=m.light_pos.shape)
  primitive = (m.geom_type != mujoco.mjtGeom.mjGEOM_MESH) & (
    m.geom_type != mujoco.mjtGeom.mjGEOM_HFIELD
  )
  m.geom_size[primitive] *= rng.uniform(0.5, 2.0, size=(primitive.sum(), 1))


_CHANGED = (
  *("body_mass", "body_inertia", "body_ipos", "body_pos", "dof_armature", "actuator_gear"),
  *("tendon_armature", "cam_pos", "light_pos", "geom_size"),
)


def _changed(c):
  return {n: getattr(c, n) for n in _CHANGED if getattr(c, n).size}


def _assert_constants(m, c, index=()):
  for name in _WRITTEN:
    expected = getattr(c, name)
    got = np.asarray(getattr(m, name))[index].reshape(expected.shape)
    np.testing.assert_allclose(got, expected, **_TOLERANCE, err_msg=name)


@pytest.mark.parametrize("name", ["humanoid", "hand", "muscle_arm", "quadruped_terrain", "pile"])
def test_the_constants_are_those_of_mj_set_const(name, rng):
  c = _load(name)
  m = mjx.put_model(c)
  _randomize(c, rng)
  stale = m.replace(**_changed(c))
  mujoco.mj_setConst(c, mujoco.MjData(c))
  _assert_constants(_set_const()(stale), c)
  with pytest.raises(AssertionError):
    _assert_constants(stale, c)


def test_an_unchanged_model_keeps_its_constants():
  c = _load("humanoid")
  _assert_constants(_set_const()(mjx.put_model(c)), c)


def test_each_world_has_its_own_constants(rng):
  c = _load("hand")
  m = mjx.put_model(c)
  each = [_load("hand") for _ in range(3)]
  for one in each:
    _randomize(one, rng)
  stack = {n: np.stack([_changed(one)[n] for one in each]) for n in _changed(c)}
  batch = m.replace(**stack)
  after = jax.jit(jax.vmap(mjx.set_const, in_axes=(mjx.model_axes(batch),)))(batch)
  for i, one in enumerate(each):
    mujoco.mj_setConst(one, mujoco.MjData(one))
    _assert_constants(after, one, index=i)


def test_it_works_in_a_function_of_a_single_parameter_under_nested_vmap():
  m = mjx.put_model(_load("humanoid"))

  @jax.jit
  @jax.vmap
  @jax.vmap
  def weight(scale):
    return mjx.set_const(m.replace(body_mass=m.body_mass * scale)).body_subtreemass[0]

  scale = jnp.arange(1, 7, dtype=jnp.float32).reshape(2, 3)
  # a sum of 14 masses in single precision
  np.testing.assert_allclose(weight(scale), scale * m.body_subtreemass[0], rtol=1e-6)


def test_values_are_read_anew_at_every_call():
  m = mjx.put_model(_load("humanoid"))
  first = _set_const()(m.replace(body_mass=m.body_mass * 2))
  second = _set_const()(m.replace(body_mass=m.body_mass * 3))
  again = _set_const()(m.replace(body_mass=m.body_mass * 2))
  for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
    np.testing.assert_array_equal(x, y)
  assert second.body_subtreemass[0] > first.body_subtreemass[0]


def test_a_randomized_world_steps_like_mujoco_with_its_constants(rng):
  c = _load("hopper")
  m = mjx.put_model(c)
  _randomize(c, rng)
  model = mjx.set_const(m.replace(**_changed(c)))
  mujoco.mj_setConst(c, mujoco.MjData(c))
  d = mujoco.MjData(c)
  mujoco.mj_resetDataKeyframe(c, d, 0)
  data = mjx.put_data(c, d, nconmax=16, njmax=64)
  step = jax.jit(mjx.step)
  for _ in range(5):
    mujoco.mj_step(c, d)
    data = step(model, data)
  # five steps in single precision
  np.testing.assert_allclose(data.qpos, d.qpos, atol=2e-5)
