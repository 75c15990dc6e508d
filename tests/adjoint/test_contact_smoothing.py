"""Smoothed contacts: the gradient of a law of their own, and a step that stays as it is."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import adjoint_oracle as oracle
from support.adjoint_case import STIFF, Case, assert_close, load
from support.helpers import ROOT
from support.soft_contact_oracle import SoftOracle

CONES = ("pyramidal", "elliptic")
WIDTH = 0.02
# bodies whose contacts with the plane have every condim, and a pair of them
SCENE = """
<mujoco>
  <option timestep="0.004" cone="{cone}" impratio="2" integrator="{integrator}"/>
  <default><geom friction="0.6 0.02 0.01"/></default>
  <worldbody>
    <geom type="plane" size="2 2 0.1" condim="1"/>
    <body pos="0 0 0.1"><freejoint/><geom size="0.1" condim="3"/></body>
    <body pos="0.19 0.05 0.1"><freejoint/><geom size="0.1" condim="4"/></body>
    <body pos="1 0 0.05"><freejoint/>
      <geom type="capsule" size="0.05 0.2" euler="0 90 0" condim="6"/></body>
    <body pos="-1 0 0.1"><joint type="slide" axis="0 0 1"/><joint axis="0 1 0" damping="0.1"/>
      <geom type="box" size="0.2 0.1 0.1" condim="1"/></body>
  </worldbody>
  <sensor><accelerometer site="at"/><touch site="at"/></sensor>
</mujoco>""".replace(
  '<geom size="0.1" condim="3"/>', '<geom size="0.1" condim="3"/><site name="at" size="0.12"/>'
)
DROP = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="2 2 0.1"/>
    <body><joint type="slide" axis="0 0 1"/><geom size="0.1"/></body>
  </worldbody>
</mujoco>"""


def _scene(cone="pyramidal", integrator="Euler"):
  return load(SCENE.format(cone=cone, integrator=integrator))


def _states(m, gaps, seed=0):
  """A state for each gap that bodies are lifted by, more or less, moving slowly."""
  rng = np.random.default_rng(seed)
  out = []
  for gap in gaps:
    state = oracle.random_state(m, rng, 0.0)
    state["qpos"] = m.qpos0.copy()
    heights = [2, 9, 16, 21]  # of the four bodies in qpos
    state["qpos"][heights] += gap + 0.002 * rng.uniform(-1, 1, size=4)
    state["qvel"] *= 0.2
    for name in ("qfrc_applied", "xfrc_applied"):
      state[name] *= 0.1
    out.append({k: v.astype(np.float32).astype(np.float64) for k, v in state.items()})
  return out


@pytest.mark.parametrize("friction", (1.0, 0.1))
@pytest.mark.parametrize("cone", CONES)
def test_the_gradient_is_that_of_the_smoothed_law_in_float64(cone, friction):
  m = _scene(cone)
  smoothing = mjx.ContactSmoothing(WIDTH, friction)
  states = _states(m, (0.012, 0.004, -0.004))
  parameters = ("body_mass", "geom_friction", "geom_solref", "geom_solimp", "geom_size")
  case = Case(m, states, wrt=parameters, outputs=("sensordata",), smoothing=smoothing)
  case.adjoint.launch()
  _check(case, smoothing)


def test_a_step_of_implicitfast_with_sparse_rows_has_the_gradient_of_the_smoothed_law():
  m, smoothing = _scene("elliptic", "implicitfast"), mjx.ContactSmoothing(WIDTH, 0.3)
  m.opt.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
  case = Case(m, _states(m, (0.005,)), smoothing=smoothing)
  assert case.model.is_sparse
  case.adjoint.launch()
  _check(case, smoothing)


