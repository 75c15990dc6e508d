"""Throws a ball over a wall at a target, by gradient through the contacts of ball and cup.

The commands of the three servos are straight lines between knots. Once the ball flies, a formula
says where it passes the wall and where it lands. At the end C MuJoCo replays the throw in float64.

  python examples/throw.py
"""

import pathlib

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
from mujoco import rollout

from mjx_warp_ffi import mjx

MODEL = pathlib.Path(__file__).resolve().parents[1] / "models" / "throw.xml"
NSTEP, WALL, TARGET, GRAVITY = 130, 0.9, 1.6, 9.81
GUESS = [[0, 0, 0], [0.6, 0.2, 0], [1.5, 0.6, 0], [2, 0.8, 0], [2, 0.8, 0]]  # radians


def lines(knots: jax.Array, nstep: int) -> jax.Array:
  """Straight lines between knots, a row for each step."""
  at = jnp.linspace(0, len(knots) - 1, nstep)
  places = jnp.arange(len(knots), dtype=at.dtype)
  return jax.vmap(lambda column: jnp.interp(at, places, column), 1, 1)(knots)


def replay(mj_model: mujoco.MjModel, ctrl: jax.Array) -> tuple[np.ndarray, np.ndarray]:
  """The last positions and velocities under these commands, by C MuJoCo in float64."""
  start = np.concatenate([[0], mj_model.qpos0, np.zeros(mj_model.nv)])
  states, _ = rollout.rollout(mj_model, mujoco.MjData(mj_model), start, np.array(ctrl))
  return states[0, -1, 1 : 1 + mj_model.nq], states[0, -1, 1 + mj_model.nq :]


def main(iterations: int = 150) -> tuple[np.ndarray, np.ndarray]:
  """Optimises the throw.

  Args:
    iterations: of Adam.

  Returns:
    Where the ball lands and the height at which it passes the wall, in metres, and the same in C
    MuJoCo.
  """
  mj_model = mujoco.MjModel.from_xml_path(str(MODEL))
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m)
  origin, floor = mj_model.body("ball").pos, float(mj_model.geom("ball").size[0])

  def flight(qpos: jax.Array, qvel: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, z = float(origin[0]) + qpos[3], float(origin[2]) + qpos[4]
    vx, vz = qvel[3], qvel[4]
    landing = (vz + jnp.sqrt(vz**2 + 2 * GRAVITY * (z - floor))) / GRAVITY
    passing = (WALL - x) / vx
    return x + vx * landing, z + vz * passing - GRAVITY / 2 * passing**2

  def throw(knots: jax.Array) -> tuple[jax.Array, jax.Array]:
    _, end = mjx.rollout(m, d, lines(knots, NSTEP), outputs=())
    return flight(end.qpos, end.qvel)

  def loss(knots: jax.Array) -> jax.Array:
    place, height = throw(knots)
    return (place - TARGET) ** 2 + 10 * jnp.maximum(1.0 - height, 0) ** 2

  adam = optax.adam(optax.cosine_decay_schedule(0.02, iterations))
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), adam)

  @jax.jit
  def descend(knots: jax.Array) -> tuple[jax.Array, jax.Array]:
    def one(carry, _):
      knots, state = carry
      value, slope = jax.value_and_grad(loss)(knots)
      update, state = optimizer.update(slope, state)
      return (optax.apply_updates(knots, update), state), value

    (knots, _), losses = jax.lax.scan(one, (knots, optimizer.init(knots)), length=iterations)
    return knots, losses

  knots, losses = descend(jnp.array(GUESS, jnp.float32))
  place, height = found = np.array(jax.jit(throw)(knots))
  replayed = np.array(flight(*replay(mj_model, lines(knots, NSTEP))))
  print(f"loss {losses[0]:.3f} -> {losses[-1]:.5f}")
  print(f"passes the wall at {height:.2f} m, lands at {place:.3f} m; the target is at {TARGET} m")
  print(f"in C MuJoCo it lands {1000 * (replayed[0] - place):+.3f} mm farther")
  return found, replayed


if __name__ == "__main__":
  main()
