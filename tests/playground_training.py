"""A short PPO run of Brax on a MuJoCo Playground environment with the drop-in.

Prints a JSON object: the steps and the rewards of the evaluations.
"""

from __future__ import annotations

import json
import sys

import warp as wp


def main() -> None:
  """Trains for a few thousand steps, the gravity differing between worlds."""
  wp.config.log_level = wp.LOG_ERROR
  import mjx_warp_ffi

  mjx_warp_ffi.install()
  import jax
  import jax.numpy as jnp
  from brax.training.agents.ppo import train as ppo
  from mujoco_playground import registry, wrapper

  if not hasattr(jax, "device_put_replicated"):
    # A shim: Brax 0.14.2 calls a function that JAX has dropped since.
    def device_put_replicated(tree, devices):
      return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * len(devices)), tree)

    setattr(jax, "device_put_replicated", device_put_replicated)  # noqa: B010

  def randomize(model, rng):
    def gravity(key):
      return model.opt.gravity * jax.random.uniform(key, minval=0.9, maxval=1.1)

    axes = jax.tree.map(lambda x: None, model).tree_replace({"opt.gravity": 0})
    return model.tree_replace({"opt.gravity": jax.vmap(gravity)(rng)}), axes

  evaluations = []
  ppo.train(
    environment=registry.load("CartpoleBalance"),
    wrap_env_fn=wrapper.wrap_for_brax_training,
    randomization_fn=randomize,
    progress_fn=lambda steps, metrics: evaluations.append(
      (int(steps), float(metrics["eval/episode_reward"]))
    ),
    num_timesteps=4000,
    num_evals=2,
    episode_length=50,
    num_envs=16,
    num_eval_envs=8,
    batch_size=16,
    num_minibatches=2,
    unroll_length=5,
    num_updates_per_batch=2,
    seed=0,
  )
  steps, rewards = zip(*evaluations, strict=True)
  sys.stdout.write(json.dumps({"steps": steps[-1], "rewards": rewards}) + "\n")


if __name__ == "__main__":
  main()
