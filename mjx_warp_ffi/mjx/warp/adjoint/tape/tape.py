"""A list of launches that can be run backwards.

Warp's own tape allocates, records on every call and routes gradients through the arrays of the
caller. Here the launches are recorded once; every array that takes part is a twin with a gradient
in one flat buffer, so that a single memset clears all gradients, inside a captured graph too.

What keeps Warp's reverse mode right (each is silently wrong otherwise):
* an element of an array is written once, by one thread, and never updated in place;
* what a run-time loop carries goes through such an array or is a plain sum used linearly;
* no `break`, `continue` or `while` in a kernel, no side effect in a `wp.func`;
* inputs still hold, when the adjoint runs, what they held in the forward run.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.staging.fork import SideStream

_Struct = TypeVar("_Struct")


def _words(array: wp.array) -> int:
  """The size of a dense array in floats."""
  return int(np.prod(array.shape)) * wp.types.type_size_in_bytes(array.dtype) // 4


def _dense_strides(array: wp.array) -> bool:
  """Whether the elements fill a block of memory, in any order of the axes."""
  size = wp.types.type_size_in_bytes(array.dtype)
  for stride, length in sorted(zip(array.strides, array.shape, strict=True)):
    if length > 1 and stride != size:
      return False
    size *= length
  return True


def alias(array: wp.array) -> wp.array:
  """The same memory as another array object, which may get a gradient of its own."""
  twin = wp.array(
    ptr=array.ptr,
    dtype=array.dtype,
    shape=array.shape,
    strides=array.strides,
    device=array.device,
  )
  twin._keep_alive = array  # a view made from a pointer does not own its memory
  return twin


def part_of(flat: wp.array, start: int, *, like: wp.array) -> wp.array:
  """The floats of a flat array from `start` on, as an array of the same kind as another one."""
  assert flat.ptr is not None
  return wp.array(
    ptr=flat.ptr + 4 * start,
    dtype=like.dtype,
    shape=like.shape,
    strides=like.strides,
    device=flat.device,
  )


@wp.func
def world_and_item(i: int, j: int, world_fastest: bool):
  """The world and the other number of a thread of a launch over `Tape.dim`."""
  world = wp.where(world_fastest, j, i)
  item = wp.where(world_fastest, i, j)
  return world, item


@dataclasses.dataclass
class _Launch:
  kernel: wp.Kernel
  dim: Any
  inputs: Sequence[Any]
  outputs: Sequence[Any]
  # An empty struct, and None for an array: the gradient goes where `.grad` of the array says.
  adj_inputs: Sequence[Any]
  seeds: Sequence[Any]  # adjoints of the outputs that are not those arrays' own gradients
  forward: bool

  def runs(self, adjoint: bool) -> bool:
    return adjoint or self.forward

  def run(self, adjoint: bool) -> None:
    if not adjoint:
      wp.launch(self.kernel, self.dim, inputs=self.inputs, outputs=self.outputs)
      return
    wp.launch(
      self.kernel,
      self.dim,
      inputs=self.inputs,
      outputs=self.outputs,
      adj_inputs=self.adj_inputs,
      adj_outputs=self.seeds,
      adjoint=True,
    )


@dataclasses.dataclass
class _Calls:
  forward: Callable[[], None] | None
  backward: Callable[[], None] | None

  def runs(self, adjoint: bool) -> bool:
    return (self.backward if adjoint else self.forward) is not None

  def run(self, adjoint: bool) -> None:
    call = self.backward if adjoint else self.forward
    if call is not None:
      call()


@dataclasses.dataclass
class _Step:
  work: _Launch | _Calls
  section: int
  beside: bool


class Tape:
  """Arrays with gradients, and launches that run forwards and backwards.

  Use: make arrays, twins and structs, record launches, `finish()` once; then `forward()`,
  `clear()`, seed the gradients of outputs, `backward()`, all of which a graph may capture.

  What has to run ahead of all that is recorded too, in two phases: `when_recomputed` what reads the
  forward pass that was evaluated once more, `before_sweep` what makes or reads the frozen
  velocities. The owner of the tape runs them, each in the order in which it was recorded.

  Args:
    nworld: number of worlds, the first axis of every array made here.
    device: where everything lives.
    world_fastest: stores the arrays made here with the world as the fastest axis (for a GPU).
  """

  def __init__(self, nworld: int, device: Any = None, *, world_fastest: bool = False):
    """See the class."""
    self.nworld = nworld
    self.device = wp.get_device(device)
    self.world_fastest = world_fastest
    self.one = wp.full(1, 1.0, dtype=float, device=self.device)
    self._none = wp.zeros(1, dtype=float, device=self.device)
    self._with_gradient: list[wp.array] = []
    self._structs: dict[int, tuple[Any, Any, dict[str, Any]]] = {}  # by id: itself, an empty one
    self._steps: list[_Step] = []
    self._section, self._beside = 0, False
    self._side = SideStream() if self.device.is_cuda else None
    self.flat: wp.array | None = None
    self._starts: dict[int, int] = {}  # in floats, by id of the array
    self._muted = False
    self._fill_cotangents: list[Callable[[], None]] = []
    self._when_recomputed: list[Callable[[], None]] = []
    self._before_sweep: list[Callable[[], None]] = []

  def dim(self, count: int) -> tuple[int, int]:
    """The dimensions of a launch over worlds and as many others, the fastest in memory last."""
    return (count, self.nworld) if self.world_fastest else (self.nworld, count)

  def array(self, *shape: int, dtype: Any = float, gradient: bool = True) -> wp.array:
    """A zero array of shape (nworld, *shape)."""
    if self.world_fastest and len(shape) == 1:
      out = wp.zeros((*shape, self.nworld), dtype=dtype, device=self.device).transpose()
    else:
      out = wp.zeros((self.nworld, *shape), dtype=dtype, device=self.device)
    return self.track(out) if gradient else out

  def stack(self, count: int, length: int, *, dtype: Any, gradient: bool = True) -> wp.array:
    """A zero array of shape (count, nworld, length)."""
    if self.world_fastest:
      out = wp.zeros((count, length, self.nworld), dtype=dtype, device=self.device)
      out = out.transpose((0, 2, 1))
    else:
      out = wp.zeros((count, self.nworld, length), dtype=dtype, device=self.device)
    return self.track(out) if gradient else out

  def track(self, array: wp.array) -> wp.array:
    """Gives an array made here a gradient."""
    if self.flat is not None:
      raise RuntimeError("the tape is finished: make arrays before finish()")
    if not _dense_strides(array):
      raise ValueError(f"an array with gaps cannot have a gradient: {array.strides=}")
    self._with_gradient.append(array)
    return array

  def twin(self, array: wp.array) -> wp.array:
    """An array on the same memory that has a gradient; an empty one stays as it is."""
    if array.size == 0:
      return array
    return self.track(alias(array))

  def struct(self, struct: type[_Struct], /, **fields: Any) -> _Struct:
    """A struct whose arrays get their gradients at `finish()`."""
    out = struct()
    self._structs[id(out)] = (out, struct(), fields)
    return out

  def launch(
    self,
    kernel: wp.Kernel,
    dim: Any,
    *,
    inputs: Sequence,
    outputs: Sequence,
    forward: bool = True,
  ) -> None:
    """Records a kernel that writes arrays with gradients.

    Without `forward` only its adjoint runs: what it would write is there already.
    """
    seeds, adjoint = [None for _ in outputs], self._adjoint_of(inputs)
    self._record(_Launch(kernel, dim, inputs, outputs, adjoint, seeds, forward))

  def power(self, kernel: wp.Kernel, dim: int | tuple[int, ...], *, inputs: Sequence) -> None:
    """Records a kernel whose last argument collects a part of the power, one number a thread.

    Only its adjoint runs: the power itself is not wanted, and its seed is one everywhere. Neither
    takes memory.

    Args:
      kernel: finds its world by `world_and_item` if `dim` is a number, else it is the first index.
      dim: the number of threads a world, or the dimensions of the launch.
      inputs: all arguments but the last.
    """
    if self._muted:
      return
    shape, dim = ((self.nworld, dim), self.dim(dim)) if isinstance(dim, int) else (dim, dim)
    strides = (0,) * len(shape)
    place, seed = (
      wp.array(ptr=x.ptr, dtype=float, shape=shape, strides=strides, device=self.device)
      for x in (self._none, self.one)
    )
    adjoint = self._adjoint_of(inputs)
    self._record(_Launch(kernel, dim, inputs, [place], adjoint, [seed], False))

  def output(
    self, kernel: wp.Kernel, *, inputs: Sequence, outputs: Sequence, dim: Any = None
  ) -> None:
    """Records the adjoint alone of a kernel that writes outputs.

    Args:
      kernel: writes one row of every output a world.
      inputs: its inputs.
      outputs: pairs of an array that has the shape of the output, and its cotangent or None.
      dim: of the launch, by default the shape of the first output; from `Tape.dim` if the kernel
        finds its world by `world_and_item`.
    """
    arrays, seeds = [x for x, _ in outputs], [x for _, x in outputs]
    dim, adjoint = dim or arrays[0].shape, self._adjoint_of(inputs)
    self._record(_Launch(kernel, dim, inputs, arrays, adjoint, seeds, False))

  def field(self, struct: Any, name: str) -> Any:
    """What a struct made here holds, or will hold after `finish()`."""
    return self._structs[id(struct)][2][name]

  def fill_cotangents(self, launch: Callable[[], None]) -> None:
    """Records what writes cotangents, once the forward pass is there, ahead of all that reads."""
    self._fill_cotangents.append(launch)

  def when_recomputed(self, launch: Callable[[], None]) -> None:
    """Records what runs as soon as the forward pass has been evaluated once more."""
    self._when_recomputed.append(launch)

  def before_sweep(self, launch: Callable[[], None]) -> None:
    """Records what runs when the linear solves are done, ahead of all kernels of the tape."""
    self._before_sweep.append(launch)

  @property
  def waits_for_recompute(self) -> bool:
    """Whether something is recorded by `when_recomputed` so far."""
    return bool(self._when_recomputed)

  def run_recomputed(self) -> None:
    """Runs what `fill_cotangents` has recorded, then what `when_recomputed` has."""
    for launch in (*self._fill_cotangents, *self._when_recomputed):
      launch()

  def run_before_sweep(self) -> None:
    """Runs what `before_sweep` has recorded."""
    for launch in self._before_sweep:
      launch()

  @contextlib.contextmanager
  def muted(self, muted: bool) -> Iterator[None]:
    """Leaves out the powers that are recorded here, because they are zero."""
    before, self._muted = self._muted, muted
    try:
      yield
    finally:
      self._muted = before

  def _adjoint_of(self, inputs: Sequence[Any]) -> list[Any]:
    return [self._structs[id(x)][1] if id(x) in self._structs else None for x in inputs]

  def call(self, *, forward: Callable | None = None, backward: Callable | None = None) -> None:
    """Records functions that launch something else."""
    self._record(_Calls(forward, backward))

  def _record(self, work: _Launch | _Calls) -> None:
    self._steps.append(_Step(work, self._section, self._beside))

  def begin_section(self) -> None:
    """Starts a section: forwards it runs after all earlier ones, backwards before them."""
    self._section += 1

  @contextlib.contextmanager
  def beside(self, apart: bool = True) -> Iterator[None]:
    """What is recorded here runs on a GPU beside the rest of its section, which is apart from it.

    They may add to the same gradients, but only by atomic additions.
    """
    before, self._beside = self._beside, apart
    try:
      yield
    finally:
      self._beside = before

  def finish(self) -> None:
    """Allocates the gradients, in one buffer that `clear()` zeroes."""
    sizes = [_words(x) for x in self._with_gradient]
    # Vector types may be read 16 bytes at a time, so every gradient starts at such an address.
    starts = np.concatenate([[0], np.cumsum([(n + 3) // 4 * 4 for n in sizes])]).astype(int)
    self.flat = wp.zeros(max(1, int(starts[-1])), dtype=float, device=self.device)
    for array, start in zip(self._with_gradient, starts, strict=False):
      array.grad = part_of(self.flat, int(start), like=array)
      self._starts[id(array)] = int(start)
    for struct, _, fields in self._structs.values():
      for name, value in fields.items():
        setattr(struct, name, value)

  def start_of(self, array: wp.array) -> int:
    """Where in `flat` the gradient of an array of this tape starts, in floats."""
    return self._starts[id(array)]

  def clear(self) -> None:
    """Zeroes all gradients."""
    assert self.flat is not None
    self.flat.zero_()

  @property
  def count(self) -> int:
    """How many launches are recorded."""
    return len(self._steps)

  def forward(self, count: int | None = None) -> None:
    """Runs the recorded launches in their order, or the first of them."""
    self._run(self._steps[:count], adjoint=False)

  def backward(self, count: int | None = None) -> None:
    """Runs the adjoints of the recorded launches, or of the first of them, in reverse."""
    self._run(self._steps[:count][::-1], adjoint=True)

  def _run(self, steps: list[_Step], *, adjoint: bool) -> None:
    steps = [step for step in steps if step.work.runs(adjoint)]
    for _, group in itertools.groupby(steps, key=lambda step: step.section):
      section = list(group)
      beside = [step for step in section if step.beside]
      if self._side is None or not beside or len(beside) == len(section):
        for step in section:
          step.work.run(adjoint)
        continue
      try:
        with self._side.fork():
          for step in beside:
            step.work.run(adjoint)
        for step in section:
          if not step.beside:
            step.work.run(adjoint)
      finally:
        self._side.join()
