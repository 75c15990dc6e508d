"""Domain randomization: every leaf of a Model acts as C MuJoCo's field does, alone or batched."""

import copy
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data import fields
from support import helpers, randomization_models, worlds

# Leaves that a step does not feel: for rendering, for culling, and where the solver stops.
_INERT = {
  *("geom_matid", "geom_rgba", "cam_intrinsic", "geom_dataid", "geom_aabb", "geom_rbound"),
  *("opt.tolerance", "opt.ls_tolerance", "opt.noslip_tolerance", "opt.ccd_tolerance"),
  *("opt.sleep_tolerance",),
  *(f"light_{x}" for x in ("type", "castshadow", "active", "attenuation", "cutoff", "exponent")),
  *(f"light_{x}" for x in ("ambient", "diffuse", "specular")),
  *(f"mat_{x}" for x in ("texid", "texuniform", "texrepeat", "emission", "specular")),
  *("mat_shininess", "mat_rgba"),
}
_SEEN_IN = ("MECHANISM", "CONTACTS", "MUSCLES")
_OUTPUTS = (
  *("qpos", "qvel", "act", "sensordata", "ten_length", "actuator_length", "actuator_force"),
  *("xpos", "xmat", "geom_xpos", "geom_xmat", "site_xpos", "subtree_com"),
  *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "qfrc_passive", "qfrc_adhesion"),
)
_NSTEP = 3
# What is added, where it is not a tenth of the value and a bit.
_ADDED = {
  "opt.density": 300.0,
  "opt.viscosity": 1.0,
  "opt.wind": 5.0,
  "geom_adhesion": 50.0,
  "pair_adhesion": 50.0,
  "tendon_lengthspring": 0.3,
  "geom_surfacevel": 0.5,
  "jnt_stiffness": 20.0,
  "jnt_stiffnesspoly": 50.0,
  "tendon_stiffness": 20.0,
  "tendon_stiffnesspoly": 50.0,
  "tendon_dampingpoly": 5.0,
  "dof_dampingpoly": 5.0,
  "actuator_dampingpoly": 5.0,
  "dof_frictionloss": 0.5,
  "tendon_frictionloss": 0.5,
  "actuator_delay": 0.002,
  "sensor_delay": 0.002,
  "sensor_interval": 0.002,
  "opt.timestep": 0.0005,
}
_UNSIGNED = ("solref", "solimp", "size", "geom_friction", "pair_friction")


def _perturbed(name, value, rng):
  """Another valid value of a leaf, nonzero where the value is zero."""
  value = np.array(value, np.float64)
  if "quat" in name:
    value = value + 0.1 * rng.normal(size=value.shape)
    return value / np.linalg.norm(value, axis=-1, keepdims=True)
  if "solimp" in name:
    return value * np.array([0.8, 0.8, 20.0, 1.2, 1.0])
  if "range" in name:
    return value * 0.2 - 0.01
  if name == "geom_solmix":
    value[:2] *= 3  # of the ground
    return value
  if name.endswith("springyield"):
    return value * 3
  if name.endswith(_UNSIGNED):
    return value * 1.3
  if name.endswith("mat0"):
    return value[:, [1, 0]] if value.ndim == 3 else value[:, [3, 4, 5, 0, 1, 2, 6, 7, 8]]
  return 1.1 * value + _ADDED.get(name, 0.05)


def _without_shortcuts(xml):
  """A model for which C looks at every field, where its compiler found it zero or diagonal."""
  spec = mujoco.MjSpec.from_string(xml)
  for body in spec.bodies[1:]:
    body.simple = False
  m = spec.compile()
  m.body_sameframe[:] = m.geom_sameframe[:] = m.site_sameframe[:] = 0
  m.flg_adhesion = m.flg_surfacevel = True
  return m


