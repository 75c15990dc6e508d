"""Which sensors of a model are of some kinds."""

from collections.abc import Iterable

import mujoco
import numpy as np


def of_kinds(mjm: mujoco.MjModel, kinds: Iterable[int]) -> np.ndarray:
  """Ids of the sensors of these kinds."""
  return np.flatnonzero(np.isin(mjm.sensor_type, list(kinds)))


def with_cotangent(step, kinds: Iterable[int]) -> np.ndarray:
  """Ids of the sensors of these kinds of a `StageAdjoint`, none if sensordata has no cotangent."""
  return of_kinds(step.mjm, kinds) if "sensordata" in step.cotangents else np.zeros(0, int)
