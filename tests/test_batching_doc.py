"""The guide to batches runs, and its loop is short."""

import os
import re
import subprocess
import sys

import helpers


def test_the_guide_to_batches_runs():
  text = (helpers.ROOT / "docs" / "batching.md").read_text(encoding="utf-8")
  blocks = re.findall(r"```python\n(.*?)```", text, re.S)
  loop = [line for line in blocks[0].splitlines() if line.strip()]
  assert len(loop) < 40, f"the loop has {len(loop)} lines"
  code = "\n".join(blocks)
  code += "\nassert distance.shape == done.shape == (500, N)"
  code += "\nassert done.any() and jnp.isfinite(worlds.qpos).all()"
  code += "\nassert len(set(model.body_mass[:, 1].tolist())) == N"
  code += "\nassert peaks['nconmax'] > 0 and sizes['njmax'] > 0\n"
  command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code]
  done = subprocess.run(command, cwd=helpers.ROOT, env=os.environ, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-3000:]
