"""Tangent space of positions against mj_integratePos and mj_differentiatePos."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi.mjx.numerics import tangent

# Every joint type, several on one body, so that addresses of qpos and qvel differ.
_XML = """
<mujoco>
  <worldbody>
    <body>
      <joint type="slide"/><joint type="hinge" axis="0 1 0"/>
      <geom size=".1"/>
      <body pos="0 0 1"><joint type="ball"/><geom size=".1"/></body>
    </body>
    <body pos="1 0 0"><freejoint/><geom size=".1"/></body>
    <body pos="2 0 0"><joint type="slide"/><joint type="ball"/><geom size=".1"/></body>
  </worldbody>
</mujoco>
"""
_TOLERANCE = dict(rtol=2e-6, atol=2e-6)  # a few roundings of float32 in values of order one


@pytest.fixture(scope="module")
def m():
  return mujoco.MjModel.from_xml_string(_XML)


def _position(m, rng):
  """A position with unit quaternions."""
  qpos = np.zeros(m.nq)
  qpos[[2, 9, 14]] = 1
  mujoco.mj_integratePos(m, qpos, rng.normal(size=m.nv), 1)
  return qpos


def _f32(x):
  return jnp.asarray(x, jnp.float32)


@pytest.mark.parametrize("size", [0, 1e-6, 1e-2, 0.011, 1, 3])
def test_integrate_is_mj_integrate_pos(m, rng, size):
  qpos, move = _position(m, rng), size * rng.normal(size=m.nv)
  expected = qpos.copy()
  mujoco.mj_integratePos(m, expected, move, 1)
  np.testing.assert_allclose(tangent.integrate(m, _f32(qpos), _f32(move)), expected, **_TOLERANCE)


def test_integrate_normalises_and_takes_zeros_for_the_identity(m, rng):
  qpos, move = _position(m, rng), rng.normal(size=m.nv)
  qpos[2:6] *= 3
  qpos[9:13] = 0
  expected = qpos.copy()
  mujoco.mj_integratePos(m, expected, move, 1)
  np.testing.assert_allclose(tangent.integrate(m, _f32(qpos), _f32(move)), expected, **_TOLERANCE)


@pytest.mark.parametrize("size", [0, 1e-6, 1e-2, 0.011, 1, 3])
def test_difference_is_mj_differentiate_pos(m, rng, size):
  first = _position(m, rng)
  second = first.copy()
  mujoco.mj_integratePos(m, second, size * rng.normal(size=m.nv), 1)
  second[2:6] *= -1  # the same rotation
  expected = np.zeros(m.nv)
  mujoco.mj_differentiatePos(m, expected, 1, first, second)
  result = tangent.difference(m, _f32(first), _f32(second))
  np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)  # angles near pi


def test_difference_undoes_integrate_in_batches(m, rng):
  qpos = _f32([_position(m, rng) for _ in range(6)]).reshape(2, 3, m.nq)
  move = _f32(0.3 * rng.normal(size=(3, m.nv)))
  moved = tangent.integrate(m, qpos, move)
  assert moved.shape == (2, 3, m.nq)
  back = jax.jit(lambda a, b: tangent.difference(m, a, b))(qpos, moved)
  np.testing.assert_allclose(back, np.broadcast_to(move, back.shape), **_TOLERANCE)


def _smooth(qpos, m):
  """A function of positions that normalises their quaternions, in float64."""
  q = np.array(qpos, np.float64)
  mujoco.mj_normalizeQuat(m, q)
  return np.sum(np.sin(np.arange(1, m.nq + 1) * q))


def test_gradients_in_the_tangent_space_and_in_coordinates_are_those_of_one_function(m, rng):
  qpos = _position(m, rng)
  qpos[2:6] *= 1.7  # coordinates need not be normalised
  eps = 1e-6
  in_tangent, in_coordinates = np.zeros(m.nv), np.zeros(m.nq)
  for i in range(m.nv):
    up, down = qpos.copy(), qpos.copy()
    mujoco.mj_integratePos(m, up, eps * np.eye(m.nv)[i], 1)
    mujoco.mj_integratePos(m, down, -eps * np.eye(m.nv)[i], 1)
    in_tangent[i] = (_smooth(up, m) - _smooth(down, m)) / (2 * eps)
  for i in range(m.nq):
    step = eps * np.eye(m.nq)[i]
    in_coordinates[i] = (_smooth(qpos + step, m) - _smooth(qpos - step, m)) / (2 * eps)
  tolerance = dict(rtol=1e-5, atol=2e-5)  # gradients are of order 10
  args = m, _f32(qpos)
  lifted = tangent.gradient_to_coordinates(*args, gradient=_f32(in_tangent))
  np.testing.assert_allclose(lifted, in_coordinates, **tolerance)


def test_a_change_of_coordinates_has_the_power_of_its_tangent(m, rng):
  qpos = _position(m, rng)
  qpos[2:6] *= 1.7
  change, gradient = _f32(rng.normal(size=m.nq)), _f32(rng.normal(size=m.nv))
  args = m, _f32(qpos)
  moved = tangent.velocity_to_tangent(*args, velocity=change)
  lifted = tangent.gradient_to_coordinates(*args, gradient=gradient)
  np.testing.assert_allclose(moved @ gradient, lifted @ change, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero", [False, True])
def test_derivatives_are_finite_and_right_at_no_rotation(m, zero):
  qpos = np.zeros(m.nq)
  qpos[[2, 9, 14]] = 0 if zero else 1
  qpos = _f32(qpos)
  forward = jax.jit(jax.jacrev(lambda t: tangent.integrate(m, qpos, t)))(jnp.zeros(m.nv))
  back = jax.jit(jax.jacrev(lambda q: tangent.difference(m, qpos, q)))(qpos)
  one = jnp.ones(m.nv)
  lifted = jax.jit(jax.jacrev(lambda q: tangent.gradient_to_coordinates(m, q, gradient=one)))
  assert np.isfinite(forward).all() and np.isfinite(back).all()
  assert np.isfinite(lifted(qpos)).all()
  if not zero:
    np.testing.assert_allclose(back @ forward, np.eye(m.nv), atol=1e-6)


def test_models_without_quaternions_have_plain_coordinates():
  xml = "<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>"
  m = mujoco.MjModel.from_xml_string(xml)
  one, two = _f32([1.0]), _f32([2.0])
  assert tangent.integrate(m, one, two) == 3
  assert tangent.difference(m, one, two) == 1
  assert tangent.gradient_to_coordinates(m, one, gradient=two) == 2
