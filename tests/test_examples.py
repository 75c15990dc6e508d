"""The examples do what they say."""

import importlib.util

import jax
import numpy as np
import pytest
from helpers import ROOT

EXAMPLES = ("identify", "throw", "hop", "walk")


@pytest.fixture(autouse=True)
def ordinary_promotion():
  """As for a user; optax does not bear the strictness of these tests."""
  with jax.numpy_dtype_promotion("standard"):
    yield


def _example(name):
  spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_every_example_is_tested():
  assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES[1:])
def test_an_example_runs_at_a_small_size(name, capsys):
  results = _example(name).main(iterations=2)
  assert np.all(np.isfinite(results))
  assert capsys.readouterr().out


def test_mass_friction_and_damping_are_identified_within_a_percent():
  # the start is 50 % off; measured: 1e-6
  np.testing.assert_allclose(_example("identify").main(), 1, atol=0.01)


@pytest.mark.slow
def test_the_ball_is_thrown_over_the_wall_onto_the_target():
  place, height = _example("throw").main()
  assert abs(place - 1.6) < 0.02
  assert height > 0.95


@pytest.mark.slow
def test_the_hopper_jumps():
  assert _example("hop").main() > 0.15


@pytest.mark.slow
def test_the_quadruped_makes_its_first_steps():
  before, after = _example("walk").main()
  assert before < 0.05
  assert after > 0.5
