"""Gradients through contacts of every pair of geoms, and by parameters, are as exact as in docs."""

import sys

import numpy as np
import pytest

from support.helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import contact_accuracy
import parameter_accuracy
from contact_scenes import PAIRS


def test_curved_geoms_that_epa_only_approximates_have_the_gradient_of_the_exact_contact():
  """Without the exact contact in the solve as well, errors come to a hundredth."""
  pairs = [("ellipsoid", "box"), ("ellipsoid", "cylinder")]
  found = contact_accuracy.errors("pyramidal", 3, pairs=pairs, count=6)
  for pair in pairs:
    assert len(found[pair]) >= 4
    assert np.max(found[pair]) < 1e-3, pair  # float32: medians are 1e-5


@pytest.mark.parametrize(
  ("pair", "seed", "count"),
  [
    (("cylinder", "box"), 1, 6),  # the exact contact is so far off that rows change sides
    (("capsule", "mesh"), 0, 9),  # the side of the capsule touches a vertex,
    (("capsule", "mesh"), 1, 48),  # and its end an edge
  ],
)
def test_rare_contacts_have_the_gradient_of_differences(pair, seed, count):
  errors = contact_accuracy.errors("pyramidal", 3, pairs=[pair], count=count, seed=seed)[pair]
  assert len(errors) > 0.6 * count
  assert np.max(errors) < 3e-3  # float32; medians are 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("condim", [1, 3, 4, 6])
@pytest.mark.parametrize("cone", contact_accuracy.CONES)
def test_every_pair_of_geoms_has_the_gradient_of_differences(cone, condim):
  found = contact_accuracy.errors(cone, condim, pairs=PAIRS, count=10)
  for pair, errors in found.items():
    assert len(errors) >= 3, pair
    assert np.median(errors) < 1e-3, pair
  everything = np.concatenate(list(found.values()))
  assert len(everything) > 0.8 * 10 * len(PAIRS)
  assert np.percentile(everything, 95) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("group", parameter_accuracy.GROUPS)
def test_every_parameter_has_the_gradient_of_differences(group):
  for name, errors in parameter_accuracy.errors(group, 10).items():
    assert len(errors) >= 5, name
    assert np.median(errors) < 1e-3, name
    assert np.percentile(errors, 95) < 1e-2, name