@functools.cache
def _case(name):
  """A model, an MjData in motion, and the leaves that have elements."""
  m = _without_shortcuts(getattr(randomization_models, name))
  d = mujoco.MjData(m)
  rng = np.random.default_rng(0)
  d.qvel[:] = (0.3 if name == "CONTACTS" else 0.1) * rng.normal(size=m.nv)
  d.ctrl[:] = 0.3
  for _ in range(10):
    mujoco.mj_step(m, d)
  d.ctrl[:] = 0.2
  leaves = [f.name for f in fields.model_leaves() if np.size(fields.lookup(m, f.name))]
  return m, d, [n for n in leaves if n not in _INERT]


def _set(m, name, value):
  owner, attribute = (m.opt, name[4:]) if name.startswith("opt.") else (m, name)
  if np.ndim(getattr(owner, attribute)):
    getattr(owner, attribute)[...] = value
  else:
    setattr(owner, attribute, value)


def _vector(d, index=()):
  parts = [np.asarray(getattr(d, n))[index].ravel() for n in _OUTPUTS]
  parts.append(np.asarray(d.ncon)[index].ravel())
  return np.concatenate(parts).astype(np.float64)


def _c_results(name):
  """What C MuJoCo does with the model and with each leaf changed: values and results."""
  m, d, leaves = _case(name)
  values, results = [], []
  for leaf in [None, *leaves]:
    rng = np.random.default_rng(1)
    changed, data = copy.copy(m), copy.copy(d)
    if leaf is not None:
      values.append(_perturbed(leaf, fields.lookup(m, leaf), rng))
      _set(changed, leaf, values[-1])
    for _ in range(_NSTEP):
      mujoco.mj_step(changed, data)
    results.append(_vector(data))
  return values, np.stack(results)


@functools.cache
def _steps():
  def run(m, d):
    return jax.lax.scan(lambda d, _: (mjx.step(m, d), None), d, None, _NSTEP)[0]

  return run


def _our_results(name, values):
  """The same, all in one batch of models: a world for the model and one for each leaf."""
  m, d, leaves = _case(name)
  model, data = mjx.put_model(m), mjx.put_data(m, d, nconmax=32, njmax=128)
  rows = {}
  for leaf in leaves:
    base = np.asarray(fields.lookup(model, leaf))
    stack = np.repeat(base[None], len(leaves) + 1, 0)
    stack[1 + leaves.index(leaf)] = values[leaves.index(leaf)].reshape(base.shape)
    rows[leaf] = stack
  batch = model.tree_replace(rows)
  out = jax.jit(jax.vmap(_steps(), in_axes=(mjx.model_axes(batch), None)))(batch, data)
  return np.stack([_vector(out, i) for i in range(len(leaves) + 1)])


@functools.cache
def _effects(name):
  """For each leaf the size of C's effect, and how far ours is from it, over what is noise."""
  values, theirs = _c_results(name)
  ours = _our_results(name, values)
  noise = 2e-6 * (1 + np.abs(theirs[0])) + 3 * np.abs(ours[0] - theirs[0])
  effect = (theirs[1:] - theirs[0]) / noise
  error = (ours[1:] - ours[0]) / noise - effect
  size = np.abs(effect).max(axis=1)
  errors = np.abs(error).max(axis=1) / np.maximum(size, 1e-30)
  return dict(zip(_case(name)[2], zip(size, errors, strict=True), strict=True))


_ALL = sorted({f.name for f in fields.model_leaves()} - _INERT)


@pytest.mark.parametrize("leaf", _ALL)
def test_a_leaf_has_the_effect_of_mujoco(leaf):
  seen = [_effects(name)[leaf] for name in _SEEN_IN if leaf in _effects(name)]
  felt = [(size, error) for size, error in seen if size > 20]
  assert felt, f"no model feels {leaf}: {seen}"
  for size, error in felt:
    # the effect is over 20 times the noise of single precision, which the error may have twice
    assert error < 0.1 + 4 / size, (
      f"{leaf}: an effect of {size:.3g} times noise is off by {error:.3g}"
    )


