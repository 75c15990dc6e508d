"""Gradients through JAX: every way to ask for one agrees, and what has no rule is loud."""

import copy
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data import fields
from support import helpers

STEPS = 8


@functools.cache
def load(name: str) -> mujoco.MjModel:
  return mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))


@functools.cache
def model(gradient: str = "analytic") -> mjx.Model:
  mj_model = load("cartpole")
  return mjx.put_model(mj_model, gradient=gradient)


def make(m: mjx.Model, seed: int = 0) -> mjx.Data:
  rng = np.random.default_rng(seed)
  d = mjx.make_data(m)
  return d.replace(
    qpos=0.3 * rng.standard_normal(m.nq),
    qvel=0.3 * rng.standard_normal(m.nv),
    ctrl=0.3 * rng.standard_normal(m.nu),
  )


def rollout(m: mjx.Model, d: mjx.Data, ctrl: jax.Array) -> jax.Array:
  """A smooth function of a few steps."""

  def body(d: mjx.Data, u: jax.Array) -> tuple[mjx.Data, None]:
    return mjx.step(m, d.replace(ctrl=u)), None

  d, _ = jax.lax.scan(body, d, ctrl)
  return jnp.sum(d.qpos * jnp.arange(1.0, m.nq + 1, dtype=jnp.float32)) + jnp.sum(d.qvel**2)


def rollout_c(q: np.ndarray, v: np.ndarray, ctrl: np.ndarray) -> float:
  """The same by C MuJoCo in float64."""
  mj_model = load("cartpole")
  d = mujoco.MjData(mj_model)
  d.qpos[:], d.qvel[:] = q, v
  for u in ctrl:
    d.ctrl[:] = u
    mujoco.mj_step(mj_model, d)
  return float(np.sum(d.qpos * np.arange(1, mj_model.nq + 1)) + np.sum(d.qvel**2))


def differences(function, x: np.ndarray, h: float = 1e-6) -> np.ndarray:
  """Central differences in float64."""
  out = np.zeros_like(x)
  for i in np.ndindex(x.shape):
    up, down = x.copy(), x.copy()
    up[i] += h
    down[i] -= h
    out[i] = (function(up) - function(down)) / (2 * h)
  return out


@pytest.fixture
def ctrl(rng) -> np.ndarray:
  return 0.3 * rng.standard_normal((STEPS, 1))


def test_the_gradient_of_a_rollout_is_that_of_c_mujoco(ctrl):
  m, d = model(), make(model())
  q, v = np.asarray(d.qpos, float), np.asarray(d.qvel, float)
  grads = jax.jit(jax.grad(lambda q, v, u: rollout(m, d.replace(qpos=q, qvel=v), u), (0, 1, 2)))(
    d.qpos, d.qvel, jnp.asarray(ctrl, jnp.float32)
  )
  expected = (
    differences(lambda q: rollout_c(q, v, ctrl), q),
    differences(lambda v: rollout_c(q, v, ctrl), v),
    differences(lambda u: rollout_c(q, v, u), ctrl),
  )
  for got, want in zip(grads, expected, strict=True):
    # float32 over eight steps
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


def test_every_order_of_vmap_grad_and_scan_agrees(ctrl):
  m = model()
  worlds = [make(m, seed) for seed in range(4)]
  batch = jax.tree.map(lambda *x: jnp.stack(x), *worlds)
  u = jnp.asarray(ctrl, jnp.float32)

  def of_world(q: jax.Array, d: mjx.Data) -> jax.Array:
    return rollout(m, d.replace(qpos=q), u)

  loop = jnp.stack([jax.grad(of_world)(d.qpos, d) for d in worlds])
  inside = jax.vmap(jax.grad(of_world))(batch.qpos, batch)
  outside = jax.grad(lambda q: jnp.sum(jax.vmap(of_world)(q, batch)))(batch.qpos)
  nested = jax.vmap(jax.vmap(jax.grad(of_world)))(
    batch.qpos.reshape(2, 2, -1), jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), batch)
  ).reshape(4, -1)
  jitted = jax.jit(jax.vmap(jax.grad(jax.checkpoint(of_world))))(batch.qpos, batch)
  unrolled = jax.grad(lambda q: _unrolled(m, worlds[0].replace(qpos=q), u))(worlds[0].qpos)
  for name, got in dict(inside=inside, outside=outside, nested=nested, jitted=jitted).items():
    np.testing.assert_allclose(got, loop, rtol=2e-5, atol=2e-5, err_msg=name)
  np.testing.assert_allclose(unrolled, loop[0], rtol=2e-5, atol=2e-5)