def _check(case, smoothing):
  """Compares the gradients of a Case with differences of the law in float64."""
  references = [
    SoftOracle(case.m, {k: v.copy() for k, v in state.items()}, cotangents,
               width=smoothing.width, friction=smoothing.friction)
    for state, cotangents in zip(case.states, case.cotangents, strict=True)
  ]  # fmt: skip
  for i, reference in enumerate(references):
    for name in ("qpos", "qvel", "qfrc_applied"):
      got = case.adjoint.gradients[name].numpy()[i]
      assert_close(got, reference.gradient(name), STIFF, f"{name} of world {i}")
  for name in case.wrt:
    want = sum(reference.parameter(name) for reference in references)
    got = case.adjoint.gradients[name].numpy().reshape(want.shape).copy()
    if name.startswith("body_"):
      got[0] = want[0] = 0  # the world's, which C does not read
    assert_close(got, want, STIFF, name)


@pytest.mark.parametrize("cone", CONES)
def test_the_gradient_in_contact_tends_to_the_exact_one_as_the_width_goes_to_zero(cone):
  m = _scene(cone)
  states = _states(m, (-0.004, -0.006))
  exact = _gradients(m, states, None)
  errors = []
  for width in (1e-3, 1e-4, 1e-5):
    soft = _gradients(m, states, mjx.ContactSmoothing(width))
    errors.append(np.abs(soft - exact).max() / np.abs(exact).max())
  # the force grows by the width, to first order; below that float32 is left
  assert errors[0] > 1e-3
  assert errors[1] < 0.2 * errors[0]
  assert errors[2] < STIFF


def test_bodies_further_apart_than_the_width_have_the_exact_gradient():
  m = _scene()
  states = _states(m, (0.03,))
  states[0]["qpos"][9] += 1.0  # over the sphere beside it, too
  exact, soft = (_gradients(m, states, s) for s in (None, mjx.ContactSmoothing(WIDTH)))
  assert_close(soft, exact, 1e-5, "qpos and qvel")  # rounding: the acceleration is solved again


def _gradients(m, states, smoothing):
  """Those by position and velocity, a row a world."""
  case = Case(m, states, smoothing=smoothing)
  case.adjoint.launch()
  grads = (case.adjoint.gradients[n].numpy() for n in ("qpos", "qvel"))
  return np.concatenate([x.reshape(len(states), -1) for x in grads], axis=1)


def _drop(smoothing=None, *, text=DROP, steps=100):
  """The squared speed of a ball after a fall from a height, with its slope, a jitted function."""
  m = mjx.put_model(mujoco.MjModel.from_xml_string(text), contact_smoothing=smoothing)
  d = mjx.make_data(m)

  def loss(height):
    after = d.replace(qpos=jnp.full(1, height, jnp.float32))
    _, after = mjx.rollout(m, after, jnp.zeros((steps, 0)))
    return after.qvel[0] ** 2

  return jax.jit(jax.vmap(jax.value_and_grad(loss)))


def test_a_fall_that_ends_above_the_ground_feels_it_and_the_loss_stays_the_same():
  heights = jnp.linspace(0.30, 0.40, 21)  # the fall is 0.196 long, the radius 0.1
  exact, slope = _drop()(heights)
  smoothed, gradient = _drop(mjx.ContactSmoothing(0.05))(heights)
  np.testing.assert_array_equal(smoothed, exact)
  np.testing.assert_allclose(slope, 0, atol=1e-4)  # rounding of free fall
  near = heights < 0.296 + 0.04
  assert np.all(gradient[near] > 1)  # lower is slower: the ground brakes
  assert np.all(gradient >= -1e-3)
  far = heights > 0.296 + 0.055
  np.testing.assert_allclose(gradient[far], 0, atol=1e-4)


def test_the_gradient_of_a_step_is_continuous_where_a_falling_ball_touches():
  slopes = {}
  for name, smoothing in (("exact", None), ("smooth", mjx.ContactSmoothing(0.01))):
    m = mjx.put_model(mujoco.MjModel.from_xml_string(DROP), contact_smoothing=smoothing)
    d = mjx.make_data(m).replace(qvel=jnp.full(1, -1.0))

    def speed(height, m=m, d=d):
      return mjx.step(m, d.replace(qpos=jnp.full(1, height, jnp.float32))).qvel[0]

    # on both sides of where it touches, and of where the contact ends
    heights = jnp.array([0.0998, 0.0999, 0.1001, 0.1002, 0.1098, 0.1099, 0.1101, 0.1102])
    slopes[name] = np.asarray(jax.vmap(jax.grad(speed))(heights))
  touch, end = slopes["smooth"][:4], slopes["smooth"][4:]
  for x in (touch, end):
    assert np.all(np.isfinite(x))
    # the step over the border is like those beside it, of lengths 2, 1 and 1
    assert abs(x[2] - x[1]) < 3 * max(abs(x[1] - x[0]), abs(x[3] - x[2]))
  assert np.all(touch < -1)  # higher is faster, downwards
  assert np.all(slopes["exact"][2:] == 0) and np.all(slopes["exact"][:2] < -1)


