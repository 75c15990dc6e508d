"""The tables of benchmarks/ run, at a small size, and keep their outcome."""

import importlib
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from mjx_warp_ffi.cli import common, contenders
from support.helpers import ROOT

SMALL = ["--models", "cartpole", "--worlds", "1,2", "--steps", "4", "--rounds", "1"]


def run(name, *arguments):
  command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments]
  # A GPU alone has no peer; a CPU is divided into two.
  alone = {"JAX_PLATFORMS": "cpu"} if name == "scaling" and len(jax.devices()) == 1 else {}
  environment = {**os.environ, **alone}
  return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
  ("name", "contenders"),
  [
    ("step", "mjwarp captured,mjx_warp_ffi"),
    ("gradient", "rollout alone,gradient by scan,gradient by scan (1 iteration)"),
    ("options", "step,autoreset,deterministic,step and reset of 1 %,reset of 1 %"),
    ("scaling", "1 device,2 devices"),
    ("step_parts", "captured,own buffers,own kernels,copies,scan"),
  ],
)
def test_a_table_is_printed_and_saved(tmp_path, name, contenders):
  done = run(name, *SMALL, "--contenders", contenders, "--out", str(tmp_path))
  assert done.returncode == 0, done.stderr
  rows = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))["rows"]
  assert [row["contender"] for row in rows] == 2 * contenders.split(",")
  assert all(row["microseconds"] > 0 for row in rows), rows
  assert "cartpole" in done.stdout
  assert (tmp_path / f"{name}.md").read_text(encoding="utf-8").count("| cartpole |") == len(rows)


def test_devices_compute_the_numbers_of_one_device_and_their_worlds_add_up(tmp_path):
  small = ["--models", "hopper", "--worlds", "3", "--steps", "2", "--rounds", "1"]
  done = run("scaling", *small, "--out", str(tmp_path))
  assert done.returncode == 0, done.stderr
  saved = json.loads((tmp_path / "scaling.json").read_text(encoding="utf-8"))
  assert [(row["worlds"], row["contender"]) for row in saved["rows"]] == [
    (3, "1 device"),
    (6, "2 devices"),
  ]
  (remark,) = saved["remarks"]
  assert remark.endswith(
    "of 6 worlds on 2 devices positions differ from those on one by at most 0."
  )
  assert remark in (tmp_path / "scaling.md").read_text(encoding="utf-8")


def test_every_part_of_a_step_ends_where_the_step_does(monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
  parts = importlib.import_module("step_parts")
  work = contenders.make_workload(common.load_model("hopper"), 3, steps=4)
  expected = contenders.ours(work).run().qpos
  for part in (parts.Staged.step, parts.Staged.run, parts.Staged.run_copied):
    staged = parts.Staged.of(work)
    for _ in range(2):
      staged.reset()
      for _ in range(work.steps):
        part(staged)
      np.testing.assert_array_equal(staged.workspace.d.qpos.numpy(), expected)


def test_an_unknown_contender_is_named():
  done = run("step", "--contenders", "gazebo")
  assert done.returncode == 2
  assert "no contender gazebo; there are: mjx_warp_ffi" in done.stderr.replace("\n", " ")
