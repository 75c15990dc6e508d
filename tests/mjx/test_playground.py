"""MuJoCo Playground and Brax run on the drop-in, unmodified, as on mujoco-mjx with `impl='warp'`.

They are no dependencies: `pip install playground brax` brings what these tests need.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from support.helpers import ROOT
from support.playground_models import stand_in_menagerie

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    not all(importlib.util.find_spec(n) for n in ("mujoco_playground", "brax")),
    reason="MuJoCo Playground and Brax are not installed",
  ),
]

# Their robots are in files of Menagerie alone, without which there is nothing to stand in for.
WITHOUT_MODELS = {
  "BarkourJoystick",
  *("PandaPickCube", "PandaPickCubeOrientation", "PandaPickCubeCartesian", "PandaOpenCabinet"),
}

SUITES = ("dm_control_suite", "locomotion", "manipulation")

NAMES = """
import json, sys
import mujoco_playground
from mujoco_playground import dm_control_suite, locomotion, manipulation
suites = (dm_control_suite, locomotion, manipulation)
sys.stdout.write(json.dumps([mujoco_playground.__file__, *(list(s.ALL_ENVS) for s in suites)]))
"""


def run(*command: str) -> list[str]:
  """The lines of JSON that a program prints in a process of its own."""
  arguments = [sys.executable, "-W", "ignore", *command]
  done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT / "tests")
  assert done.returncode == 0, done.stderr[-4000:]
  return [line for line in done.stdout.splitlines() if line[:1] in "{["]


@pytest.fixture(scope="module")
def environments() -> dict[str, Any]:
  (line,) = run("-c", NAMES)
  package, *names = json.loads(line)
  return {"package": pathlib.Path(package).parent, **dict(zip(SUITES, names, strict=True))}


@pytest.fixture(scope="module")
def menagerie(environments, tmp_path_factory) -> str:
  root = tmp_path_factory.mktemp("menagerie")
  stand_in_menagerie(environments["package"], root)
  return str(root)


def rollouts(kind: str, menagerie: str, names: list[str]) -> dict[str, Any]:
  lines = map(json.loads, run("-m", "support.playground_runs", kind, menagerie, *names))
  return {line["name"]: line for line in lines}


@pytest.mark.parametrize("suite", SUITES)
def test_environments_give_the_rewards_that_mjx_gives(suite, environments, menagerie):
  names = environments[suite]
  ours, theirs = (rollouts(kind, menagerie, names) for kind in ("ours", "stock"))
  assert set(ours) == set(theirs) == set(names)
  skipped = {name for name in names if "skipped" in ours[name]}
  assert skipped == WITHOUT_MODELS & set(names)
  for name in set(names) - skipped:
    assert ours[name]["done"] > 0, name  # the rollout went through an auto-reset
    for what in ("rewards", "observation"):
      got, expected = np.array(ours[name][what]), np.array(theirs[name][what])
      assert np.isfinite(got).all(), name
      if ours[name]["impl"] is None:
        continue  # it lets mujoco-mjx choose, which takes its JAX implementation on the CPU
      # another release of MuJoCo Warp, and contacts in another order, in float32
      scale = max(1.0, np.abs(expected).max())
      np.testing.assert_allclose(got, expected, rtol=0, atol=0.02 * scale, err_msg=name)


def test_an_environment_observes_images(menagerie):
  name = "CartpoleBalance:pixels"
  pixels = np.array(rollouts("ours", menagerie, [name])[name]["observation"])
  assert pixels.size == 2 * 64 * 64 * 3  # two worlds, stacked frames
  assert pixels.min() < -0.1 and pixels.max() > 0.1


def test_brax_trains_randomized_worlds_to_the_rewards_that_mjx_gives():
  seeds = ["0", "1"]
  runs = {k: run("-m", "support.playground_training", k, *seeds) for k in ("ours", "stock")}
  ours, theirs = (np.array([json.loads(line)["rewards"] for line in v]) for v in runs.values())
  assert ours.shape == (len(seeds), 3)  # before, halfway, after
  assert (np.ptp(ours, axis=1) > 1).all()  # the policy changes
  # Of at most 100. Training amplifies rounding, which another machine may do otherwise; the rewards
  # of two seeds lie 3 apart before training, and 50 after it.
  np.testing.assert_allclose(ours[:, 0], theirs[:, 0], rtol=0, atol=0.1)
  np.testing.assert_allclose(ours, theirs, rtol=0, atol=5)
