"""Gradients are as exact as the table says, and finite where functions have a corner."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import adjoint_models as models
from support.helpers import ROOT, model_path

sys.path.insert(0, str(ROOT / "benchmarks"))
import gradient_accuracy

# A tendon whose two sites coincide, a joint exactly at its limit, spheres that touch, and a body
# that stands still on the plane.
CORNERS = """<mujoco><worldbody><site name="s0" pos="0 0 1"/><geom type="plane" size="1 1 .1"/>
  <body pos="0 0 1"><joint name="h" axis="0 1 0" range="0 .5" limited="true" stiffness="2"
    frictionloss=".1" damping=".1"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0" contype="0" conaffinity="0"/>
    <site name="s1"/>
    <body pos=".2 0 0"><joint type="ball" range="0 1" limited="true" stiffness="1"/>
      <geom type="box" size=".05 .05 .05" contype="0" conaffinity="0"/></body></body>
  <body pos="0 0 .1"><freejoint/><geom type="sphere" size=".1"/></body>
  <body pos=".2 0 .1"><freejoint/><geom type="sphere" size=".1"/></body>
  <body pos=".5 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/></body></worldbody>
  <tendon><spatial name="t" stiffness="3" damping=".2"><site site="s0"/><site site="s1"/></spatial>
  </tendon>
  <actuator><motor joint="h"/><muscle joint="h" lengthrange="-1 1"/>
    <position joint="h" kp="1" kv=".1"/></actuator></mujoco>"""
TEXTS = dict(
  corners=CORNERS,
  smooth=models.SMOOTH,
  actuated=models.ACTUATED,
  constrained=models.CONSTRAINED,
  wrapped=models.WRAPPED,
)


def finite(m: mujoco.MjModel) -> None:
  """Checks the gradient of a step from rest in the default state with zero controls."""
  model, d = mjx.put_model(m), mjx.make_data(m)
  moving = {n: getattr(d, n) for n in ("qpos", "qvel", "act", "ctrl", "qfrc_applied")}
  moving = {n: x for n, x in moving.items() if x.size}

  def loss(moving: dict[str, jax.Array]) -> jax.Array:
    after = mjx.step(model, d.replace(**moving))
    return jnp.sum(after.qpos) + jnp.sum(after.qvel)

  for name, x in jax.jit(jax.grad(loss))(moving).items():
    assert np.all(np.isfinite(x)), name


@pytest.mark.parametrize("cone", [mujoco.mjtCone.mjCONE_PYRAMIDAL, mujoco.mjtCone.mjCONE_ELLIPTIC])
@pytest.mark.parametrize("name", TEXTS)
def test_the_gradient_is_finite_at_rest_where_all_is_aligned(name, cone):
  m = mujoco.MjModel.from_xml_string(TEXTS[name])
  m.opt.cone = cone
  finite(m)


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["hand", "hopper", "humanoid", "quadruped", "pile", "throw", "arm"]
)
def test_the_gradient_of_a_model_is_finite_at_rest(name):
  finite(mujoco.MjModel.from_xml_path(str(model_path(name))))


def test_the_table_shows_small_errors():
  script = str(ROOT / "benchmarks" / "gradient_accuracy.py")
  command = [sys.executable, script, "--states", "3", "cartpole", "gyroscope"]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
  assert rows[-1].startswith("| gyroscope (with implicitfast) | ")
  cells = [cell.strip() for cell in rows[2].split("|")[1:-1]]
  assert cells[0] == "cartpole" and cells[-1] == "3 of 3"
  for cell in (cells[1], cells[2], cells[4]):
    # the rounding of float32 over one step comes to 3e-7
    assert float(cell.split("(")[1].rstrip(")")) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hopper", "quadruped", "hand", "pile"])
def test_the_gradient_of_32_steps_in_contact_points_where_that_of_differences_does(name):
  """In states that are left: away from kinks, and with the contacts of C MuJoCo all along."""
  _, m = gradient_accuracy.load(name, contacts=True)
  rng = np.random.default_rng(0)
  states = [gradient_accuracy.random_state(m, rng, 150) for _ in range(6)]
  found = gradient_accuracy.errors(m, states, steps=32, measure=gradient_accuracy.cosine)
  assert len(found["qpos"]) >= 2
  for cosines in found.values():
    assert min(cosines) > 0.999
