"""What every part of the backward pass may ask for while it is recorded."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import parameter, stored
from mjx_warp_ffi.mjx.warp.adjoint.tape.needs import Needs, Scheme, Scope
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape


def of_kinds(mjm: mujoco.MjModel, kinds: Iterable[int]) -> np.ndarray:
  """Ids of the sensors of these kinds."""
  return np.flatnonzero(np.isin(mjm.sensor_type, list(kinds)))


@dataclasses.dataclass(frozen=True)
class Recording:
  """What is differentiated, by what, and the tape on which the parts put their kernels.

  It is the same for all parts. What one part makes and another reads is a result of the one's
  functions and an argument of the other's.

  Attributes:
    mjm: the model, for its topology.
    m: the MuJoCo Warp model; its fields may have one row or one a world.
    d: the workspace.
    tape: where kernels are recorded.
    scope: where in a time step the outputs lie.
    needs: what has to be computed.
    scheme: what the integrator takes implicitly.
    wrt: names of model fields that get a gradient.
    inputs: arrays by the name of the input, which have gradients.
    cotangents: arrays by the name of the output, (nworld, ...).
  """

  mjm: mujoco.MjModel
  m: mjw.Model
  d: mjw.Data
  tape: Tape
  scope: Scope
  needs: Needs
  scheme: Scheme
  wrt: tuple[str, ...]
  inputs: Mapping[str, wp.array]
  cotangents: Mapping[str, wp.array]

  @property
  def integrates(self) -> bool:
    """Whether the outputs are those of a whole step, and not of one evaluation."""
    return self.scope is Scope.STEP

  @functools.cached_property
  def gradients(self) -> dict[str, wp.array]:
    """The gradients of the inputs, once the tape is finished; they are launches' to write."""
    if self.tape.flat is None:
      raise RuntimeError("the tape is not finished: gradients have no memory yet")
    return {n: wp.zeros_like(x) if x.grad is None else x.grad for n, x in self.inputs.items()}

  def leaf(self, name: str) -> wp.array:
    """A model field: the twin that has a gradient if it was asked for."""
    return self.inputs[name] if name in self.wrt else parameter(self.m, name)

  def leaves(self, *names: str) -> dict[str, wp.array]:
    """Model fields by their names without "opt."."""
    return {stored(name).removeprefix("opt."): self.leaf(name) for name in names}

  def fixed(self, *names: str) -> dict[str, wp.array]:
    """Model fields that have no gradient, by their names."""
    return {name: getattr(self.m, name) for name in names}

  def constant(self, x: np.ndarray) -> wp.array:
    """An array of the topology, int or float."""
    dtype = float if x.dtype.kind == "f" else int
    return wp.array(x, dtype=dtype, device=self.tape.device)

  def cotangent(self, name: str) -> wp.array | None:
    """The cotangent of an output, None if it has none."""
    return self.cotangents.get(name)

  def reports(self, names: tuple[str, ...]) -> list[tuple[wp.array, wp.array | None]]:
    """These fields of the workspace with their cotangents, or nothing if none has one."""
    pairs = [(getattr(self.d, name), self.cotangent(name)) for name in names]
    return pairs if any(cotangent is not None for _, cotangent in pairs) else []

  def sensors(self, kinds: Iterable[int]) -> np.ndarray:
    """Ids of the sensors of these kinds, none if sensordata has no cotangent."""
    return of_kinds(self.mjm, kinds) if "sensordata" in self.cotangents else np.zeros(0, int)
