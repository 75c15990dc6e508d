"""Runs MuJoCo Playground's environments in a process of its own, with or without the drop-in.

In `tests/`, `python -m support.playground_runs ours|stock FOLDER NAME...` prints a JSON object a
line: the rewards and observations of a short rollout by environment, or the reason why it was left
out. `NAME:pixels` is the environment that observes images.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any, TextIO

import warp as wp

WORLDS, STEPS = 2, 4


def results() -> TextIO:
  """The standard output for results alone: what kernels print, amid a line even, goes to stderr."""
  out = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)
  return out


def rollout(name: str) -> dict[str, Any]:
  """Resets and steps an environment as its training wrapper does, auto-reset included."""
  import jax
  import numpy as np
  from mujoco_playground import registry, wrapper

  name, _, pixels = name.partition(":")
  config = registry.get_default_config(name)
  small: dict[str, Any] = {"impl": "warp"} if "impl" in config else {}
  if pixels:
    small |= {"vision": True, "vision_config.nworld": WORLDS}
  if config.get("naconmax"):
    small["naconmax"] = 400 * WORLDS  # the defaults are for thousands of worlds
  env = registry.load(name, config_overrides=small)
  env = wrapper.wrap_for_brax_training(env, episode_length=3)  # ends once in the rollout
  state = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), WORLDS))
  step, rewards, done = jax.jit(env.step), [], 0.0
  for key in jax.random.split(jax.random.PRNGKey(1), STEPS):
    action = jax.random.uniform(key, (WORLDS, env.action_size), minval=-0.5, maxval=0.5)
    state = step(state, action)
    rewards.append(np.asarray(state.reward, float).tolist())
    done += float(np.sum(state.done))
  observation = np.concatenate([np.ravel(x) for x in jax.tree.leaves(state.obs)]).astype(float)
  return {
    "rewards": rewards,
    "done": done,
    "observation": observation.tolist(),
    "impl": small.get("impl"),
  }


def shim_clip() -> None:
  """A shim: Playground 0.2.0 calls `jnp.clip` by argument names that JAX has dropped since."""
  import jax.numpy as jnp

  clip = jnp.clip

  def with_old_names(arr, /, min=None, max=None, *, a_min=None, a_max=None):
    return clip(arr, min if a_min is None else a_min, max if a_max is None else a_max)

  setattr(jnp, "clip", with_old_names)  # noqa: B010


def main() -> None:
  """Runs the environments of the command line."""
  kind, folder, *names = sys.argv[1:]
  out = results()
  wp.config.log_level = wp.LOG_ERROR
  if kind == "ours":
    import mjx_warp_ffi

    mjx_warp_ffi.install()
  shim_clip()
  from etils import epath
  from mujoco_playground._src import mjx_env

  mjx_env.MENAGERIE_PATH = epath.Path(pathlib.Path(folder))
  for name in names:
    try:
      result = rollout(name)
    except ValueError as error:
      if "Error opening file" not in str(error):
        raise
      result = {"skipped": str(error).splitlines()[0]}
    out.write(json.dumps({"name": name, **result}) + "\n")
    out.flush()


if __name__ == "__main__":
  main()
