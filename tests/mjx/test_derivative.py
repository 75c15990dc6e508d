"""Transition matrices and forward mode against mjd_transitionFD in float64."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.gradient import differences
from support import adjoint_oracle as oracle
from support import helpers

_NAMES = "ABCD"


def _load(name):
  m = mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))
  m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
  return m


def _state(m, rng):
  """An MjData a few steps into random controls, rounded to float32."""
  d = mujoco.MjData(m)
  mujoco.mj_integratePos(m, d.qpos, 0.1 * rng.normal(size=m.nv), 1)
  d.qvel[:] = 0.5 * rng.normal(size=m.nv)
  low, high = m.actuator_ctrlrange.T
  d.ctrl[:] = np.where(
    m.actuator_ctrllimited, low + rng.uniform(0.1, 0.9, m.nu) * (high - low), 0.1
  )
  for _ in range(5):
    mujoco.mj_step(m, d)
  mujoco.mj_forward(m, d)
  d.qacc_warmstart[:] = d.qacc
  for name in ("qpos", "qvel", "act", "ctrl", "qacc_warmstart"):
    getattr(d, name)[:] = getattr(d, name).astype(np.float32)
  return d


def _transition(m, d, eps=1e-6, centered=True):
  """mjd_transitionFD in float64, with a solver that converges."""
  n = 2 * m.nv + m.na
  shapes = (n, n), (n, m.nu), (m.nsensordata, n), (m.nsensordata, m.nu)
  out = [np.zeros(s) for s in shapes]
  mujoco.mjd_transitionFD(m, d, eps, centered, *out)
  return out


def _errors(result, expected):
  pairs = zip(_NAMES, result, expected, strict=True)
  return {k: np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-3) for k, a, b in pairs}


# In Frobenius norms, with the rows of the next qpos, which are near one. What is left is rounding
# over the displacement.
_TOLERANCE = 3e-3


@pytest.mark.parametrize("name", ["cartpole", "point_mass", "hopper", "muscle_arm", "humanoid"])
def test_transition_matrices_are_those_of_mujoco(name, rng):
  m = _load(name)
  d = _state(m, rng)
  result = jax.jit(mjx.transition_fd)(mjx.put_model(m), mjx.put_data(m, d))
  expected = _transition(oracle.tighten(_load(name)), d)
  assert [x.shape for x in result] == [x.shape for x in expected]
  for key, error in _errors(result, expected).items():
    assert error < _TOLERANCE, key


def test_forward_differences_are_those_of_mujoco_too(rng):
  m = _load("muscle_arm")
  d = _state(m, rng)
  result = jax.jit(lambda m, d: mjx.transition_fd(m, d, 1e-3, False))(
    mjx.put_model(m), mjx.put_data(m, d)
  )
  expected = _transition(oracle.tighten(_load("muscle_arm")), d, 1e-3, False)
  # the same displacement, so curvature is no error
  for key, error in _errors(result, expected).items():
    assert error < 2e-3, key


def test_batches_of_models_and_states_agree_with_single_ones(rng, monkeypatch):
  m = _load("cartpole")
  states = [_state(m, rng) for _ in range(3)]
  batch = jax.tree.map(lambda *x: jnp.stack(x), *[mjx.put_data(m, d) for d in states])
  model = mjx.put_model(m)
  one = jax.jit(mjx.transition_fd)
  expected = [one(model, mjx.put_data(m, d)) for d in states]
  for most in (8192, 8):
    monkeypatch.setattr(differences, "_MOST_WORLDS", most)
    result = jax.jit(jax.vmap(mjx.transition_fd, (None, 0)))(model, batch)
    for i in range(3):
      for a, b in zip(result, expected[i], strict=True):
        np.testing.assert_allclose(a[i], b, rtol=1e-4, atol=1e-4)


def test_controls_are_displaced_inwards_at_the_ends_of_their_range(rng):
  m = _load("cartpole")
  model, d = mjx.put_model(m), _state(m, rng)
  slope = None
  for ctrl, scale in ((0.5, 1), (1, 1), (-1, 1), (1.5, 0)):
    d.ctrl[:] = ctrl
    b = jax.jit(mjx.transition_fd)(model, mjx.put_data(m, d))[1]
    expected = _transition(oracle.tighten(_load("cartpole")), d)[1]
    np.testing.assert_allclose(b, expected, rtol=1e-3, atol=1e-5)
    slope = slope if slope is not None else np.asarray(b)
    np.testing.assert_allclose(b, scale * slope, rtol=1e-3, atol=1e-5)


def test_a_model_without_actuators_and_sensors_has_empty_matrices():
  xml = "<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>"
  m = mujoco.MjModel.from_xml_string(xml)
  result = jax.jit(mjx.transition_fd)(mjx.put_model(m), mjx.make_data(m))
  assert [x.shape for x in result] == [(2, 2), (2, 0), (0, 2), (0, 0)]


@pytest.mark.parametrize("centered", [True, False])
def test_a_model_without_degrees_of_freedom_has_those_of_what_it_has(centered):
  xml = """<mujoco><worldbody><body><geom size='.1'/><site name='s'/></body></worldbody>
    {}<sensor><framepos objtype='site' objname='s'/></sensor></mujoco>"""
  drive = "<actuator><general site='s' dyntype='integrator' gear='1 0 0 0 0 0'/></actuator>"
  m = mujoco.MjModel.from_xml_string(xml.format(""))
  result = mjx.transition_fd(mjx.put_model(m), mjx.make_data(m), centered=centered)
  assert [x.shape for x in result] == [(0, 0), (0, 0), (3, 0), (3, 0)]
  m = mujoco.MjModel.from_xml_string(xml.format(drive))
  a, b, c, d = mjx.transition_fd(mjx.put_model(m), mjx.make_data(m), centered=centered)
  np.testing.assert_allclose(a, [[1.0]], rtol=1e-5)  # the activation is an integral
  np.testing.assert_allclose(b, [[m.opt.timestep]], rtol=1e-3)
  assert not np.any(c) and not np.any(d)


def _along(m, d, change, eps=1e-6):
  """A central difference of C MuJoCo's step along `change(m, d, eps)`."""
  spec = int(mujoco.mjtState.mjSTATE_INTEGRATION)
  state = np.zeros(mujoco.mj_stateSize(m, spec))
  mujoco.mj_getState(m, d, state, spec)
  ends = []
  for sign in (1, -1):
    mujoco.mj_setState(m, d, state, spec)
    change(m, d, sign * eps)
    mujoco.mj_step(m, d)
    change(m, d, 0)
    ends.append({n: getattr(d, n).copy() for n in ("qpos", "qvel", "qacc", "xpos", "sensordata")})
  mujoco.mj_setState(m, d, state, spec)
  return {n: (ends[0][n] - ends[1][n]) / (2 * eps) for n in ends[0]}


