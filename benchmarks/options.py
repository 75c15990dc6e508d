"""What the step's options and resets cost, beside the bare step.

All in one process, by medians of alternating runs; a ratio is to the bare step. `deterministic` is
MuJoCo Warp's option for a fixed order of contacts, rows and sums; `autoreset` resets worlds that go
bad inside the step; the reset takes the first of each hundred worlds, every step.

Examples:
  python benchmarks/options.py                                       # small, for a CPU
  python benchmarks/options.py --models humanoid --worlds 8192 --steps 100
"""

import sys

import jax
import jax.numpy as jnp
import mujoco_warp as mjw
import tables

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import contenders
from mjx_warp_ffi.cli.contenders import Prepared, Workload

DEFAULTS = {
  "models": "hopper,humanoid",
  "worlds": "100",
  "steps": 20,
  "contenders": "step,autoreset,deterministic,step and reset of 1 %,reset of 1 %",
}


def deterministic(work: Workload) -> Prepared:
  """The step with `opt.deterministic` on."""
  m, d = contenders.put(work)
  m = m.tree_replace({"opt.deterministic": int(mjw.DeterminismType.ALL)})
  return contenders.prepare_scan(mjx.step, m, d=d, work=work)


def resetting(work: Workload, *, steps: bool) -> Prepared:
  """A reset of the first of each hundred worlds, after a step or alone."""
  m, d = contenders.put(work)
  mask = jnp.arange(work.worlds) % 100 == 0

  @jax.jit
  def run(args, mask):
    m, d = args

    def one(d, _):
      if steps:
        d = jax.vmap(mjx.step, (None, 0))(m, d)
      return mjx.reset(m, d, mask), None

    return jax.lax.scan(one, d, length=work.steps)[0]

  return contenders.prepare_run(run, (m, d), mask)


KNOWN = {
  "step": contenders.ours,
  "autoreset": lambda work: contenders.ours(work, autoreset=True),
  "deterministic": deterministic,
  "step and reset of 1 %": lambda work: resetting(work, steps=True),
  "reset of 1 %": lambda work: resetting(work, steps=False),
}

if __name__ == "__main__":
  sys.exit(tables.run_table("options", __doc__, known=KNOWN, defaults=DEFAULTS))
