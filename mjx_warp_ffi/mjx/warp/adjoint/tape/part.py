"""What a part of the physics says of itself: what it can differentiate, and what it cannot."""

import dataclasses
from collections.abc import Callable, Iterator

import mujoco
import mujoco_warp as mjw


def nothing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The refusals of a part that has a rule for all of its features."""
  yield from ()


@dataclasses.dataclass(frozen=True)
class Part:
  """The rules of one part: a force, a constraint, a family of outputs or sensors.

  The backward pass has a rule for what its parts have together: `rules/parts.py` lists them.

  Attributes:
    parameters: model fields that can have a gradient, by the names of MuJoCo.
    reports: fields of Data, besides the state, that can have a cotangent.
    sensors: types of sensors that can have one, numbers of `mujoco.mjtSensor`.
    missing: gives the words of a refusal for each feature of a model that has no rule, where the
      outputs depend on forces.
    never: the same for features that are refused whatever the outputs.
  """

  parameters: tuple[str, ...] = ()
  reports: tuple[str, ...] = ()
  sensors: tuple[int, ...] = ()
  missing: Callable[[mujoco.MjModel, mjw.Model], Iterator[str]] = nothing
  never: Callable[[mujoco.MjModel, mjw.Model], Iterator[str]] = nothing
