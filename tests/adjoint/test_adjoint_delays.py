"""Gradients of steps with delayed controls against differences of C MuJoCo."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import adjoint_models as models
from support.adjoint_case import SMOOTH, Case, load, random_states


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


def check_past(case, places, names=("history", "time")):
  """Compares the gradients by the history, but for some places, and by the time."""
  for name in names:
    for i, reference in enumerate(case.oracles()):
      want = reference.gradient(name)
      got = case.adjoint.gradients[name].numpy()[i].reshape(want.shape).copy()
      if name == "history":
        got[places] = want[places] = 0
      assert np.abs(got - want).max() < SMOOTH * np.abs(want).max(), f"{name} of world {i}"


def load_delayed():
  m = load(models.DELAYED)
  # differences of places in a ring mean nothing
  return m, m.actuator_historyadr[m.actuator_history[:, 0] > 0] + 1


@pytest.mark.parametrize("integrate", [True, False])
def test_delayed_controls_have_the_gradient_of_differences(integrate):
  m, places = load_delayed()
  case = Case(m, delayed_states(m), wrt=("opt.timestep", "actuator_delay"), integrate=integrate)
  case.adjoint.launch()
  check_past(case, places)
  case.check(SMOOTH)


def test_delayed_controls_have_the_gradient_of_differences_with_rk4():
  """C MuJoCo reads them anew in each stage, which is the same where their past is coarse."""
  text = models.DELAYED.replace("linear", "zoh").replace("cubic", "zoh")
  text = text.replace(".0105", ".105").replace(".0305", ".305")
  slow = load(text)
  slow.opt.timestep = 0.04
  m = load(text, integrator=mujoco.mjtIntegrator.mjINT_RK4)
  states = delayed_states(slow)
  case = Case(m, states, wrt=("dof_damping",))
  places = m.actuator_historyadr[m.actuator_history[:, 0] > 0] + 1
  case.leave_out("history", places=places)  # whose differences mean nothing
  case.adjoint.launch()
  check_past(case, places, names=("history",))
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


SENSORS = """<sensor><jointpos joint="a" delay=".0105" nsample="6" interp="linear"/>
  <gyro site="tip" delay=".0105" nsample="6" interp="cubic"/><jointvel joint="b"/>
  <accelerometer site="tip" delay=".0155" nsample="5" interval=".0098 -.001"/>
  <framepos objtype="site" objname="tip" nsample="3" interval=".0098 -.002"/>
  <force site="tip" delay=".0105" nsample="6" interp="linear" cutoff=".5"/>
  <actuatorfrc actuator="drive" delay=".0105" nsample="4" interp="linear"/></sensor></mujoco>"""


def load_sensed(**options):
  text = models.DELAYED.replace('<motor joint="b"', '<motor name="drive" joint="b"')
  text = text.replace(
    '<geom fromto="0 0 0 .2 .1 0"/>', '<geom fromto="0 0 0 .2 .1 0"/><site name="tip"/>'
  )
  m = load(text.replace("</mujoco>", SENSORS), **options)
  places = [m.actuator_historyadr[m.actuator_history[:, 0] > 0] + 1]
  places += [m.sensor_historyadr[m.sensor_history[:, 0] > 0] + k for k in (0, 1)]
  return m, np.concatenate(places)  # of rings, and times at which sensors are due


@pytest.mark.parametrize("integrate", [True, False])
def test_delayed_sensors_have_the_gradient_of_differences(integrate):
  m, places = load_sensed()
  options = dict(outputs=("sensordata",), integrate=integrate)
  case = Case(m, delayed_states(m, 4), wrt=("sensor_delay", "body_mass"), **options)
  case.leave_out("history", places=places)
  case.adjoint.launch()
  check_past(case, places)
  case.check(SMOOTH, nonzero=("sensor_delay",))  # raised from zero it has the past reported


def test_delayed_sensors_have_the_gradient_of_differences_with_rk4():
  m, places = load_sensed(integrator=mujoco.mjtIntegrator.mjINT_RK4)
  m.actuator_delay[:] = 0  # C MuJoCo would read the controls anew in each stage
  case = Case(m, delayed_states(m, 4), wrt=("sensor_delay", "body_mass"), outputs=("sensordata",))
  case.leave_out("history", places=places)
  case.adjoint.launch()
  check_past(case, places)
  case.check(SMOOTH, nonzero=("sensor_delay",))


def test_the_gradient_of_a_rollout_reaches_what_sensors_measured_through_the_history():
  m, _ = load_sensed()
  model, start = mjx.put_model(m), mjx.put_data(m, mujoco.MjData(m))
  qvel = np.random.default_rng(0).normal(size=m.nv)
  weight = np.random.default_rng(1).normal(size=m.nsensordata)

  def final(v):
    path, _ = mjx.rollout(
      model, start.replace(qvel=v), jnp.zeros((9, m.nu)), outputs=("sensordata",)
    )
    return jnp.vdot(jnp.asarray(weight, jnp.float32), path.outputs["sensordata"][-1])

  def value(v):
    d = mujoco.MjData(m)
    d.qvel[:] = v
    for _ in range(9):
      mujoco.mj_step(m, d)
    return weight @ d.sensordata

  want = np.array([(value(qvel + e) - value(qvel - e)) / 2e-6 for e in 1e-6 * np.eye(m.nv)])
  got = jax.jit(jax.grad(final))(jnp.asarray(qvel, jnp.float32))
  assert np.abs(got - want).max() < SMOOTH * np.abs(want).max()


def test_a_cotangent_of_the_past_of_sensors_without_a_rule_makes_the_gradient_nan():
  m = mujoco.MjModel.from_xml_string("""<mujoco><worldbody><geom type="plane" size="1 1 1"/>
    <body pos="0 0 .09"><joint name="a" type="slide" axis="0 0 1"/><geom name="g" size=".1"/></body>
    </worldbody><sensor><contact geom1="g" data="dist" reduce="mindist" delay=".01" nsample="4"/>
    <jointpos joint="a"/></sensor></mujoco>""")
  model = mjx.put_model(m, contact_smoothing=mjx.ContactSmoothing(0.01))
  start = mjx.put_data(m, mujoco.MjData(m))

  def loss(qpos, weight):
    after = mjx.step(model, start.replace(qpos=qpos))
    return jnp.sum(after.history * weight) + jnp.sum(after.qvel)

  grad = jax.jit(jax.grad(loss))
  weight = np.zeros(m.nhistory, np.float32)
  assert np.all(np.isfinite(grad(start.qpos, weight)))
  weight[m.sensor_historyadr[0] + 7] = 1.0
  assert np.all(np.isnan(grad(start.qpos, weight)))