@pytest.mark.parametrize("integrator", ("RK4", "implicit"))
def test_other_integrators_feel_the_ground_too(integrator):
  text = DROP.replace('timestep="0.002"', f'timestep="0.002" integrator="{integrator}"')
  exact, slope = _drop(text=text)(jnp.array([0.2, 0.31]))
  smoothed, gradient = _drop(mjx.ContactSmoothing(0.05), text=text)(jnp.array([0.2, 0.31]))
  np.testing.assert_array_equal(smoothed, exact)
  assert abs(slope[1]) < 1e-3 and gradient[1] > 1
  _, narrow = _drop(mjx.ContactSmoothing(1e-6), text=text, steps=1)(jnp.array([0.099]))
  _, wanted = _drop(text=text, steps=1)(jnp.array([0.099]))
  np.testing.assert_allclose(narrow, wanted, rtol=1e-2)  # the width is a thousandth of the depth


def test_a_batch_has_the_gradients_of_its_worlds_one_by_one():
  grad, heights = _drop(mjx.ContactSmoothing(0.05)), jnp.array([0.28, 0.31, 0.5])
  _, batch = grad(heights)
  each = [grad(heights[i : i + 1])[1][0] for i in range(3)]
  np.testing.assert_allclose(batch, each, rtol=1e-4, atol=1e-4)  # float32 over 100 steps


def test_a_world_without_room_for_its_contacts_has_a_gradient_of_nan():
  text = SCENE.format(cone="pyramidal", integrator="Euler")
  mj_model = mujoco.MjModel.from_xml_string(text)
  m = mjx.put_model(mj_model, contact_smoothing=mjx.ContactSmoothing(WIDTH))
  away = m.qpos0.at[jnp.array([2, 9, 16, 21])].add(0.01)

  def slope(d):
    return jax.grad(lambda v: jnp.sum(mjx.step(m, d.replace(qpos=away, qvel=v)).qvel))(d.qvel)

  assert np.all(np.isfinite(slope(mjx.make_data(m))))
  assert np.all(np.isnan(slope(mjx.make_data(m, njmax=8))))
  assert np.all(np.isnan(slope(mjx.make_data(m, nconmax=1))))


def test_soft_friction_lets_a_body_that_sticks_follow_a_push():
  text = """<mujoco><option timestep="0.004" cone="elliptic" impratio="10"/><worldbody>
    <geom type="plane" size="2 2 0.1"/><body pos="0 0 0.0999"><joint type="slide" axis="1 0 0"/>
    <joint type="slide" axis="0 0 1"/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
    </worldbody></mujoco>"""
  slopes = []
  for friction in (None, 1.0, 0.1, 0.01):
    smoothing = None if friction is None else mjx.ContactSmoothing(1e-6, friction)
    m = mjx.put_model(mujoco.MjModel.from_xml_string(text), contact_smoothing=smoothing)
    d = mjx.make_data(m)

    def speed(push, m=m, d=d):
      return mjx.step(m, d.replace(qfrc_applied=jnp.zeros(2).at[0].set(push))).qvel[0]

    slopes.append(float(jax.grad(speed)(1.0)))
  np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-2)  # the width is a hundredth
  assert slopes[1] < 0.3 * slopes[2] < 0.3 * slopes[3]
  assert slopes[3] < 0.004  # of a body of 1 kg without friction


