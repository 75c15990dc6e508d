"""The inverse dynamics have a gradient, by the acceleration too, or refuse it by name."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from adjoint_case import STIFF, assert_close, load, random_states
from mjx_warp_ffi import mjx
from stage_case import INPUTS, TOUCHING, ZOO, StageOracle, weights, zoo


@pytest.mark.parametrize("text", [ZOO, TOUCHING], ids=["zoo", "touching"])
def test_inverse_dynamics_have_the_gradient_of_differences_also_by_the_acceleration(text):
  mj_model = load(text)
  state = random_states(mj_model, count=1, seed=3)[0]
  if text is TOUCHING:  # friction, limits and adhesion
    state["qpos"][:6] = [0.9, 0.1, 0.2, 0.3, -0.01, 0.3]
    state["qvel"] *= 0.1
  qacc = np.random.default_rng(4).standard_normal(mj_model.nv)
  state["qacc"] = qacc.astype(np.float32).astype(float)  # both sides see the same numbers
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m, nconmax=8, njmax=40).replace(**state)
  weight = weights(d, ("qfrc_inverse", "qfrc_bias", "qfrc_passive", "xpos"))
  leaves = ("body_mass", "dof_damping", "dof_armature", "geom_pos", "opt.gravity")
  names = tuple(n for n in (*INPUTS, "qacc") if state[n].size)
  values = {n: getattr(d, n) for n in names}
  values |= {n: functools.reduce(getattr, n.split("."), m) for n in leaves}

  def loss(values: dict) -> jax.Array:
    moved = d.replace(**{n: values[n] for n in names})
    out = mjx.inverse(m.tree_replace({n: values[n] for n in leaves}), moved)
    return sum(jnp.sum(w * getattr(out, n)) for n, w in weight.items())

  got = jax.jit(jax.grad(loss))(values)
  flat = {n: x.ravel() for n, x in weight.items()}
  inputs = {k: v.copy() for k, v in state.items()}
  oracle = StageOracle(mj_model, inputs, flat, functions="inverse")
  oracle.value()
  assert oracle.d.nefc > 5 or text is ZOO
  for name in names:
    want = oracle.gradient(name)
    assert_close(np.asarray(got[name]).reshape(want.shape), want, STIFF, name)
  for name in leaves:
    want = oracle.parameter(name)
    found = np.asarray(got[name]).reshape(want.shape).copy()
    if name == "body_mass":
      found[0] = want[0] = 0
    assert_close(found, want, STIFF, name)


def test_inverse_dynamics_without_a_rule_are_refused_by_name():
  mj_model, m, d, _ = zoo()

  def loss(q: jax.Array, m: mjx.Model, name: str) -> jax.Array:
    return jnp.sum(getattr(mjx.inverse(m, d.replace(qpos=q)), name))

  for name in ("sensordata", "qfrc_constraint"):
    with pytest.raises(NotImplementedError, match=f"no analytic gradient from {name}"):
      jax.grad(loss)(d.qpos, m, name)
  flag = int(mujoco.mjtEnableBit.mjENBL_INVDISCRETE)
  other = m.tree_replace({"opt.enableflags": m.opt.enableflags | flag})
  with pytest.raises(NotImplementedError, match="the discrete inverse"):
    jax.grad(loss)(d.qpos, other, "qfrc_inverse")