def _contacts():
  m, d, _ = _case("CONTACTS")
  return mjx.put_model(m), mjx.put_data(m, d, nconmax=32, njmax=128)


@pytest.mark.parametrize("leaf", ["body_mass", "opt.gravity", "geom_friction", "pair_solref"])
def test_a_leaf_batched_alone_gives_each_world_its_own_model(leaf, rng):
  m, d = _contacts()
  base = np.asarray(fields.lookup(m, leaf))
  values = (base * rng.uniform(0.5, 1.5, size=(3, *base.shape))).astype(np.float32)
  batch = m.tree_replace({leaf: values})
  axes = mjx.model_axes(batch)
  assert sum(axis == 0 for axis in jax.tree.leaves(axes)) == 1
  together = jax.jit(jax.vmap(mjx.step, (axes, None)))(batch, d)
  step = jax.jit(mjx.step)
  for i in range(3):
    alone = step(m.tree_replace({leaf: values[i]}), d)
    np.testing.assert_allclose(together.qpos[i], alone.qpos, rtol=1e-6, atol=1e-7)


def test_only_the_batched_leaf_gets_a_row_for_each_world():
  m, d = _contacts()
  batch = m.replace(geom_friction=jnp.repeat(m.geom_friction[None], 7, 0))
  data = worlds.repeat(d, 7)
  step = jax.jit(jax.vmap(mjx.step, (mjx.model_axes(batch), 0)))
  call = next(x for x in step.lower(batch, data).as_text().splitlines() if "@mjx_warp_ffi" in x)
  operands = call[call.rindex(" : (") : call.rindex("->")]
  assert f"tensor<7x{m.ngeom}x3xf32>" in operands
  # what all worlds share goes together, once
  leaves = [fields.lookup(m, f.name) for f in fields.model_leaves() if f.name != "geom_friction"]
  size = sum(leaf.size for leaf in leaves if leaf.dtype == np.float32)
  assert f"tensor<{size}xf32>" in operands
  assert f"tensor<7x{m.nv}x5xf32>" not in operands and f"tensor<7x{m.ngeom}x2xf32>" not in operands


def test_nested_vmaps_over_models_and_worlds_are_the_product_of_both():
  m, d = _contacts()
  gravity = jnp.array([[0, 0, -9.81], [0, 0, -3.0]], jnp.float32)
  batch = m.tree_replace({"opt.gravity": gravity})
  speeds = jnp.array([0.0, 0.5, 1.0], jnp.float32)
  data = jax.vmap(lambda s: d.replace(qvel=d.qvel * s))(speeds)
  axes = mjx.model_axes(batch)
  outer = jax.vmap(jax.vmap(mjx.step, (None, 0)), (axes, None))
  inner = jax.vmap(jax.vmap(mjx.step, (axes, None)), (None, 0), out_axes=1)
  a, b = jax.jit(outer)(batch, data), jax.jit(inner)(batch, data)
  assert a.qpos.shape == (2, 3, m.nq)
  helpers.assert_same_leaves(a, b)


def test_values_are_read_anew_at_every_call_and_in_a_scan():
  m, d = _contacts()

  def one(d, g):
    return mjx.step(
      m.tree_replace({"opt.gravity": jnp.array([0, 0, 1.0], jnp.float32) * g}), d
    ), None

  up = jax.jit(lambda d, g: jax.lax.scan(one, d, g)[0])
  pulls = jnp.array([-9.81, 0.0, 9.81], jnp.float32)
  step, by_hand = jax.jit(mjx.step), d
  for g in pulls:
    by_hand = step(m.tree_replace({"opt.gravity": jnp.array([0, 0, g], jnp.float32)}), by_hand)
  helpers.assert_same_leaves(up(d, pulls), by_hand)
  assert not np.array_equal(up(d, pulls).qvel, up(d, pulls[::-1]).qvel)


