"""Makes a hopper jump, by gradient through the contact of its foot.

The torques of hip, knee and ankle are straight lines between knots. The height of a jump is the one
that the centre of mass would reach in free flight, at best, from where it is. Jumping has many
local optima: several random guesses are improved side by side. At the end C MuJoCo replays the best
jump in float64.

  python examples/hop.py
"""

import pathlib

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
from mujoco import rollout

from mjx_warp_ffi import mjx

MODEL = pathlib.Path(__file__).resolve().parents[1] / "models" / "hopper.xml"
NSTEP, NKNOT, NGUESS, GRAVITY = 140, 8, 12, 9.81


def replay(mj_model: mujoco.MjModel, d: mjx.Data, ctrl: jax.Array) -> np.ndarray:
  """The height of the centre of mass under these controls, by C MuJoCo in float64."""
  start = np.concatenate([[0], d.qpos, d.qvel])
  _, sensors = rollout.rollout(mj_model, mujoco.MjData(mj_model), start, np.array(ctrl))
  return sensors[0, :, mj_model.sensor("com").adr[0] + 2]


def main(iterations: int = 100) -> tuple[float, float]:
  """Optimises the jump.

  Args:
    iterations: of Adam.

  Returns:
    How far the centre of mass rises above where it is when the hopper stands, in metres, and how
    far it does in C MuJoCo.
  """
  mj_model = mujoco.MjModel.from_xml_path(str(MODEL))
  m = mjx.put_model(mj_model)
  d = mjx.reset(m, mjx.make_data(m), keyframe="crouch")
  standing = jax.jit(mjx.forward)(m, mjx.reset(m, d, keyframe="stand")).subtree_com[0, 2]
  at = np.linspace(0, NKNOT - 1, NSTEP)
  weight = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(NKNOT))).astype(np.float32)

  def torques(knots: jax.Array) -> jax.Array:
    return weight @ jnp.tanh(knots)

  def apex(com: jax.Array) -> jax.Array:
    up = jnp.maximum(jnp.diff(com) / m.opt.timestep, 0)
    return jnp.max(com[1:] + up**2 / (2 * GRAVITY)) - standing

  def jump(knots: jax.Array) -> tuple[jax.Array, jax.Array]:
    path, _ = mjx.rollout(m, d, torques(knots), outputs=("subtree_com",))
    rise = apex(path.subtree_com[:, 0, 2])
    return -rise + 0.05 * jnp.mean(path.qpos[:, 2] ** 2) + 1e-3 * jnp.mean(knots**2), rise

  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))

  @jax.jit
  @jax.vmap
  def improve(knots, state):
    (_, rise), slope = jax.value_and_grad(jump, has_aux=True)(knots)
    update, state = optimizer.update(slope, state)
    return optax.apply_updates(knots, update), state, rise

  knots = jax.random.normal(jax.random.key(0), (NGUESS, NKNOT, m.nu))
  state, rises = jax.vmap(optimizer.init)(knots), []
  for _ in range(iterations):
    tried = knots
    knots, state, rise = improve(tried, state)
    rises.append(np.asarray(rise))

  best, rise = int(np.argmax(rises[-1])), float(np.max(rises[-1]))
  replayed = float(apex(jnp.float32(replay(mj_model, d, torques(tried[best])))))
  print(f"the centre of mass rises by {np.max(rises[0]):.3f} -> {rise:.3f} m above standing")
  print(f"in C MuJoCo by {1000 * (replayed - rise):+.3f} mm more")
  return rise, replayed


if __name__ == "__main__":
  main()
