"""Gradients of steps with delayed controls against differences of C MuJoCo."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import adjoint_models as models
from adjoint_case import SMOOTH, Case, load, random_states
from mjx_warp_ffi import mjx


def delayed_states(m, count=3):
  """States with a past of random controls."""
  states = random_states(m, count, seed=1)
  rng = np.random.default_rng(0)
  for n, state in enumerate(states):
    d = mujoco.MjData(m)
    for _ in range(3 + 4 * n):
      d.ctrl[:] = rng.normal(size=m.nu)
      mujoco.mj_step(m, d)
    past = dict(history=d.history, time=np.array([d.time]))
    state |= {k: x.astype(np.float32).astype(np.float64) for k, x in past.items()}
  return states


def load_delayed():
  m = load(models.DELAYED)
  # differences of places in a ring mean nothing
  return m, m.actuator_historyadr[m.actuator_history[:, 0] > 0] + 1


@pytest.mark.parametrize("integrate", [True, False])
def test_delayed_controls_have_the_gradient_of_differences(integrate):
  m, places = load_delayed()
  case = Case(m, delayed_states(m), wrt=("opt.timestep", "actuator_delay"), integrate=integrate)
  case.adjoint.launch()
  for name in ("history", "time"):
    for i, reference in enumerate(case.oracles()):
      want = reference.gradient(name)
      got = case.adjoint.gradients[name].numpy()[i].reshape(want.shape).copy()
      if name == "history":
        got[places] = want[places] = 0
      assert np.abs(got - want).max() < SMOOTH * np.abs(want).max(), f"{name} of world {i}"
  case.check(SMOOTH)


def test_the_gradient_of_a_rollout_reaches_controls_through_the_history():
  m, _ = load_delayed()
  model, start = mjx.put_model(m), mjx.put_data(m, mujoco.MjData(m))
  rng = np.random.default_rng(0)
  ctrl = rng.normal(size=(12, m.nu)).astype(np.float32)
  weight = rng.normal(size=m.nv)

  def final(ctrl):
    _, after = mjx.rollout(model, start, ctrl)
    return jnp.vdot(jnp.asarray(weight, jnp.float32), after.qvel)

  def value(ctrl):
    d = mujoco.MjData(m)
    for u in ctrl:
      d.ctrl[:] = u
      mujoco.mj_step(m, d)
    return weight @ d.qvel

  want = np.zeros(ctrl.shape)
  for i in np.ndindex(*ctrl.shape):
    one = np.zeros(ctrl.shape)
    one[i] = 1e-5
    want[i] = (value(ctrl + one) - value(ctrl - one)) / 2e-5
  got = jax.jit(jax.grad(final))(jnp.asarray(ctrl))
  assert np.abs(got - want).max() < SMOOTH * np.abs(want).max()
  assert np.abs(want[0]).min() > 1e-4  # those of the first step act too


def test_a_cotangent_of_past_sensors_makes_the_gradient_nan():
  text = models.DELAYED.replace(
    "</mujoco>", "<sensor><jointpos joint='a' delay='.01' nsample='4'/></sensor></mujoco>"
  )
  m = load(text)
  model, start = mjx.put_model(m), mjx.put_data(m, mujoco.MjData(m))

  def loss(qpos, weight):
    after = mjx.step(model, start.replace(qpos=qpos))
    return jnp.sum(after.history * weight) + jnp.sum(after.qvel)

  grad = jax.jit(jax.grad(loss))
  weight = np.zeros(m.nhistory, np.float32)
  assert np.all(np.isfinite(grad(start.qpos, weight)))
  weight[m.sensor_historyadr[0] + 7] = 1.0
  assert np.all(np.isnan(grad(start.qpos, weight)))
