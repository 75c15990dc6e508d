"""Gradients by batched central differences against float64 differences of C MuJoCo."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.ffi import Inputs, inputs_of
from mjx_warp_ffi.mjx.warp.functions import forward as backend
from mjx_warp_ffi.mjx.warp.gradient import differences
from support import adjoint_oracle as oracle
from support import helpers

_OFF = mujoco.mjtDisableBit.mjDSBL_CONTACT


def _case(name, rng):
  """A model without contacts, a Data, cotangents, and the oracle of the gradient."""
  m = mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))
  m.opt.disableflags |= int(_OFF)
  exact = oracle.tighten(mujoco.MjModel.from_xml_path(str(helpers.model_path(name))))
  exact.opt.disableflags |= int(_OFF)
  state = oracle.random_state(m, rng, spread=0.1)
  low, high = m.actuator_ctrlrange.T
  mid = np.where(m.actuator_ctrllimited, (low + high) / 2, 0)
  half = np.where(m.actuator_ctrllimited, (high - low) / 2, 1)
  state["ctrl"] = (mid + half * state["ctrl"]).astype(np.float32).astype(np.float64)
  state["qfrc_applied"] *= 0.1
  state["xfrc_applied"] *= 0.1
  shapes = dict(qpos=m.nq, qvel=m.nv, act=m.na, qacc=m.nv)
  cotangents = {k: rng.normal(size=n) for k, n in shapes.items()}
  cotangents["qacc"] *= m.opt.timestep  # so that no output outweighs the others
  reference = oracle.Oracle(exact, state, cotangents)
  data = mjx.make_data(m).replace(**state)
  return (
    mjx.put_model(m),
    data,
    {k: jnp.asarray(v, jnp.float32) for k, v in cotangents.items()},
    reference,
  )


def _gradients(m, d, cotangents, wanted):
  inputs = inputs_of(m, d)
  given = {k: v for k, v in cotangents.items() if v.size}

  def results(m, arrays):
    return backend.step.results(m, Inputs(arrays, inputs.sizes))

  return differences.fd_vjp(results, m, inputs=inputs.arrays, cotangents=given, wanted=wanted)


def _error(result, expected):
  return np.linalg.norm(np.asarray(result, np.float64) - expected) / np.linalg.norm(expected)


# Rounding over the step lengths of `fd` gives 1e-5 to 1e-3; the stiff equalities of the hand add
# what the solver's float32 leaves, which a friction loss near its corner turns into 1e-2 of qvel's.
_MODELS = {"double_pendulum": 2e-3, "hopper": 2e-3, "muscle_arm": 1e-3, "hand": 2e-2, "pile": 1e-3}


@pytest.mark.parametrize("name", _MODELS)
def test_every_input_has_the_gradient_of_mujocos_step(name, rng):
  m, d, cotangents, reference = _case(name, rng)
  wanted = [n for n in oracle.INPUTS if getattr(d, n).size]
  result = jax.jit(lambda m, d: _gradients(m, d, cotangents, wanted))(m, d)
  for n in wanted:
    assert result[n].shape == getattr(d, n).shape and result[n].dtype == np.float32
    assert _error(result[n], reference.gradient(n)) < _MODELS[name], n


def test_parameters_have_the_gradient_of_mujocos_step(rng):
  m, d, cotangents, reference = _case("arm", rng)
  wanted = "body_mass body_ipos dof_damping dof_armature actuator_gear".split()
  wanted += ["opt.gravity", "opt.timestep"]
  result = jax.jit(lambda m, d: _gradients(m, d, cotangents, wanted))(m, d)
  for n in wanted:
    expected = reference.parameter(n).reshape(result[n].shape)
    # a step of a hundredth of a parameter that acts little changes the state by few digits
    assert _error(result[n], expected) < 1e-2, n


_BALL = """
<mujoco>
  <option timestep=".005" cone="elliptic"/>
  <worldbody>
    <geom type="plane" size="1 1 .1"/>
    <body name="target" mocap="true" pos="0 0 2"/>
    <body pos="0 0 .098"><freejoint/><geom size=".1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def _ball(rng):
  m = mujoco.MjModel.from_xml_string(_BALL)
  exact = oracle.tighten(mujoco.MjModel.from_xml_string(_BALL))
  state = oracle.random_state(m, rng, spread=0)
  state["qvel"][:] = [0.8, 0.1, -0.2, 0.5, 0, -1]
  state["qpos"][3:] = [0.3, 1.2, -0.4, 0.9]  # not normalised
  state["qfrc_applied"][:] = 0
  state["xfrc_applied"][:] = 0
  cotangents = {"qpos": rng.normal(size=7), "qvel": rng.normal(size=6), "qacc": np.zeros(6)}
  reference = oracle.Oracle(exact, state, {**cotangents, "act": np.zeros(0)})
  data = mjx.make_data(m).replace(**state)
  return (
    mjx.put_model(m),
    data,
    {k: jnp.asarray(v, jnp.float32) for k, v in cotangents.items()},
    reference,
  )