REFUSED = [
  ("integrator discrete", DROP.replace("<option", '<option integrator="discrete"')),
  (
    "adhesion",
    DROP.replace("<body>", '<body name="ball">').replace(
      "</worldbody>",
      '</worldbody><actuator><adhesion body="ball" ctrlrange="0 1" gain="1"/></actuator>',
    ),
  ),
  (
    "height fields",
    DROP.replace('type="plane" size="2 2 0.1"', 'type="hfield" hfield="hills"').replace(
      "<worldbody>",
      '<asset><hfield name="hills" nrow="2" ncol="2" size="1 1 1 1" elevation="0 0 0 1"/></asset>'
      "<worldbody>",
    ),
  ),
]


@pytest.mark.parametrize(("name", "text"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_has_no_rule_is_refused_by_name(name, text):
  mj_model = mujoco.MjModel.from_xml_string(text)
  for smoothing in (None, mjx.ContactSmoothing(0.01)):
    m = mjx.put_model(mj_model, contact_smoothing=smoothing)
    d = mjx.make_data(m)
    grad = jax.grad(lambda qpos, m=m, d=d: jnp.sum(mjx.step(m, d.replace(qpos=qpos)).qvel))
    if smoothing is None:
      grad(d.qpos)  # without smoothing there is a rule
    else:
      with pytest.raises(NotImplementedError, match=name):
        grad(d.qpos)


CONTACTS = {
  "dist": lambda m, d: jnp.sum(mjx.step(m, d).contact.dist),
  "pos": lambda m, d: jnp.sum(mjx.forward(m, d).contact.pos[:, 2]),
  "sensors": lambda m, d: mjx.step(m, d).sensordata @ jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]),
  "force": lambda m, d: jnp.sum(mjx.contact_force(m, d)[0]),
}


@pytest.mark.parametrize("name", CONTACTS)
def test_what_is_reported_of_contacts_has_its_exact_gradient_beside_the_smoothed_one(name):
  text = DROP.replace('<geom size="0.1"/>', '<geom name="ball" size="0.1"/>').replace(
    "</mujoco>",
    '<sensor><contact geom1="ball" data="force dist" reduce="mindist"/>'
    '<jointvel joint="height"/></sensor></mujoco>',
  )
  text = text.replace('type="slide"', 'name="height" type="slide"')
  slopes = []
  for smoothing in (None, mjx.ContactSmoothing(0.05)):
    m = mjx.put_model(mujoco.MjModel.from_xml_string(text), contact_smoothing=smoothing)
    d = mjx.make_data(m).replace(qpos=jnp.array([0.0998]))
    both = lambda q, w, m=m, d=d: (  # noqa: E731
      CONTACTS[name](m, d.replace(qpos=q)) + w * mjx.step(m, d.replace(qpos=q)).qvel[0]
    )
    slopes.append([float(jax.grad(both)(d.qpos, w)[0]) for w in (0.0, 1.0)])
  (exact, exact_sum), (alone, total) = slopes
  assert abs(exact) > 0.1
  np.testing.assert_allclose(alone, exact, rtol=1e-5)
  other = jax.grad(lambda q: mjx.step(m, d.replace(qpos=q)).qvel[0])(d.qpos)[0]
  assert abs(other - (exact_sum - exact)) > 0.1  # the velocity's is the smoothed one
  np.testing.assert_allclose(total, alone + other, rtol=1e-4)


def test_in_a_loop_the_gradient_of_what_sensors_read_of_contacts_is_nan():
  sensors = '<sensor><contact data="found dist" reduce="mindist"/><clock/></sensor></mujoco>'
  text = DROP.replace("</mujoco>", sensors)
  m = mjx.put_model(
    mujoco.MjModel.from_xml_string(text), contact_smoothing=mjx.ContactSmoothing(0.01)
  )
  d = mjx.make_data(m)

  def reading(v: jax.Array, i: int) -> jax.Array:
    last, _ = jax.lax.scan(lambda d, _: (mjx.step(m, d), None), d.replace(qvel=v), length=2)
    floats = [x for x in jax.tree.leaves(last) if x.dtype == jnp.float32]
    return last.sensordata[i] + 0 * sum(jnp.sum(x) for x in floats)

  assert np.all(np.isnan(jax.grad(reading)(d.qvel, 1)))
  np.testing.assert_array_equal(jax.grad(reading)(d.qvel, 2), 0)


