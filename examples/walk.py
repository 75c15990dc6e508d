"""Teaches a quadruped its first steps, by gradient through the contacts of its feet.

Each servo follows a sine of the gait's frequency about a middle. The guess is a trot on the spot,
which lifts two feet in turn; the gradient of the distance finds how all twelve have to swing. At
the end C MuJoCo replays the walk in float64.

  python examples/walk.py
"""

import pathlib

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
from mujoco import rollout

from mjx_warp_ffi import mjx

MODEL = pathlib.Path(__file__).resolve().parents[1] / "models" / "quadruped.xml"
NSTEP, PERIOD, SUBSTEPS = 80, 0.4, 3  # control steps, seconds, steps a control
TROT = np.array([0, 1, 1, 0])  # legs that move together: front left and back right, and the others


def replay(mj_model: mujoco.MjModel, d: mjx.Data, ctrl: jax.Array) -> float:
  """How far the trunk moves forward under these commands, by C MuJoCo in float64."""
  start = np.concatenate([[0], d.qpos, d.qvel])
  ctrl = np.repeat(np.array(ctrl), SUBSTEPS, axis=0)
  states, _ = rollout.rollout(mj_model, mujoco.MjData(mj_model), start, ctrl)
  return float(states[0, -1, 1])


def main(iterations: int = 60) -> tuple[float, float, float]:
  """Optimises the gait.

  Args:
    iterations: of Adam.

  Returns:
    How far the trunk moved forward before and after, in metres, and how far it does in C MuJoCo.
  """
  mj_model = mujoco.MjModel.from_xml_path(str(MODEL))
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m)
  d = d.replace(qpos=d.qpos.at[2].add(-0.015))  # the feet touch the floor
  seconds = np.arange(NSTEP) * SUBSTEPS * mj_model.opt.timestep
  phase = 2 * np.pi * seconds / PERIOD
  waves = np.stack([np.ones(NSTEP), np.sin(phase), np.cos(phase)], axis=1).astype(np.float32)

  def commands(gait: jax.Array) -> jax.Array:
    return jnp.tanh(waves @ gait) * m.actuator_ctrlrange[:, 1]

  def walk(gait: jax.Array) -> mjx.Trajectory:
    return mjx.rollout(m, d, commands(gait), substeps=SUBSTEPS)[0]

  def loss(gait: jax.Array) -> tuple[jax.Array, jax.Array]:
    path = walk(gait)
    x, quat = path.qpos[:, 0], path.qpos[:, 3:7]
    tilt = jnp.mean(quat[:, 1] ** 2 + quat[:, 2] ** 2 + quat[:, 3] ** 2)
    sway = jnp.mean(path.qpos[:, 1] ** 2)
    return -x[-1] + 5 * tilt + 5 * sway + 1e-2 * jnp.mean(gait**2), x[-1]

  lift = np.where(TROT[:, None] == 1, 0.4, -0.4) * [0, 0.5, -1]  # hip, thigh and shin
  gait = jnp.zeros((3, m.nu), jnp.float32).at[1].set(lift.ravel().astype(np.float32))
  adam = optax.adam(optax.cosine_decay_schedule(0.05, iterations))
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), adam)

  @jax.jit
  def improve(gait, state):
    (_, distance), slope = jax.value_and_grad(loss, has_aux=True)(gait)
    update, state = optimizer.update(slope, state)
    return optax.apply_updates(gait, update), state, distance

  state, distances = optimizer.init(gait), []
  for _ in range(iterations):
    gait, state, distance = improve(gait, state)
    distances.append(float(distance))
  best = float(jax.jit(lambda g: walk(g).qpos[-1, 0])(gait))
  replayed = replay(mj_model, d, commands(gait))
  print(f"distance in {seconds[-1]:.1f} s: {distances[0]:.3f} -> {best:.3f} m")
  print(f"in C MuJoCo by {1000 * (replayed - best):+.3f} mm more")
  return distances[0], best, replayed


if __name__ == "__main__":
  main()
