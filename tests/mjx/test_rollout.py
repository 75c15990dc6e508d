"""Rollouts against C MuJoCo: values, gradients and what a gradient keeps in memory."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import adjoint_oracle as oracle
from support import helpers


def _load(name):
  """A model without contacts, integrated as all of them can be differentiated."""
  m = mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))
  m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
  m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
  return m


def _start(m, rng):
  d = mujoco.MjData(m)
  d.qpos[:] = 0.2 * rng.normal(size=m.nq)
  d.qvel[:] = 0.2 * rng.normal(size=m.nv)
  for name in ("qpos", "qvel"):
    getattr(d, name)[:] = getattr(d, name).astype(np.float32)
  return d


def _controls(m, rng, steps):
  return (0.3 * rng.normal(size=(steps, m.nu))).astype(np.float32)


def _in_c(m, qpos, qvel, ctrl, substeps=1):
  """The trajectory of C MuJoCo: qpos, qvel and sensordata after every control."""
  d = mujoco.MjData(m)
  d.qpos[:], d.qvel[:] = qpos, qvel
  rows = []
  for u in ctrl:
    d.ctrl[:] = u
    for _ in range(substeps):
      mujoco.mj_step(m, d)
    rows.append((d.qpos.copy(), d.qvel.copy(), d.sensordata.copy()))
  return d, *(np.array(x) for x in zip(*rows, strict=True))


@pytest.mark.parametrize("substeps", [1, 3])
def test_a_rollout_is_that_of_mujoco(rng, substeps):
  m = _load("cartpole")
  d, ctrl = _start(m, rng), _controls(m, rng, 7)
  run = jax.jit(lambda *a: mjx.rollout(*a, substeps=substeps, outputs=("sensordata", "xpos")))
  path, final = run(mjx.put_model(m), mjx.put_data(m, d), ctrl)
  after, qpos, qvel, sensors = _in_c(m, d.qpos, d.qvel, ctrl, substeps)
  tolerance = dict(rtol=1e-4, atol=1e-5)  # float32, over some twenty steps
  np.testing.assert_allclose(path.qpos, qpos, **tolerance)
  np.testing.assert_allclose(path.qvel, qvel, **tolerance)
  np.testing.assert_allclose(path.sensordata, sensors, **tolerance)
  np.testing.assert_allclose(path.time, m.opt.timestep * substeps * np.arange(1, 8), rtol=1e-5)
  np.testing.assert_allclose(final.qacc, after.qacc, rtol=1e-3, atol=1e-3)
  np.testing.assert_allclose(final.xpos, after.xpos, **tolerance)
  assert path.outputs["xpos"].shape == (7, m.nbody, 3) and path.act.shape == (7, 0)


@pytest.mark.parametrize("every", [1, 3, 6, 50])
def test_checkpoints_change_nothing_but_memory(rng, every):
  m = _load("cartpole")
  model, d = mjx.put_model(m), mjx.put_data(m, _start(m, rng))
  ctrl = jnp.asarray(_controls(m, rng, 7))

  def loss(ctrl, every):
    path, final = mjx.rollout(model, d, ctrl, checkpoint_every=every)
    return jnp.sum(path.qpos**2) + final.qvel[0], path.qpos

  both = jax.value_and_grad(loss, has_aux=True)
  (value, path), gradient = jax.jit(lambda u: both(u, every))(ctrl)
  (expected, steps), slope = jax.jit(lambda u: both(u, None))(ctrl)
  assert value == expected
  np.testing.assert_array_equal(path, steps)
  np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)


def test_the_final_data_is_that_of_as_many_steps(rng):
  m = _load("cartpole")
  model, d = mjx.put_model(m), mjx.put_data(m, _start(m, rng))
  ctrl = jnp.asarray(_controls(m, rng, 4))
  _, final = jax.jit(mjx.rollout)(model, d, ctrl)
  step, expected = jax.jit(mjx.step), d
  for u in ctrl:
    expected = step(model, expected.replace(ctrl=u))
  jax.tree.map(np.testing.assert_array_equal, final, expected)


def _in_float64(m, d, ctrl, weights, substeps):
  """Gradients of a weighted sum over the trajectory, by differences in float64."""
  oracle.tighten(m)

  def value(qpos, qvel, ctrl):
    _, q, v, _ = _in_c(m, qpos, qvel, ctrl, substeps)
    return np.sum(weights[0] * q) + np.sum(weights[1] * v)

  args = [d.qpos.copy(), d.qvel.copy(), ctrl.astype(np.float64)]
  gradients = []
  for k, x in enumerate(args):
    gradient = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
      ends = []
      for sign in (1, -1):
        moved = [y.copy() for y in args]
        moved[k][i] += sign * 1e-6
        ends.append(value(*moved))
      gradient[i] = (ends[0] - ends[1]) / 2e-6
    gradients.append(gradient)
  return gradients


# Differences smear the joint friction of the point mass over a displacement, so it is left out.
_CASES = [(n, "analytic") for n in ("double_pendulum", "cartpole", "point_mass")]
_CASES += [("cartpole", "fd")]


@pytest.mark.parametrize(("name", "gradient"), _CASES)
def test_the_gradient_is_that_of_differences_in_float64(name, gradient, rng):
  m = _load(name)
  d, ctrl = _start(m, rng), _controls(m, rng, 20)
  weights = rng.normal(size=(20, m.nq)), rng.normal(size=(20, m.nv))
  model, data = mjx.put_model(m, gradient=gradient), mjx.put_data(m, d)

  def loss(qpos, qvel, ctrl):
    start = data.replace(qpos=qpos, qvel=qvel)
    path, _ = mjx.rollout(model, start, ctrl, substeps=2, checkpoint_every=4)
    terms = [path.qpos * jnp.asarray(weights[0], jnp.float32)]
    terms += [path.qvel * jnp.asarray(weights[1], jnp.float32)]
    return sum(jnp.sum(x) for x in terms)

  slopes = jax.jit(jax.grad(loss, (0, 1, 2)))(data.qpos, data.qvel, jnp.asarray(ctrl))
  expected = _in_float64(_load(name), d, ctrl, weights, 2)
  # forty steps of float32; differences lose some three digits of seven
  tolerance = 1e-3 if gradient == "analytic" else 1e-2
  for slope, exact in zip(slopes, expected, strict=True):
    assert np.linalg.norm(slope - exact) < tolerance * np.linalg.norm(exact)


def _kept(every, steps, m, model, data):
  """How many float32 values the backward pass of a rollout keeps."""
  ctrl = jnp.zeros((steps, m.nu))

  def loss(ctrl):
    path, _ = mjx.rollout(model, data, ctrl, checkpoint_every=every)
    return jnp.sum(path.qpos)

  _, pull = jax.vjp(loss, ctrl)
  return sum(np.size(x) for x in jax.tree.leaves(pull))


def test_a_gradient_keeps_states_not_results(rng):
  m = _load("cartpole")
  model, data = mjx.put_model(m), mjx.put_data(m, _start(m, rng))
  kept = {n: _kept(None, n, m, model, data) for n in (20, 120)}
  # time, qpos, qvel, act, warm start, solved acceleration, and three integers
  state = 1 + m.nq + 3 * m.nv + m.na + m.nu + 3
  assert (kept[120] - kept[20]) / 100 <= state + 2
  checkpointed = {n: _kept(10, n, m, model, data) for n in (20, 120)}
  # a state for every ten controls, and the controls themselves
  assert (checkpointed[120] - checkpointed[20]) / 100 <= m.nu + state / 10 + 1


def test_a_function_of_the_data_is_recorded_and_differentiated(rng):
  m = _load("cartpole")
  model, data = mjx.put_model(m), mjx.put_data(m, _start(m, rng))
  ctrl = jnp.asarray(_controls(m, rng, 5))

  def loss(ctrl, outputs):
    path, _ = mjx.rollout(model, data, ctrl, outputs=outputs)
    return jnp.sum(path.outputs) if callable(outputs) else jnp.sum(path.qvel**2)

  def cost(d):
    return jnp.sum(d.qvel**2)

  one, two = (jax.jit(jax.grad(lambda u, o=o: loss(u, o)))(ctrl) for o in (cost, ()))
  np.testing.assert_allclose(one, two, rtol=1e-6)


def test_worlds_of_a_batch_roll_out_alone(rng):
  m = _load("cartpole")
  model, states = mjx.put_model(m), [_start(m, rng) for _ in range(3)]
  batch = jax.tree.map(lambda *x: jnp.stack(x), *[mjx.put_data(m, d) for d in states])
  ctrl = jnp.asarray(np.stack([_controls(m, rng, 5) for _ in states]))
  path, final = jax.jit(jax.vmap(mjx.rollout, (None, 0, 0)))(model, batch, ctrl)
  one = jax.jit(mjx.rollout)
  for i, d in enumerate(states):
    alone, end = one(model, mjx.put_data(m, d), ctrl[i])
    np.testing.assert_allclose(path.qpos[i], alone.qpos, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(final.xpos[i], end.xpos, rtol=1e-5, atol=1e-6)


def test_every_field_of_data_can_be_recorded_by_name():
  m = _load("hopper")
  model = mjx.put_model(m)
  data = mjx.make_data(model, nconmax=4)
  names = [name for name in vars(data) if name != "sizes"]
  contacts = [f"contact.{name}" for name in vars(data.contact)]
  ctrl = jnp.ones((3, m.nu))
  path, _ = jax.jit(lambda u: mjx.rollout(model, data, u, outputs=(*names, *contacts)))(ctrl)
  for t in range(3):
    data = mjx.step(model, data.replace(ctrl=ctrl[t]))
    for name in names:
      now = jax.tree.map(lambda x, t=t: x[t], path.outputs[name])
      jax.tree.map(np.testing.assert_array_equal, now, getattr(data, name))
    for name in contacts:
      field = getattr(data.contact, name.removeprefix("contact."))
      np.testing.assert_array_equal(path.outputs[name][t], field)


def test_a_function_may_return_numbers():
  m = _load("cartpole")
  model, data = mjx.put_model(m), mjx.make_data(m)
  path, _ = mjx.rollout(model, data, jnp.zeros((3, m.nu)), outputs=lambda d: {"alive": 1.0})
  np.testing.assert_array_equal(path.alive, np.ones(3))


def test_forward_mode_is_refused_with_what_to_use_instead():
  m = _load("cartpole")
  model = mjx.put_model(m)
  ctrl = jnp.zeros((4, m.nu))

  def end(u):
    return jnp.sum(mjx.rollout(model, mjx.make_data(model), u)[0].qpos)

  for derivative in (
    jax.jacfwd(end),
    jax.hessian(end),
    jax.grad(lambda u: jnp.sum(jax.grad(end)(u))),
  ):
    with pytest.raises(NotImplementedError, match="reverse mode only: for forward mode use"):
      derivative(ctrl)


def test_no_controls_make_no_trajectory():
  m = _load("cartpole")
  model, data = mjx.put_model(m), mjx.make_data(m)
  path, final = mjx.rollout(model, data, jnp.zeros((0, m.nu)), outputs=("sensordata",))
  assert path.qpos.shape == (0, m.nq) and path.sensordata.shape == (0, m.nsensordata)
  jax.tree.map(np.testing.assert_array_equal, final, data)


def test_wrong_arguments_are_named():
  m = _load("cartpole")
  model, data = mjx.put_model(m), mjx.make_data(m)
  with pytest.raises(ValueError, match=r"ctrl has shape \(4,\), expected \(T, 1\)"):
    mjx.rollout(model, data, jnp.zeros(4))
  with pytest.raises(ValueError, match="substeps must be an integer of at least 1, got 0"):
    mjx.rollout(model, data, jnp.zeros((4, 1)), substeps=0)
  with pytest.raises(ValueError, match="checkpoint_every must be an integer"):
    mjx.rollout(model, data, jnp.zeros((4, 1)), checkpoint_every=0)
  with pytest.raises(ValueError, match="Data has no speed; outputs may be act"):
    mjx.rollout(model, data, jnp.zeros((4, 1)), outputs=("speed",))
  with pytest.raises(ValueError, match="Data has no sensors; did you mean sensordata"):
    mjx.rollout(model, data, jnp.zeros((4, 1)), outputs=("sensors",))
  path, _ = mjx.rollout(model, data, jnp.zeros((0, 1)))
  with pytest.raises(AttributeError, match="no 'xpos': ask rollout for it"):
    path.xpos  # noqa: B018 (the attribute access is the test)
