"""Derived constants and their gradients against mj_setConst, one model at a time and batched."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import adjoint_models, helpers

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


@pytest.mark.parametrize("name", ["arm", "drives", "humanoid", "point_mass"])
def test_an_unchanged_model_keeps_its_constants(name):
  c = _load(name)
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


def test_only_constants_that_depend_on_a_batched_leaf_get_a_batch_axis():
  m = mjx.put_model(_load("hand"))
  gears = jnp.stack([m.actuator_gear, 2 * m.actuator_gear])
  masses = jnp.stack([jnp.stack([k * m.body_mass] * 2) for k in range(1, 4)])
  after = _set_const()(m.replace(actuator_gear=gears, body_mass=masses))
  axes = {n: getattr(after, n).ndim - getattr(m, n).ndim for n in (*_WRITTEN, "geom_friction")}
  # no actuator of the hand has armature, but the inertia is a function of it and of the gears
  weights = ("body_invweight0", "dof_invweight0", "tendon_invweight0", "actuator_acc0")
  expected = dict.fromkeys((*weights, "body_subtreemass", "cam_poscom0", "light_poscom0"), 2)
  expected |= dict.fromkeys(("cam_pos0", "cam_mat0", "light_pos0", "light_dir0"), 2)
  assert {n for n, axis in axes.items() if axis} == set(expected)
  one = _set_const()(m.replace(actuator_gear=gears[1], body_mass=masses[2, 1]))
  for name in weights:
    # one program has another order of sums than the other
    np.testing.assert_allclose(getattr(after, name)[2, 1], getattr(one, name), rtol=1e-4)


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


# What the constants are functions of; `site_` and others where a model has them.
_DIFFERENTIATED = (
  *("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_pos", "body_quat"),
  *("dof_armature", "jnt_pos", "jnt_axis", "qpos0", "site_pos", "site_quat", "eq_data"),
  *("geom_pos", "geom_quat", "geom_size", "tendon_armature", "actuator_gear", "cam_pos"),
  *("actuator_cranklength", "cam_quat", "light_pos"),
)


def _slow(value):
  return pytest.param(value, marks=pytest.mark.slow)


def _central(function, x, step):
  """Central differences of a number by each entry of an array, which is changed in place."""
  out, flat = np.zeros(x.size), x.reshape(-1)
  for i, old in enumerate(flat.copy()):
    flat[i] = old + step
    above = function()
    flat[i] = old - step
    out[i] = (above - function()) / (2 * step)
    flat[i] = old
  return out.reshape(x.shape)


def _without_length(name, gradient, x):
  """A gradient of quaternions without the part along them, which have length one."""
  if not name.endswith("quat"):
    return gradient
  return gradient - np.sum(gradient * x, axis=-1, keepdims=True) * x


@pytest.mark.parametrize("xml", [*map(_slow, ["ACTUATED", "WRAPPED"]), "CONSTRAINED"])
def test_the_gradient_of_the_constants_is_that_of_mj_set_const(xml, rng):
  c = mujoco.MjModel.from_xml_string(getattr(adjoint_models, xml))
  m = mjx.put_model(c)
  names = [n for n in _DIFFERENTIATED if getattr(m, n).size]
  if np.any(c.body_simple):
    names = [n for n in names if n not in ("body_ipos", "body_iquat")]  # C refuses to change these
  primitive = np.isin(c.geom_type, [2, 3, 4, 5, 6])
  weights = {}
  for name in _WRITTEN:
    value = getattr(c, name)
    weights[name] = rng.normal(size=value.shape) / np.maximum(np.abs(value), 1e-2)
    if name in ("geom_rbound", "geom_aabb"):
      weights[name][~primitive] = 0

  def loss(leaves):
    after = mjx.set_const(m.replace(**leaves))
    parts = [jnp.vdot(np.float32(w.ravel()), getattr(after, n).ravel()) for n, w in weights.items()]
    return sum(parts)

  def loss_in_c():
    mujoco.mj_setConst(c, mujoco.MjData(c))
    return sum(w.ravel() @ getattr(c, n).ravel() for n, w in weights.items())

  gradient = jax.jit(jax.grad(loss))({n: getattr(m, n) for n in names})
  for name in names:
    x = getattr(c, name)
    # frames that differ by less than 1e-6 count as the same in C
    expected = _central(loss_in_c, x, 1e-4 if name.endswith(("pos", "quat")) else 1e-6)
    expected = _without_length(name, expected, x)
    got = _without_length(name, np.asarray(gradient[name]).reshape(x.shape), x)
    # single precision; measured: at most 3e-6
    tolerance = 2e-5 * np.abs(expected).max() + 1e-6
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance, err_msg=name)


def test_the_constants_have_forward_derivatives_too():
  m = mjx.put_model(_load("hopper"))

  def weight(mass):
    return mjx.set_const(m.replace(body_mass=mass)).body_invweight0

  forward, backward = jax.jacfwd(weight)(m.body_mass), jax.jacrev(weight)(m.body_mass)
  # two orders of the same products in single precision
  np.testing.assert_allclose(forward, backward, rtol=1e-4, atol=1e-5)


def test_the_gradient_by_a_mass_through_set_const_is_that_of_a_recompiled_model(rng):
  c = mujoco.MjModel.from_xml_string(_SLED)  # its sensor has the subtree's velocity computed
  m = mjx.put_model(c)
  d = mjx.make_data(m).replace(qvel=np.float32([1, 0.3, -0.5]))
  weights = rng.normal(size=3)

  def fall(mass, through):
    model = m.replace(body_mass=mass)
    model = mjx.set_const(model) if through else model
    end, _ = jax.lax.scan(lambda d, _: (mjx.step(model, d), None), d, length=20)
    return weights.astype(np.float32) @ (end.qpos + end.subtree_com[1] + end.subtree_linvel[1])

  def fall_in_c():
    mujoco.mj_setConst(c, mujoco.MjData(c))
    end = mujoco.MjData(c)
    end.qvel[:] = d.qvel
    mujoco.mj_step(c, end, 20)
    return weights @ (end.qpos + end.subtree_com[1] + end.subtree_linvel[1])

  held = jax.jit(jax.grad(fall), static_argnums=1)(m.body_mass, False)
  full = jax.jit(jax.grad(fall), static_argnums=1)(m.body_mass, True)
  expected = _central(fall_in_c, c.body_mass, 1e-6)
  scale = np.abs(expected).max()
  # float32 through 20 steps of contact; measured: 2e-5
  np.testing.assert_allclose(full, expected, rtol=0, atol=1e-3 * scale)
  assert np.abs(held - expected).max() > 1e-2 * scale


# A sled on soft ground, which gives way by the inverse weights of the bodies.
_SLED = """<mujoco><option timestep="0.004" integrator="implicitfast" cone="elliptic"/>
  <default><geom solref=".05 1" solimp=".5 .9 .02"/></default><worldbody>
  <geom type="plane" size="2 2 1"/>
  <body name="sled" pos="0 0 .09"><joint type="slide" axis="1 0 0"/>
    <joint type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="2"/>
    <body pos=".15 0 .1"><joint axis="0 1 0" damping=".1" limited="true" range="-.1 1.5"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0" mass=".5"/></body></body>
  </worldbody><sensor><subtreelinvel body="sled"/></sensor></mujoco>"""
