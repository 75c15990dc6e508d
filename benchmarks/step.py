"""The step of this package beside MuJoCo Warp's captured step, mujoco-mjx and C MuJoCo.

All in one process, by medians of alternating runs; a ratio is to the first contender, MuJoCo
Warp's own step captured once and replayed.

Examples:
  python benchmarks/step.py                                  # small, for a CPU
  python benchmarks/step.py --models humanoid --worlds 1,1024,8192 --steps 200
"""

import sys

import tables

from mjx_warp_ffi.cli import contenders

DEFAULTS = {
  "models": "double_pendulum,humanoid,hand,pile",
  "worlds": "1,64",
  "steps": 100,
  "contenders": "mjwarp captured,mjx_warp_ffi,mujoco-mjx warp,C MuJoCo",
}

if __name__ == "__main__":
  sys.exit(tables.run_table("step", __doc__, known=contenders.CONTENDERS, defaults=DEFAULTS))