def test_it_belongs_to_the_analytic_gradient():
  mj_model, smoothing = mujoco.MjModel.from_xml_string(DROP), mjx.ContactSmoothing(0.01)
  for gradient in ("fd", "none"):
    with pytest.raises(ValueError, match="contact_smoothing belongs to gradient='analytic'"):
      mjx.put_model(mj_model, gradient=gradient, contact_smoothing=smoothing)
  with pytest.raises(TypeError, match="takes a mjx.ContactSmoothing, got float"):
    mjx.put_model(mj_model, contact_smoothing=0.01)
  m = mjx.put_model(mj_model, contact_smoothing=smoothing).replace(gradient="fd")
  with pytest.raises(NotImplementedError, match="belongs to gradient='analytic'"):
    jax.grad(lambda d: mjx.step(m, d).qvel[0], allow_int=True)(mjx.make_data(m))


@pytest.mark.parametrize("width", (0, -1, float("inf"), float("nan")))
def test_a_width_is_a_positive_length(width):
  with pytest.raises(ValueError, match="width must be a positive length"):
    mjx.ContactSmoothing(width)


@pytest.mark.parametrize("friction", (0, 1.1, float("nan")))
def test_friction_is_a_share(friction):
  with pytest.raises(ValueError, match="friction must be above 0 and at most 1"):
    mjx.ContactSmoothing(0.01, friction)


def test_it_is_replaced_as_other_settings_and_equal_ones_share_a_compilation():
  m = mjx.put_model(mujoco.MjModel.from_xml_string(DROP))
  assert m.contact_smoothing is None
  soft = m.replace(contact_smoothing=mjx.ContactSmoothing(width=0.01))
  again = m.replace(contact_smoothing=mjx.ContactSmoothing(0.01, friction=1))
  assert jax.tree.structure(soft) == jax.tree.structure(again) != jax.tree.structure(m)


def test_a_finger_at_rest_finds_the_body_that_it_should_push():
  text = """<mujoco><option timestep="0.004"/><worldbody>
    <body><joint name="finger" type="slide" axis="1 0 0" damping="1"/><geom size="0.05"/></body>
    <body pos="0.2 0 0"><joint type="slide" axis="1 0 0" damping="1"/><geom size="0.05"/></body>
    </worldbody><actuator><motor joint="finger"/></actuator></mujoco>"""
  losses = []
  for smoothing in (None, mjx.ContactSmoothing(0.2)):
    m = mjx.put_model(mujoco.MjModel.from_xml_string(text), contact_smoothing=smoothing)
    d = mjx.make_data(m)

    def miss(force, m=m, d=d):
      _, after = mjx.rollout(m, d, jnp.broadcast_to(force, (100, 1)))
      return (after.qpos[1] - 0.2) ** 2

    value_and_grad = jax.jit(jax.value_and_grad(miss))
    force, pace = jnp.zeros(()), 0.0
    for _ in range(40):
      loss, slope = value_and_grad(force)
      pace = 0.8 * pace - 0.15 * jnp.sign(slope)
      force = force + pace
    losses.append(float(loss))
  assert losses[0] == pytest.approx(0.04)  # it stays where it is
  assert losses[1] < 1e-3


@pytest.mark.slow
def test_the_tables_and_the_picture_are_made(tmp_path):
  script, picture = ROOT / "benchmarks" / "contact_smoothing.py", tmp_path / "picture.png"
  for arguments in (["--states", "2", "--steps", "2", "hopper"], ["--plot", str(picture)]):
    done = subprocess.run(
      [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if arguments[0] == "--states":
      rows = [line for line in done.stdout.splitlines() if line.startswith("| 1e-06 | 1 |")]
      assert len(rows) == 2
      assert float(rows[0].split("|")[3].split("(")[0]) < 1e-3  # nearly the exact gradient
      assert float(rows[1].split("|")[3].split("(")[0]) > 0.99
  assert picture.stat().st_size > 10_000
