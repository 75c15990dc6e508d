"""Finds a mass, a friction and a damping from a recording of a motion.

C MuJoCo records how a sled slides over the floor, pushed now and then by a known force, and how the
pendulum on it swings. From guesses of the sled's mass and friction and the pendulum's damping that
are 50 % off, the gradient of the error of the simulated motion leads back to the truth.
The mass also changes how far bodies sink into one another, which `mjx.set_const` accounts for.

  python examples/identify.py
"""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi import mjx

XML = """<mujoco>
  <option timestep="0.005" cone="elliptic" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="sled" pos="0 0 0.1">
      <joint name="along" type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1"/>
      <geom name="runner" type="sphere" size="0.1" mass="1.5" friction="0.4" priority="1"
        solref="0.1 1" solimp="0.5 0.9 0.05"/>
      <body pos="0 0 0.6">
        <joint name="pendulum" axis="0 1 0" damping="0.02"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.4" mass="0.2" contype="0"
          conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="along"/></actuator>
</mujoco>"""
# The floor is soft and the pushes are gentle, so that the sled does not chatter: its motion would
# be a jagged function of the parameters.
NSTEP, EVERY = 300, 10  # steps, and steps between two measurements
PUSH = 10.0 * (np.arange(NSTEP) % 160 < 80)[:, None]  # newtons, for 0.4 of every 0.8 seconds


def record(mj_model: mujoco.MjModel) -> np.ndarray:
  """The positions of the sled and the pendulum, by C MuJoCo."""
  d, path = mujoco.MjData(mj_model), []
  for push in PUSH:
    d.ctrl[:] = push
    mujoco.mj_step(mj_model, d)
    path.append(d.qpos[[0, 2]])
  return np.array(path)


def main(iterations: int = 6) -> np.ndarray:
  """Identifies the parameters.

  Args:
    iterations: of the Levenberg-Marquardt method.

  Returns:
    Mass, friction and damping over their true values.
  """
  mj_model = mujoco.MjModel.from_xml_string(XML)
  body, geom, dof = mj_model.body("sled").id, mj_model.geom("runner").id, 2
  truth = [mj_model.body_mass[body], mj_model.geom_friction[geom, 0], mj_model.dof_damping[dof]]
  truth, measured = np.array(truth, np.float32), jnp.array(record(mj_model)[::EVERY], jnp.float32)
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m)

  def error(logs: jax.Array) -> jax.Array:
    mass, friction, damping = jnp.exp(logs)
    guess = m.replace(
      body_mass=m.body_mass.at[body].set(mass),
      geom_friction=m.geom_friction.at[geom, 0].set(friction),
      dof_damping=m.dof_damping.at[dof].set(damping),
    )
    path, _ = mjx.rollout(mjx.set_const(guess), d, jnp.array(PUSH, jnp.float32))
    return (path.qpos[::EVERY, jnp.array([0, 2])] - measured).ravel()

  @jax.jit
  def linearize(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
    return error(logs), jax.jacrev(error)(logs)

  logs, damping = np.log(truth * [1.5, 0.5, 1.5]).astype(np.float32), 1e-2
  residual, jacobian = linearize(logs)
  for _ in range(iterations):
    normal = jacobian.T @ jacobian
    normal += damping * np.diag(np.diag(normal))
    trial = logs - np.linalg.solve(normal, jacobian.T @ residual)
    after = linearize(trial)
    better = np.sum(after[0] ** 2) < np.sum(residual**2)
    damping *= 0.1 if better else 10
    if better:
      logs, (residual, jacobian) = trial, after
  ratio = np.exp(logs) / truth
  print(f"mass, friction and damping over their true values: {ratio}")
  return ratio


if __name__ == "__main__":
  main()
