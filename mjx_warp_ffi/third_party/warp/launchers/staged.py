"""The graph modes, and the launchers of the staged ones: a body on buffers that never move.

A body is a function without arguments that launches Warp work. `program.py` and `jax_callable.py`
make a launcher once for a body on a device; each call gives it XLA's pointers and stream.
"""

import ctypes
import dataclasses
import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.launchers import copies as copies_lib
from mjx_warp_ffi.third_party.warp.native import shortcut
from mjx_warp_ffi.third_party.warp.process import guard, rehearsal


class GraphMode(enum.IntEnum):
  """How a callable's launches are captured and replayed."""

  NONE = 0
  """The Python body runs in every call."""
  JAX = 1
  """The Python body runs in every call, and XLA may capture it into a CUDA graph of its own."""
  WARP = 2
  """Warp captures once for each set of buffer addresses; replays run no Python body."""
  WARP_STAGED = 3
  """Warp captures once on buffers that never move, with the copies inside the graph."""
  WARP_STAGED_EX = 4
  """Warp captures once on buffers that never move, with the copies outside the graph."""


JaxCallableGraphMode = GraphMode


class Graph:
  """Launches that were captured once and replay on any stream of their device.

  Args:
    device: Where to capture.
    record: Launches the work; must not synchronise or read results back.

  Raises:
    RuntimeError: The work cannot be captured; the message names a mode that runs it.
  """

  def __init__(self, device: wp.Device, record: Callable[[], None]):
    """Captures the work."""
    stream = guard.own_streams(device).capture if device.is_cuda else None
    try:
      with guard.recording(device, stream):
        with wp.ScopedCapture(device=device, stream=stream) as capture:
          record()
        # Instantiated under the guard: Warp's stream must not be in another capture.
        self._executable = (
          runtime.instantiate_cuda(capture.graph, stream) if stream else ctypes.c_void_p()
        )
    except Exception as error:
      raise RuntimeError(
        "the body ran, but could not be captured into a graph; GraphMode.NONE runs it uncaptured"
      ) from error
    # Warp's graph keeps the modules loaded whose kernels it launches.
    self._graph: Any = capture.graph
    self.replay = self._replay_cuda if device.is_cuda else self._replay_cpu

  @property
  def executable(self) -> ctypes.c_void_p | None:
    """What CUDA launches; None on the CPU."""
    return self._executable or None

  def _replay_cpu(self, stream: int) -> None:
    del stream
    with guard.CPU_KERNELS:
      runtime.replay_cpu(self._graph)

  def _replay_cuda(self, stream: int) -> None:
    runtime.launch_cuda(self._executable, stream)


class Early:
  """Results that are final before a body ends, and that it may hand out itself.

  Their copies then run beside the rest of the body, if it calls `hand_out` on a stream that it
  forks and joins. What it does not hand out is copied after it.

  Attributes:
    results: their indices.
  """

  def __init__(self, results: Collection[int] = ()):
    """Names the results."""
    self.results = frozenset(results)
    self._copy: Callable[[], None] | None = None

  def hand_out(self) -> None:
    """Launches the copies on the current stream, once in a run of the body."""
    if self._copy is not None:
      self._copy()
      self._copy = None

  def start(self, copy: Callable[[], None]) -> None:
    """Says, before a run of the body, what copies the results."""
    self._copy = copy


@dataclasses.dataclass(frozen=True)
class Work:
  """A body over fixed buffers.

  Attributes:
    body: launches the work.
    inputs: where the arguments go in every call; None leaves an argument out.
    outputs: where the results come from; None leaves a result out.
    first_inputs: where arguments go in the first call only.
    early: the results that the body may hand out.
    rehearsal: whether the body may run once more, without launching anything; see `rehearsal`.
    keep: what must live as long.
  """

  body: Callable[[], None]
  inputs: Sequence[copies_lib.Fixed]
  outputs: Sequence[copies_lib.Fixed]
  first_inputs: Sequence[wp.array | None] = ()
  early: Early = dataclasses.field(default_factory=Early)
  rehearsal: bool = False
  keep: object = None