def _unrolled(m: mjx.Model, d: mjx.Data, ctrl: jax.Array) -> jax.Array:
  for u in ctrl:
    d = mjx.step(m, d.replace(ctrl=u))
  return jnp.sum(d.qpos * jnp.arange(1.0, m.nq + 1, dtype=jnp.float32)) + jnp.sum(d.qvel**2)


def test_value_and_grad_and_jacrev_agree_with_grad():
  m, d = model(), make(model())
  jacobian = jax.jacrev(lambda v: mjx.step(m, d.replace(qvel=v)).qvel)(d.qvel)
  rows = [jax.grad(lambda v, i=i: mjx.step(m, d.replace(qvel=v)).qvel[i])(d.qvel) for i in (0, 1)]
  np.testing.assert_allclose(jacobian, jnp.stack(rows), rtol=1e-5, atol=1e-6)
  value, _ = jax.value_and_grad(lambda v: jnp.sum(mjx.step(m, d.replace(qvel=v)).qpos))(d.qvel)
  np.testing.assert_allclose(value, jnp.sum(mjx.step(m, d).qpos), rtol=1e-6)


def test_differentiating_does_not_change_the_value(ctrl):
  m, d = model(), make(model())
  u = jnp.asarray(ctrl, jnp.float32)
  value, _ = jax.jit(jax.value_and_grad(lambda q: rollout(m, d.replace(qpos=q), u)))(d.qpos)
  np.testing.assert_array_equal(value, jax.jit(lambda q: rollout(m, d.replace(qpos=q), u))(d.qpos))


@pytest.mark.parametrize(("solver", "iterations"), [("NEWTON", 1), ("CG", 3)])
def test_a_solver_that_stops_early_leaves_the_gradient_that_of_the_solution(solver, iterations):
  mj_model = copy.copy(load("quadruped"))  # whose options change
  rng = np.random.default_rng(0)
  weight = jnp.asarray(rng.standard_normal(mj_model.nv), jnp.float32)
  states = []
  for steps in range(150, 400, 10):
    data = mujoco.MjData(mj_model)
    data.ctrl[:] = rng.uniform(-1, 1, mj_model.nu)
    mujoco.mj_step(mj_model, data, steps)
    states.append(data)
  fields_read = ("qpos", "qvel", "ctrl", "act", "qacc_warmstart")
  values = {n: jnp.asarray([getattr(x, n) for x in states], jnp.float32) for n in fields_read}

  def gradients():
    m, d = mjx.put_model(mj_model), mjx.make_data(mj_model)

    def loss(qvel, values):
      after = mjx.step(m, d.replace(**values).replace(qvel=qvel))
      return jnp.vdot(weight, after.qvel), after.qvel

    return jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))(values["qvel"], values)

  want, converged = gradients()
  mj_model.opt.solver = getattr(mujoco.mjtSolver, f"mjSOL_{solver}")
  mj_model.opt.iterations = iterations
  got, early = gradients()
  assert np.abs(early - converged).max() > 0.1  # it does stop early
  errors = np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)
  assert errors.max() < 1e-2


def test_time_and_untouched_inputs_have_exact_gradients():
  m, d = model(), make(model())
  np.testing.assert_array_equal(
    jax.grad(lambda t: mjx.step(m, d.replace(time=t)).time)(d.time), 1.0
  )
  zero = jax.grad(lambda w: jnp.sum(mjx.step(m, d.replace(qacc_warmstart=w)).qpos))(d.qvel)
  np.testing.assert_array_equal(zero, np.zeros(m.nv))


def test_the_warm_start_after_a_step_of_rk4_is_refused():
  m = mujoco.MjModel.from_xml_path(str(helpers.model_path("double_pendulum")))
  m.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
  model, d = mjx.put_model(m), mjx.make_data(m)
  with pytest.raises(NotImplementedError, match="no analytic gradient from qacc_warmstart"):
    jax.grad(lambda q: jnp.sum(mjx.step(model, d.replace(qpos=q)).qacc_warmstart))(d.qpos)


