"""One call from JAX that runs Warp code on a workspace, forwards or backwards.

Whatever runs, a call makes the same moves: it looks up the leaves of the Model, folds all batch
axes into one axis of worlds, plans a workspace for so many worlds, packs the leaves that all worlds
share into one argument, and calls a program that copies its arguments into the workspace, runs, and
copies the results out. `StagedCall` makes these moves; who calls says what is copied and what runs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import warp as wp

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.types import Model
from mjx_warp_ffi.mjx.warp.staging import batching
from mjx_warp_ffi.mjx.warp.staging.packing import Packing
from mjx_warp_ffi.mjx.warp.staging.plan import Plan, digest
from mjx_warp_ffi.mjx.warp.staging.workspace import Workspace
from mjx_warp_ffi.third_party.warp.launchers.staged import Early, GraphMode
from mjx_warp_ffi.third_party.warp.program import Program, jax_program


class Built(NamedTuple):
  """What a call runs on a workspace, and the arrays that it takes beside those of the workspace.

  Attributes:
    further: arrays that the further arguments are copied to, in their order.
    outputs: arrays that the results are copied from.
    body: launches the work that reads the arguments and writes the outputs; can be captured.
  """

  further: Sequence[wp.array]
  outputs: Sequence[wp.array]
  body: Callable[[], None]


def _unchanged(x: jax.Array) -> jax.Array:
  return x


@dataclasses.dataclass(frozen=True)
class StagedCall:
  """A call of one function for one model, as it is known when JAX traces it.

  Its arguments are the leaves, the parameters, the inputs and further arrays, in this order.

  Attributes:
    name: name of the FFI target.
    leaves: names of the leaves of Model that all worlds may share.
    inputs: names of the fields of Data that are copied in.
    results: shapes and dtypes of the results of one world.
    build: prepares the work on a workspace, whose device is current.
    content: what `build` depends on, besides the plan of the workspace; it identifies the program.
    parameters: names of the leaves of Model that have a row for each world in any case.
    in_place: index of the result by the name of the input whose buffer it may take.
    early: indices of the results that the workspace may hand out before the work ends.
    rehearsal: whether the work may run once without launching kernels, to find out which it needs.
    captured: whether a graph is captured and replayed; otherwise the work runs in every call.
  """

  name: str
  leaves: tuple[str, ...]
  inputs: tuple[str, ...]
  results: tuple[jax.ShapeDtypeStruct, ...]
  build: Callable[[Workspace], Built]
  content: tuple[Any, ...]
  parameters: tuple[str, ...] = ()
  in_place: Mapping[str, int] = dataclasses.field(default_factory=dict)
  early: frozenset[int] = frozenset()
  rehearsal: bool = True
  captured: bool = True

  def __call__(
    self,
    m: Model,
    arrays: Mapping[str, jax.Array],
    *,
    further: Sequence[jax.Array] = (),
    plan: Callable[[int, frozenset[str]], Plan],
    through: Callable[[jax.Array], jax.Array] = _unchanged,
  ) -> batching.Arrays:
    """The results of one world, which `vmap` makes one call for all worlds.

    Args:
      m: the model.
      arrays: the fields of Data by name.
      further: the further arguments.
      plan: makes the plan of the workspace, from the number of worlds and the names of the leaves
        that have a row for each world.
      through: a function that every argument is passed through.
    """
    count = len(self.leaves)
    args = [fields.lookup(m, n) for n in self.leaves]
    own = (*(fields.lookup(m, n) for n in self.parameters), *(arrays[n] for n in self.inputs))
    args += [x[None] for x in (*own, *further)]

    def over_worlds(rows: frozenset[int], arrays: batching.Arrays) -> batching.Arrays:
      batched = frozenset(self.leaves[i] for i in rows).union(self.parameters)
      return self.launch(plan(arrays[count].shape[0], batched), arrays)

    return tuple(x[0] for x in batching.batched(over_worlds, count)(*map(through, args)))

  def launch(self, plan: Plan, arrays: batching.Arrays) -> batching.Arrays:
    """One FFI call for all worlds; all arrays but the shared leaves have an axis of worlds."""
    packing = Packing(self.leaves, plan.batched)
    first = len(packing) + len(self.parameters)
    in_place = {first + i: self.in_place.get(n) for i, n in enumerate(self.inputs)}
    program = jax_program(
      self.name,
      functools.partial(self._program, plan, packing),
      key=digest(self.content, plan),
      result_types=[jax.ShapeDtypeStruct((plan.nworld, *r.shape), r.dtype) for r in self.results],
      input_output_aliases={i: result for i, result in in_place.items() if result is not None},
      graph_mode=GraphMode.WARP_STAGED if self.captured else GraphMode.NONE,
    )
    leaves, others = arrays[: len(self.leaves)], arrays[len(self.leaves) :]
    return tuple(program(*packing.arguments(leaves), *others))

  def _program(self, plan: Plan, packing: Packing, device: wp.Device) -> Program:
    """The copies and the work, on a new workspace."""
    early = Early(self.early)
    with wp.ScopedDevice(device):
      w = Workspace(plan, hand_out=early.hand_out)
      built = self.build(w)
    places = packing.places([w.leaf(n) for n in self.leaves])
    places += [w.leaf(n) for n in self.parameters]
    places += [w.field(n) for n in self.inputs]
    return Program(
      (*places, *built.further),
      tuple(built.outputs),
      built.body,
      early=early,
      rehearsal=self.rehearsal,
      keep=w,
    )