class _StagedBase:
  """What the staged launchers share: the copies, and the first call, which is not captured.

  The first call loads the modules of the body and of the copies, which a capture must find
  loaded, and its results are already those of the call.
  """

  ordered = True

  def __init__(self, device: wp.Device, work: Work):
    self.routine: shortcut.Routine | None = None
    self._device = device
    self._work = work
    self._body = work.body
    early = work.early.results
    self._copies = copies_lib.Copies(device, work.inputs, work.outputs, early=early)
    self._first = None
    if work.first_inputs:
      unused = [None] * len(work.outputs)
      self._first = copies_lib.Copies(device, work.first_inputs, unused)
    self._launch: Callable[[int], None] | None = None

  def __call__(self, pointers: bytes, stream: int) -> None:
    """Copies the arguments in, runs the body, copies the results out."""
    self._copies.refresh(pointers, stream)
    if self._launch is not None:
      self._launch(stream)
      return
    if self._first is not None:
      self._first.refresh(pointers, stream)
    with guard.body(self._device, stream, alone=True):
      self._rehearse()
      if self._first is not None:
        self._first.gather()
      self._between_copies()
    self._launch = self._capture()

  def _between_copies(self) -> None:
    """Launches the copies in, the body, and the copies out."""
    self._copies.gather()
    self._work.early.start(self._copies.scatter_early)
    self._body()
    self._scatter()

  def _scatter(self) -> None:
    """Launches the copies of what the body has not handed out."""
    self._work.early.hand_out()
    self._copies.scatter()

  def _scatter_all(self) -> None:
    """Launches the copies of all results."""
    self._work.early.start(self._copies.scatter_early)
    self._scatter()

  def warm(self, stream: int) -> None:
    """Runs the body on what its buffers hold and captures, ahead of the first call."""
    if self._launch is None:
      with guard.body(self._device, stream, alone=True):
        self._rehearse()
        self._body()
      self._launch = self._capture()

  def _rehearse(self) -> None:
    if self._work.rehearsal:
      rehearsal.compile_modules(self._body, self._device)

  def _capture(self) -> Callable[[int], None]:
    raise NotImplementedError

  def _replay(self, *parts: Callable[[], None]) -> Callable[[int], None]:
    """Captures a graph of each part; returns what launches them all."""
    recorded = [Graph(self._device, part) for part in parts]
    executables = [graph.executable for graph in recorded if graph.executable is not None]
    self.routine = shortcut.Routine(
      executables, self._copies.table, self._copies.forget, keep=(self._work, recorded)
    )
    if len(recorded) == 1:
      return recorded[0].replay

    def launch(stream: int) -> None:
      for graph in recorded:
        graph.replay(stream)

    return launch


class StagedNone(_StagedBase):
  """Copies and body are launched anew in every call."""

  def _capture(self) -> Callable[[int], None]:
    parts = (self._copies.gather, self._scatter_all)
    gather, scatter = (Graph(self._device, part) for part in parts)

    def launch(stream: int) -> None:
      gather.replay(stream)
      with guard.body(self._device, stream):
        self._body()
      scatter.replay(stream)

    return launch


class StagedGraph(_StagedBase):
  """One graph holds the copies and the body."""

  def _capture(self) -> Callable[[int], None]:
    return self._replay(self._between_copies)


class StagedExGraph(_StagedBase):
  """The body is a graph of its own between the copies."""

  def _capture(self) -> Callable[[int], None]:
    return self._replay(self._copies.gather, self._body, self._scatter_all)


STAGED: dict[GraphMode, type[_StagedBase]] = {
  GraphMode.NONE: StagedNone,
  GraphMode.WARP_STAGED: StagedGraph,
  GraphMode.WARP_STAGED_EX: StagedExGraph,
}
