"""Short PPO runs of Brax on a MuJoCo Playground environment, with or without the drop-in.

In `tests/`, `python -m support.playground_training ours|stock SEED...` prints a JSON object a seed:
the steps and the rewards of the evaluations, the first of them before training.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import warp as wp

from support.playground_runs import results


def shim_device_put_replicated() -> None:
  """A shim: Brax 0.14.2 calls a function that JAX has dropped since."""
  import jax
  import jax.numpy as jnp

  if hasattr(jax, "device_put_replicated"):
    return

  def device_put_replicated(tree, devices):
    return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * len(devices)), tree)

  setattr(jax, "device_put_replicated", device_put_replicated)  # noqa: B010


def randomize(model: Any, rng: Any) -> tuple[Any, Any]:
  """Another gravity for each world."""
  import jax

  def gravity(key):
    return model.opt.gravity * jax.random.uniform(key, minval=0.9, maxval=1.1)

  axes = jax.tree.map(lambda x: None, model).tree_replace({"opt.gravity": 0})
  return model.tree_replace({"opt.gravity": jax.vmap(gravity)(rng)}), axes


def train(seed: int) -> dict[str, Any]:
  """Balances a pole on a cart."""
  from brax.training.agents.ppo import networks
  from brax.training.agents.ppo import train as ppo
  from mujoco_playground import registry, wrapper

  evaluations = []
  ppo.train(
    environment=registry.load("CartpoleBalance", config_overrides={"impl": "warp"}),
    wrap_env_fn=wrapper.wrap_for_brax_training,
    randomization_fn=randomize,
    network_factory=functools.partial(
      networks.make_ppo_networks, policy_hidden_layer_sizes=(32, 32)
    ),
    progress_fn=lambda steps, metrics: evaluations.append(
      (int(steps), float(metrics["eval/episode_reward"]))
    ),
    num_timesteps=60_000,
    num_evals=3,
    episode_length=100,
    num_envs=32,
    num_eval_envs=32,
    batch_size=32,
    num_minibatches=4,
    unroll_length=30,
    num_updates_per_batch=8,
    learning_rate=1e-3,
    entropy_cost=1e-2,
    discounting=0.995,
    reward_scaling=10.0,
    normalize_observations=True,
    seed=seed,
  )
  steps, rewards = zip(*evaluations, strict=True)
  return {"steps": steps, "rewards": rewards}


def main() -> None:
  """Trains with the seeds of the command line."""
  kind, *seeds = sys.argv[1:]
  out = results()
  wp.config.log_level = wp.LOG_ERROR
  if kind == "ours":
    import mjx_warp_ffi

    mjx_warp_ffi.install()
  shim_device_put_replicated()
  for seed in map(int, seeds):
    out.write(json.dumps({"seed": seed, **train(seed)}) + "\n")
    out.flush()


if __name__ == "__main__":
  main()
