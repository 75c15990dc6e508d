"""What the gradient through contacts obeys whatever the states: symmetry, momentum, a bounce."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx

CROWD = """<mujoco><option timestep="0.002" cone="{cone}" gravity="0 0 {gravity}"
    iterations="50" ls_iterations="50"/>
  <default><geom condim="{condim}" friction=".7 .02 .01" solimp=".6 .95 .01"/></default>
  <worldbody>{floor}
  <body pos="0 0 .09"><freejoint/><geom type="sphere" size=".1" mass=".5"/></body>
  <body pos=".17 0 .12"><freejoint/><geom type="sphere" size=".1" mass=".4"/></body>
  <body pos=".04 .02 .24" euler="5 3 0"><freejoint/>
    <geom type="box" size=".2 .15 .06" mass="2"/></body>
</worldbody></mujoco>"""
BALL = """<mujoco><option timestep="0.002"/>
  <default><geom condim="1" solimp=".8 .8 .01" solref=".08 .1"/></default><worldbody>
  <geom type="plane" size="1 1 .1"/>
  <body><freejoint/><geom type="sphere" size=".125" mass=".3"/></body></worldbody></mujoco>"""


def steps(model: mjx.Model, d: mjx.Data, count: int) -> mjx.Data:
  """The Data some steps later."""
  return mjx.rollout(model, d, jnp.zeros((count, model.nu)))[1]


@pytest.mark.parametrize(("cone", "condim"), [("pyramidal", 1), ("pyramidal", 3), ("elliptic", 6)])
def test_constraint_forces_of_bodies_at_rest_depend_symmetrically_on_velocities(cone, condim):
  """They are the gradient of a convex function of the velocities, where no other force has one."""
  floor = '<geom type="plane" size="5 5 .1"/>'
  text = CROWD.format(cone=cone, condim=condim, gravity=-9.81, floor=floor)
  m = mujoco.MjModel.from_xml_string(text)
  model, d = mjx.put_model(m), mjx.make_data(m)

  def force(qvel: jax.Array) -> jax.Array:
    return mjx.forward(model, d.replace(qvel=qvel)).qfrc_constraint

  slope = np.asarray(jax.jit(jax.jacrev(force))(jnp.zeros(model.nv)))
  scale = np.abs(slope).max()
  assert scale > 1
  # Sliding elliptic contacts leave the solver's acceleration some 1e-5 from the solution.
  np.testing.assert_allclose(slope, slope.T, atol=2e-4 * scale)
  assert np.linalg.eigvalsh(slope + slope.T).max() < 1e-4 * scale, "they take energy"


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_the_momentum_of_bodies_that_collide_among_themselves_is_that_at_the_start(cone):
  """Its gradient has their masses in the direction of the momentum and nothing else."""
  m = mujoco.MjModel.from_xml_string(CROWD.format(cone=cone, condim=3, gravity=0, floor=""))
  model, d = mjx.put_model(m), mjx.make_data(m)
  rng = np.random.default_rng(0)
  masses = jnp.asarray(m.body_mass[1:], jnp.float32)
  way = jnp.asarray([0.3, -0.5, 0.8])

  def momentum(qpos: jax.Array, qvel: jax.Array) -> tuple[jax.Array, jax.Array]:
    after = steps(model, d.replace(qpos=qpos, qvel=qvel), 10)
    linear = after.qvel.reshape(-1, 6)[:, :3]
    return jnp.sum(masses[:, None] * linear * way), after.ncon

  qvel = jnp.asarray(0.3 * rng.normal(size=m.nv), jnp.float32)
  grad = jax.jit(jax.grad(momentum, argnums=(0, 1), has_aux=True))
  (by_qpos, by_qvel), count = grad(jnp.asarray(m.qpos0, jnp.float32), qvel)
  assert count >= 2
  want = np.zeros((3, 6))
  want[:, :3] = np.outer(masses, way)
  # Forces of contacts change by 1e4 a metre; float32 leaves a few of their digits.
  np.testing.assert_allclose(np.asarray(by_qvel).reshape(3, 6), want, atol=1e-4)
  np.testing.assert_allclose(by_qpos, 0, atol=2e-2)


def bounce(m: mujoco.MjModel, height: float, speed: float, count: int) -> tuple:
  """Height and speed of BALL after some steps, and their derivatives by those at the start.

  In contact a = (1 - d) g + d (-b v - k d x), with d the impedance; else a = g.
  """
  h, g, r = m.opt.timestep, m.opt.gravity[2], m.geom_size[1, 0]
  d, (constant, ratio) = 0.8, m.geom_solref[1]
  b, k = 2 / (d * constant), 1 / (d * constant * ratio) ** 2
  x, v, slope, touched = height - r, speed, np.eye(2), 0
  for _ in range(count):
    a, by = g, np.zeros(2)
    if x < 0 and -b * v - k * d * x > g:
      a, by = (1 - d) * g + d * (-b * v - k * d * x), np.array([-d * k * d, -d * b])
      touched += 1
    v += h * a
    x += h * v
    by_v = slope[1] + h * by @ slope
    slope = np.stack([slope[0] + h * by_v, by_v])
  return x + r, v, slope, touched


@pytest.mark.parametrize(("height", "speed"), [(0.13, -1.0), (0.12, -0.5), (0.135, 0.0)])
def test_a_bounce_has_the_gradient_of_its_closed_form(height, speed):
  m = mujoco.MjModel.from_xml_string(BALL)
  model, d = mjx.put_model(m), mjx.make_data(m)

  def end(start: jax.Array) -> jax.Array:
    qpos, qvel = d.qpos.at[2].set(start[0]), d.qvel.at[2].set(start[1])
    after = steps(model, d.replace(qpos=qpos, qvel=qvel), 60)
    return jnp.stack([after.qpos[2], after.qvel[2]])

  start = jnp.asarray([height, speed], jnp.float32)
  x, v, want, touched = bounce(m, float(start[0]), float(start[1]), 60)
  assert touched > 8 and x > 0.126, "it is up again"
  np.testing.assert_allclose(jax.jit(end)(start), [x, v], atol=1e-4)
  got = jax.jit(jax.jacrev(end))(start)
  np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("speed", [-1.0, 0.0])
@pytest.mark.parametrize("side", [-1, 0, 1])
def test_at_the_moment_of_touch_the_gradient_is_that_of_one_side(side, speed):
  """Exactly, and a micrometre before and after: against one-sided differences of C MuJoCo."""
  m = mujoco.MjModel.from_xml_string(BALL)
  model, d = mjx.put_model(m), mjx.make_data(m)
  height = 0.125 + side * 2.0**-20  # exact in float32

  def value(z: jax.Array) -> jax.Array:
    qvel = d.qvel.at[2].set(speed)
    return mjx.step(model, d.replace(qpos=d.qpos.at[2].set(z), qvel=qvel)).qvel[2]

  def exact(z: float) -> float:
    data = mujoco.MjData(m)
    data.qpos[2], data.qvel[2] = z, speed
    mujoco.mj_step(m, data)
    return data.qvel[2]

  eps = 2.0**-24
  sides = [(exact(height + e) - exact(height)) / e for e in (eps, -eps)]
  got = float(jax.jit(jax.grad(value))(jnp.asarray(height, jnp.float32)))
  assert min(abs(got - slope) for slope in sides) < 1e-4 * max(1.0, *map(abs, sides))
  if side:
    assert sides[0] == pytest.approx(sides[1], rel=1e-4)
