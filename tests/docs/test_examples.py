"""The examples do what they say."""

import importlib.util

import jax
import numpy as np
import pytest

from support.helpers import ROOT

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
def test_a_motion_of_an_example_ends_in_c_mujoco_as_it_was_found(name, capsys):
  *_, found, replayed = _example(name).main(iterations=2)
  # metres; float32 against float64 over 130 to 240 steps in contact, measured: 1e-6 to 4e-6
  np.testing.assert_allclose(found, replayed, rtol=0, atol=1e-4)
  assert "in C MuJoCo" in capsys.readouterr().out


def test_mass_friction_and_damping_are_identified_within_a_percent():
  # the start is 50 % off; measured: 1e-6
  np.testing.assert_allclose(_example("identify").main(), 1, atol=0.01)


@pytest.mark.slow
def test_the_ball_is_thrown_over_the_wall_onto_the_target():
  found, replayed = _example("throw").main()
  np.testing.assert_allclose(found, replayed, rtol=0, atol=1e-4)  # as above; measured: 2e-6
  place, height = replayed
  assert abs(place - 1.6) < 0.02
  assert height > 0.95


@pytest.mark.slow
def test_the_hopper_jumps():
  rise, replayed = _example("hop").main()
  assert replayed > 0.15
  assert abs(rise - replayed) < 1e-4  # as above; measured: 2e-6


@pytest.mark.slow
def test_the_quadruped_makes_its_first_steps():
  before, after, replayed = _example("walk").main()
  assert before < 0.05
  assert replayed > 0.5
  assert abs(after - replayed) < 1e-4  # as above; measured: 1e-6