def test_forward_mode_is_the_derivative_along_a_direction(rng):
  m = _load("quadruped")
  d = _state(m, rng)
  mass = m.body_mass * rng.normal(size=m.nbody)
  move, push, u = rng.normal(size=m.nv), rng.normal(size=(m.nbody, 6)), rng.normal(size=m.nu)
  exact = oracle.tighten(_load("quadruped"))

  def change(m_, d_, eps):
    mujoco.mj_integratePos(m_, d_.qpos, eps * move, 1)
    d_.xfrc_applied[:] = eps * push
    d_.ctrl[:] = d.ctrl + eps * u if d_ is not d else d_.ctrl + eps * u
    m_.body_mass[:] = m.body_mass + eps * mass

  expected = _along(exact, d, change)
  tangents = {"qpos": move, "xfrc_applied": push, "ctrl": u, "body_mass": mass}
  model, data = mjx.put_model(m), mjx.put_data(m, d)
  after, slope = jax.jit(mjx.step_jvp)(model, data, tangents)
  for name, x in expected.items():
    error = np.linalg.norm(getattr(slope, name) - x) / np.linalg.norm(x)
    assert error < 3e-3, (name, error)  # rounding over a displacement of 2e-3
  np.testing.assert_allclose(slope.ctrl, u, rtol=1e-6)
  assert jax.tree.structure(slope) == jax.tree.structure(data)
  assert not np.any(slope.ncon) and slope.ncon.dtype == np.int32
  direct = jax.jit(mjx.step)(model, data)
  np.testing.assert_allclose(after.qpos, direct.qpos, rtol=1e-5, atol=1e-6)


def test_columns_of_forward_mode_are_those_of_the_transition_matrix(rng):
  m = _load("cartpole")
  model, data = mjx.put_model(m), mjx.put_data(m, _state(m, rng))
  along = jax.jit(jax.vmap(lambda t: mjx.step_jvp(model, data, {"qvel": t})[1].qvel))
  columns = along(jnp.eye(m.nv))
  a = jax.jit(mjx.transition_fd)(model, data)[0]
  np.testing.assert_allclose(columns.T, a[m.nv :, m.nv :], rtol=1e-3, atol=1e-4)


def test_a_tangent_in_coordinates_is_the_rotation_that_it_stands_for(rng):
  m = _load("quadruped")
  d = _state(m, rng)
  move = rng.normal(size=m.nv)
  ends = []
  for eps in (1e-6, -1e-6):
    ends.append(d.qpos.copy())
    mujoco.mj_integratePos(m, ends[-1], eps * move, 1)
  model, data = mjx.put_model(m), mjx.put_data(m, d)
  _, one = jax.jit(mjx.step_jvp)(model, data, {"qpos": move})
  _, two = jax.jit(mjx.step_jvp)(model, data, {"qpos": (ends[0] - ends[1]) / 2e-6})
  np.testing.assert_allclose(one.qpos, two.qpos, rtol=1e-3, atol=1e-3)


def test_no_direction_has_no_derivative_and_wrong_ones_are_refused(rng):
  m = _load("cartpole")
  model, data = mjx.put_model(m), mjx.put_data(m, _state(m, rng))
  for tangents in ({}, {"qvel": np.zeros(2)}, {"act": np.zeros(0)}):
    _, slope = jax.jit(mjx.step_jvp)(model, data, tangents)
    assert not np.any(slope.qpos)
  with pytest.raises(ValueError, match=r"tangent of qvel has shape \(3,\), expected \(2,\)"):
    mjx.step_jvp(model, data, {"qvel": np.zeros(3)})
  with pytest.raises(ValueError, match="'speed' is no input"):
    mjx.step_jvp(model, data, {"speed": np.zeros(3)})
  with pytest.raises(TypeError, match="eq_active has dtype bool"):
    mjx.step_jvp(model, data, {"eq_active": np.zeros(0)})