@pytest.mark.parametrize("loop", ["rollout", "scan"])
def test_several_steps_of_rk4_have_the_gradient_of_differences(loop):
  m = mujoco.MjModel.from_xml_path(str(helpers.model_path("double_pendulum")))
  m.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
  model = mjx.put_model(m)
  start = mjx.make_data(model).replace(qpos=jnp.array([0.4, -0.8]))

  def loss(qvel: jax.Array) -> jax.Array:
    d = start.replace(qvel=qvel)
    if loop == "scan":
      d, _ = jax.lax.scan(lambda d, _: (mjx.step(model, d), None), d, length=3)
    else:
      _, d = mjx.rollout(model, d, jnp.zeros((3, model.nu)))
    return d.qvel @ jnp.array([1.0, -2.0])

  def value(qvel: np.ndarray) -> float:
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = [0.4, -0.8], qvel
    for _ in range(3):
      mujoco.mj_step(m, d)
    return float(d.qvel @ [1.0, -2.0])

  eye = 1e-6 * np.eye(2)
  want = [(value(1 + h) - value(1 - h)) / 2e-6 for h in eye]
  np.testing.assert_allclose(jax.grad(loss)(jnp.ones(2)), want, rtol=1e-4)  # float32


def test_a_parameter_shared_by_worlds_gets_the_sum_over_them():
  m = model()
  batch = jax.tree.map(lambda *x: jnp.stack(x), *[make(m, seed) for seed in range(3)])

  def loss(damping: jax.Array, d: mjx.Data) -> jax.Array:
    return jnp.sum(mjx.step(m.replace(dof_damping=damping), d).qvel)

  each = jax.vmap(jax.grad(loss), in_axes=(None, 0))(m.dof_damping, batch)
  total = jax.grad(lambda x: jnp.sum(jax.vmap(loss, in_axes=(None, 0))(x, batch)))(m.dof_damping)
  assert each.shape == (3, m.nv)
  np.testing.assert_allclose(total, each.sum(axis=0), rtol=1e-5)
  assert float(jnp.abs(total).max()) > 0


@pytest.mark.parametrize("transform", [jax.hessian, jax.jacfwd, jax.linearize])
def test_forward_mode_and_second_derivatives_name_the_alternative(transform):
  m, d = model(), make(model())

  def loss(q: jax.Array) -> jax.Array:
    return jnp.sum(mjx.step(m, d.replace(qpos=q)).qpos)

  with pytest.raises(NotImplementedError, match=r"mjx.step_jvp.*mjx.transition_fd"):
    if transform is jax.linearize:
      jax.grad(lambda q: jnp.sum(jax.grad(loss)(q)))(d.qpos)
    else:
      transform(loss)(d.qpos)


def test_a_model_without_gradients_says_so():
  m = model("none")
  d = make(m)
  mjx.step(m, d)
  with pytest.raises(NotImplementedError, match="gradient='none'"):
    jax.grad(lambda q: jnp.sum(mjx.step(m, d.replace(qpos=q)).qpos))(d.qpos)


def test_differences_agree_with_the_analytic_gradient(ctrl):
  u = jnp.asarray(ctrl, jnp.float32)
  grads = [
    jax.grad(lambda v, m=m: rollout(m, make(m).replace(qvel=v), u))(make(m).qvel)
    for m in (model(), model("fd"))
  ]
  # central differences of a float32 step: some 1e-4 of rounding
  np.testing.assert_allclose(grads[1], grads[0], rtol=5e-3)


_FLOATS = [f.name for f in fields.data_fields() if np.issubdtype(f.dtype, np.inexact)]


@functools.cache
def _central_differences() -> dict[str, np.ndarray]:
  """The derivative of every result of a step along qvel, (nv, ...)."""
  m, d, h = model(), make(model()), np.float32(1e-2)
  moved = d.qvel + h * jnp.concatenate([jnp.eye(m.nv), -jnp.eye(m.nv)])
  out = jax.vmap(lambda v: mjx.step(m, d.replace(qvel=v)))(moved)
  values = {name: np.asarray(getattr(out, name), float) for name in _FLOATS}
  return {name: (x[: m.nv] - x[m.nv :]) / (2 * h) for name, x in values.items() if x.size}


@pytest.mark.parametrize("name", _FLOATS)
def test_every_result_is_right_or_loud(name):
  """The cotangent of a result gives a gradient as differences do, or raises."""
  if name not in _central_differences():
    return  # empty in this model
  m, d = model(), make(model())
  derivative = _central_differences()[name]
  weights = np.random.default_rng(1).standard_normal(derivative.shape[1:])
  expected = (derivative * weights).reshape(m.nv, -1).sum(axis=1)

  def loss(v: jax.Array) -> jax.Array:
    return jnp.sum(getattr(mjx.step(m, d.replace(qvel=v)), name) * weights.astype(np.float32))

  try:
    got = jax.grad(loss)(d.qvel)
  except NotImplementedError as error:
    assert name in str(error) and "gradient='fd'" in str(error)
    return
  scale = max(1.0, float(np.abs(expected).max()))
  np.testing.assert_allclose(got, expected, atol=1e-3 * scale)


