"""The inverse dynamics have a gradient, by the acceleration too, or refuse it by name."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import adjoint_models as models
from support.adjoint_case import SMOOTH, STIFF, assert_close, load, random_states
from support.stage_case import INPUTS, TOUCHING, ZOO, StageOracle, weights, zoo


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
  weight = weights(d, ("qfrc_inverse", "qfrc_constraint", "qfrc_bias", "qfrc_passive", "xpos"))
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


@dataclasses.dataclass
class _Bias(StageOracle):
  """The bias force with that of the acceleration, in the place of the one without."""

  def value(self) -> float:
    other, d = super().value(), self.d
    with_acceleration, without = np.zeros((2, self.m.nv))
    mujoco.mj_rne(self.m, d, 1, with_acceleration)
    mujoco.mj_rne(self.m, d, 0, without)  # C adds the bias of the tendons' armature to this one
    return other + self.cotangents["qfrc_bias"] @ (with_acceleration - without)


def test_the_bias_force_of_an_acceleration_has_the_gradient_of_differences():
  mj_model = load(ZOO.replace('name="rope"', 'name="rope" armature=".2"'))
  state = random_states(mj_model, count=1, seed=3)[0]
  qacc = np.random.default_rng(4).standard_normal(mj_model.nv)
  state["qacc"] = qacc.astype(np.float32).astype(float)
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m).replace(**state)
  weight = weights(d, ("qfrc_bias", "qfrc_damper", "xpos"))
  leaves = ("body_mass", "dof_damping", "dof_armature", "tendon_armature", "opt.gravity")
  names = ("qpos", "qvel", "qacc")
  values = {n: getattr(d, n) for n in names}
  values |= {n: functools.reduce(getattr, n.split("."), m) for n in leaves}

  def loss(values: dict) -> jax.Array:
    moved = d.replace(**{n: values[n] for n in names})
    out = mjx.rne(m.tree_replace({n: values[n] for n in leaves}), moved, flg_acc=True)
    return sum(jnp.sum(w * getattr(out, n)) for n, w in weight.items())

  got = jax.jit(jax.grad(loss))(values)
  flat = {n: x.ravel() for n, x in weight.items()}
  inputs = {k: v.copy() for k, v in state.items()}
  oracle = _Bias(mj_model, inputs, flat, functions="fwdPosition fwdVelocity")
  for name in names + leaves:
    want = oracle.gradient(name) if name in names else oracle.parameter(name)
    found = np.asarray(got[name]).reshape(want.shape).copy()
    if name == "body_mass":
      found[0] = want[0] = 0
    assert_close(found, want, SMOOTH, name)


def test_inverse_dynamics_leave_out_the_gravity_that_actuators_compensate():
  mj_model = load(models.WRAPPED)
  state = random_states(mj_model, count=1, spread=0.1, seed=3)[0]
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m).replace(**state)
  weight = weights(d, ("qfrc_inverse", "qfrc_passive", "qfrc_gravcomp", "qfrc_spring"))

  def loss(q: jax.Array) -> jax.Array:
    out = mjx.inverse(m, d.replace(qpos=q))
    return sum(jnp.sum(w * getattr(out, n)) for n, w in weight.items())

  flat = {n: x.ravel() for n, x in weight.items()}
  inputs = {k: v.copy() for k, v in state.items()}
  oracle = StageOracle(mj_model, inputs, flat, functions="inverse")
  assert_close(np.asarray(jax.grad(loss)(d.qpos)), oracle.gradient("qpos"), SMOOTH, "qpos")


def test_inverse_dynamics_without_a_rule_are_refused_by_name():
  mj_model, m, d, _ = zoo()

  def loss(q: jax.Array, m: mjx.Model, name: str) -> jax.Array:
    return jnp.sum(getattr(mjx.inverse(m, d.replace(qpos=q)), name))

  with pytest.raises(NotImplementedError, match="no analytic gradient from sensordata"):
    jax.grad(loss)(d.qpos, m, "sensordata")
  flag = int(mujoco.mjtEnableBit.mjENBL_INVDISCRETE)
  other = m.tree_replace({"opt.enableflags": m.opt.enableflags | flag})
  with pytest.raises(NotImplementedError, match="the discrete inverse"):
    jax.grad(loss)(d.qpos, other, "qfrc_inverse")