def test_a_ball_that_slides_has_the_gradient_of_its_contact(rng):
  m, d, cotangents, reference = _ball(rng)
  result = jax.jit(lambda m, d: _gradients(m, d, cotangents, ("qpos", "qvel")))(m, d)
  # rounding over a displacement of 5e-5
  assert _error(result["qpos"], reference.gradient("qpos")) < 5e-3
  assert _error(result["qvel"], reference.gradient("qvel")) < 2e-3
  assert abs(result["qpos"][3:] @ d.qpos[3:]) < 1e-5 * np.linalg.norm(result["qpos"])


def test_batches_chunks_and_single_worlds_agree(rng, monkeypatch):
  m, d, cotangents, _ = _ball(rng)
  batch = jax.tree.map(lambda x: jnp.stack([x, x, x]), d)
  batch = batch.replace(qvel=batch.qvel * jnp.asarray([[1.0], [0.5], [2.0]]))
  masses = jnp.asarray(m.body_mass) * jnp.asarray([[1.0], [2.0], [3.0]])
  models = m.replace(body_mass=masses)
  wanted = ("qpos", "qvel", "body_mass", "opt.gravity")
  one = jax.jit(lambda m, d: _gradients(m, d, cotangents, wanted))
  loop = [
    one(m.replace(body_mass=masses[i]), jax.tree.map(lambda x, i=i: x[i], batch)) for i in range(3)
  ]
  expected = jax.tree.map(lambda *x: jnp.stack(x), *loop)
  assert expected["body_mass"].shape == (3, 3) and expected["opt.gravity"].shape == (3, 3)
  for most_worlds in (8192, 14):
    monkeypatch.setattr(differences, "_MOST_WORLDS", most_worlds)
    result = jax.jit(
      jax.vmap(lambda m, d: _gradients(m, d, cotangents, wanted), (mjx.model_axes(models), 0))
    )(models, batch)
    for n in wanted:
      # the solver's sums may run in another order in a batch of another size
      np.testing.assert_allclose(result[n], expected[n], rtol=1e-3, atol=1e-4, err_msg=n)


def test_what_a_step_does_not_read_has_zeros(rng):
  m, d, cotangents, _ = _ball(rng)
  result = _gradients(m, d, cotangents, ("qacc_warmstart", "mocap_pos", "geom_rgba"))
  assert all(not np.any(x) for x in result.values())
  assert result["geom_rgba"].shape == m.geom_rgba.shape


def test_integer_cotangents_and_none_at_all_are_passed_over(rng):
  m, d, _, _ = _ball(rng)
  nothing = {"ncon": np.zeros((), jax.dtypes.float0)}
  assert not np.any(_gradients(m, d, {}, ("qpos",))["qpos"])
  assert not np.any(_gradients(m, d, nothing, ("qpos",))["qpos"])


def test_unknown_and_integer_arrays_are_refused_by_name(rng):
  m, d, cotangents, _ = _ball(rng)
  with pytest.raises(ValueError, match="'body_weight' is no input.*body_mass"):
    _gradients(m, d, cotangents, ("body_weight",))
  with pytest.raises(TypeError, match="geom_matid has dtype int32"):
    _gradients(m, d, cotangents, ("geom_matid",))


def test_where_nothing_moves_by_itself_poses_have_a_gradient():
  mj_model = mujoco.MjModel.from_xml_string(
    """<mujoco><worldbody><body mocap="true"><geom size=".1"/><site pos=".1 0 0"/></body>
    </worldbody></mujoco>"""
  )
  weights = jnp.array([1.0, 2.0, 3.0])

  def loss(pos, gradient, function):
    m = mjx.put_model(mj_model, gradient=gradient)
    d = mjx.make_data(m).replace(mocap_pos=pos)
    return jnp.sum(function(m, d).site_xpos * weights)

  for function in (mjx.kinematics, mjx.forward, mjx.step):
    found = jax.grad(loss)(jnp.zeros((1, 3)), "fd", function)
    np.testing.assert_allclose(found, [weights], rtol=1e-3)  # differences of float32
    with pytest.raises(NotImplementedError, match="without degrees of freedom.*gradient='fd'"):
      jax.grad(loss)(jnp.zeros((1, 3)), "analytic", function)
