"""Value and gradient of a rollout beside the rollout alone, finite differences and mujoco-mjx.

All in one process, by medians of alternating runs; a ratio is to the first contender, the rollout
alone. The times are a step of all worlds, forwards and backwards.

Examples:
  python benchmarks/gradient.py                              # small, for a CPU
  python benchmarks/gradient.py --models humanoid --worlds 1024,4096 --steps 50
"""

import sys

import tables

from mjx_warp_ffi.cli import contenders

DEFAULTS = {
  "models": "cartpole,humanoid",
  "worlds": "1,16",
  "steps": 20,
  "contenders": "rollout alone,gradient by scan,gradient by mjx.rollout,gradient by checkpoints",
}

if __name__ == "__main__":
  sys.exit(tables.run_table("gradient", __doc__, known=contenders.GRADIENTS, defaults=DEFAULTS))