def test_a_result_without_a_rule_inside_a_loop_is_nan_and_named(ctrl):
  """A loss that takes every result, so that only the run knows which cotangents are zero."""
  m, d = model(), make(model())
  u = jnp.asarray(ctrl, jnp.float32)

  def loss(v: jax.Array, weight: jax.Array) -> jax.Array:
    def body(d: mjx.Data, u: jax.Array) -> tuple[mjx.Data, None]:
      return mjx.step(m, d.replace(ctrl=u)), None

    last, _ = jax.lax.scan(body, d.replace(qvel=v), u)
    floats = [x for x in jax.tree.leaves(last) if x.dtype == jnp.float32]
    others = jnp.sum(last.contact.solref) + 0 * sum(jnp.sum(x) for x in floats)
    return jnp.sum(last.qpos) + weight * others

  mjx.gradient_report(clear=True)
  batch = jnp.stack([d.qvel, 2 * d.qvel])
  gradient = jax.jit(jax.vmap(jax.grad(loss)))
  good = gradient(batch, jnp.zeros(2))
  assert np.all(np.isfinite(good)) and mjx.gradient_report() == ()
  mixed = jax.block_until_ready(gradient(batch, jnp.asarray([0.0, 1.0])))
  np.testing.assert_array_equal(mixed[0], good[0])
  assert np.all(np.isnan(mixed[1]))
  assert mjx.gradient_report(clear=True) == ("contact.solref",)
  assert mjx.gradient_report() == ()


def test_a_sensor_without_a_rule_spoils_the_gradient_only_where_it_is_used():
  sensors = """<mujoco><worldbody>
    <body><joint name="hinge" axis="0 1 0"/><geom size=".1" pos=".3 0 0"/></body></worldbody>
    <sensor><user dim="2" needstage="pos"/><jointvel joint="hinge"/></sensor></mujoco>"""
  m = mjx.put_model(mujoco.MjModel.from_xml_string(sensors))
  d = make(m)

  def loss(v: jax.Array, i: int) -> jax.Array:
    return mjx.step(m, d.replace(qvel=v)).sensordata[i]

  mjx.gradient_report(clear=True)
  assert np.all(np.isfinite(jax.grad(loss)(d.qvel, 2)))
  assert mjx.gradient_report() == ()
  assert np.all(np.isnan(jax.block_until_ready(jax.grad(loss)(d.qvel, 0))))
  assert mjx.gradient_report(clear=True) == ("sensordata",)


def test_disabled_sensors_have_a_gradient_of_zero():
  mj_model = mujoco.MjModel.from_xml_path(str(helpers.model_path("hopper")))
  mj_model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_SENSOR
  m = mjx.put_model(mj_model)
  d = make(m)
  gradient = jax.grad(lambda v: jnp.sum(mjx.step(m, d.replace(qvel=v)).sensordata))(d.qvel)
  np.testing.assert_array_equal(gradient, np.zeros(m.nv))


def test_the_lens_of_a_camera_has_a_gradient_where_a_sensor_looks_through_it():
  text = """<mujoco><worldbody><camera name="eye" pos="0 -2 0" xyaxes="1 0 0 0 0 1" fovy="50"
    resolution="10 8"/><body><joint name="hinge" axis="0 1 0"/><geom size=".1" pos=".3 0 0"/>
    <site name="tip" pos=".6 0 0"/></body></worldbody>
    <sensor><camprojection site="tip" camera="eye"/></sensor></mujoco>"""
  m = mjx.put_model(mujoco.MjModel.from_xml_string(text))
  d = mjx.make_data(m)
  got = jax.grad(lambda x: mjx.step(m.replace(cam_fovy=x), d).sensordata[0])(m.cam_fovy)
  half = np.deg2rad(25.0)  # the tip is 2 away from the camera and 0.6 beside its axis
  expected = -4 / np.sin(half) ** 2 * np.deg2rad(0.5) * 0.6 / 2
  np.testing.assert_allclose(got, [expected], rtol=1e-5)