def test_axes_in_the_style_of_playground_work_too():
  m, d = _contacts()
  batch = m.tree_replace({"opt.gravity": jnp.zeros((2, 3)), "body_mass": jnp.ones((2, m.nbody))})
  axes = jax.tree.map(lambda _: None, batch)
  axes = axes.tree_replace({"opt.gravity": 0, "body_mass": 0})
  helpers.assert_same_leaves(axes, mjx.model_axes(batch))
  out = jax.jit(jax.vmap(mjx.step, (axes, None)))(batch, d)
  assert out.qpos.shape == (2, m.nq)
  with pytest.raises(ValueError, match="no leaf"):
    mjx.model_axes(m)


@pytest.mark.parametrize("leaf", ["opt.density", "opt.wind", "geom_surfacevel", "geom_adhesion"])
def test_a_feature_that_tree_map_switches_on_is_not_ignored_in_silence(leaf):
  m, d = _contacts()
  step = jax.jit(jax.vmap(mjx.step, (None, 0)))
  data = worlds.repeat(d, 2)
  assert jnp.isfinite(step(m, data).qvel).all()
  on = m.tree_replace({leaf: fields.lookup(m, leaf) + 1.0})
  assert jnp.isfinite(step(on, data).qvel).all()
  sneaked = jax.tree.unflatten(jax.tree.structure(m), jax.tree.leaves(on))
  assert jnp.isnan(step(sneaked, data).qvel).all()
  assert jnp.isfinite(step(m, data).qvel).all()  # and it is forgotten
  # in the worlds alone where it is so
  stack = jax.tree.unflatten(
    jax.tree.structure(m),
    [jnp.stack([x, y]) for x, y in zip(jax.tree.leaves(m), jax.tree.leaves(on), strict=True)],
  )
  both = jax.jit(jax.vmap(mjx.step, (0, 0)))(stack, data)
  assert jnp.isfinite(both.qvel[0]).all() and jnp.isnan(both.qvel[1]).all()


SIMPLE = """<mujoco><worldbody><body name="cube"><freejoint/>
<inertial pos="{}" mass="1" diaginertia=".1 .2 .25"/><geom size=".1"/></body></worldbody>
</mujoco>"""


@pytest.mark.parametrize("name", ["body_ipos", "body_iquat"])
def test_the_inertial_frame_of_a_simple_body_does_not_change_in_silence(name):
  m = mjx.put_model(mujoco.MjModel.from_xml_string(SIMPLE.format("0 0 0")))
  d = mjx.make_data(m)
  same = getattr(m, name)
  other = same.at[1].add(0.1)
  step = jax.jit(lambda m, d, frame: mjx.step(m.replace(**{name: frame}), d))
  assert jnp.isfinite(step(m, d, same).qpos).all()
  assert jnp.isnan(step(m, d, other).qpos).all()
  assert jnp.isfinite(step(m, d, same).qpos).all()
  both = jax.vmap(step, (None, None, 0))(m, d, jnp.stack([same, other]))
  assert jnp.isfinite(both.qpos[0]).all() and jnp.isnan(both.qpos[1]).all()
  m.replace(**{name: same})
  with pytest.raises(ValueError, match=f"{name} of body 'cube' cannot change: .* as simple"):
    m.replace(**{name: other})


def test_a_body_that_is_compiled_a_little_off_takes_another_inertial_frame():
  m = mjx.put_model(mujoco.MjModel.from_xml_string(SIMPLE.format("1e-5 0 0")))
  c = mujoco.MjModel.from_xml_string(SIMPLE.format(".02 .01 -.015"))
  d = mujoco.MjData(c)
  d.qvel[:] = np.random.default_rng(0).normal(size=6)
  ours = mjx.make_data(m).replace(qvel=d.qvel)
  mujoco.mj_forward(c, d)
  moved = m.replace(body_ipos=c.body_ipos)
  np.testing.assert_allclose(mjx.forward(moved, ours).qacc, d.qacc, atol=1e-5)
