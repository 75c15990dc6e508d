"""Smoothed contacts: the gradient of a law of their own, and a step that stays as it is."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import adjoint_oracle as oracle
from adjoint_case import STIFF, Case, assert_close, load
from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.adjoint.step import StepAdjoint
from soft_contact_oracle import SoftOracle

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
  <sensor><accelerometer site="at"/></sensor>
</mujoco>""".replace('<geom size="0.1" condim="3"/>', '<geom size="0.1" condim="3"/><site name="at"/>')
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


def test_a_step_of_implicitfast_has_the_gradient_of_the_smoothed_law():
  m, smoothing = _scene("elliptic", "implicitfast"), mjx.ContactSmoothing(WIDTH, 0.3)
  case = Case(m, _states(m, (0.005,)), smoothing=smoothing)
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
