"""Launchers that run a Python function on the buffers of the call itself."""

from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.launchers import binding, staged
from mjx_warp_ffi.third_party.warp.launchers.staged import GraphMode
from mjx_warp_ffi.third_party.warp.native import shortcut
from mjx_warp_ffi.third_party.warp.process import guard


class Direct:
  """GraphMode NONE and JAX: the body runs in every call, on XLA's buffers."""

  ordered = False

  def __init__(self, owner: Any, statics: dict, bound: binding.Binding):
    self.routine: shortcut.Routine | None = None
    self._func = owner.func
    self._signature = owner.signature
    self._statics = statics
    self._bound = bound
    self._modules = owner.modules
    self._waits = owner.graph_mode == GraphMode.NONE
    self._runs: list[list[Any]] = []

  def __call__(self, pointers: bytes, stream: int) -> None:
    """Runs the function on the buffers at these addresses."""
    device = self._bound.device
    runs = self._bound.runs(pointers)
    if not self._runs:
      self._runs = [self._signature.merge(arrays, self._statics) for arrays in runs]
    loaded = self.routine is not None
    with guard.body(device, stream, alone=not loaded, waits=self._waits):
      if device.is_cuda and runtime.is_capturing(stream):
        self._captured_by_xla()
      else:
        self._body()
    if not loaded:
      self.routine = shortcut.Routine(body=self._again)

  def _again(self, pointers: bytes | None, stream: int) -> None:
    """Serves a call that XLA does not capture, and for which a call was served before."""
    if pointers is not None:
      self._bound.runs(pointers)
    with guard.body(self._bound.device, stream, waits=self._waits):
      self._body()

  def _body(self) -> None:
    for arguments in self._runs:
      self._func(*arguments)

  def _captured_by_xla(self) -> None:
    try:
      with wp.ScopedCapture(external=True) as capture:
        self._body()
    except Exception as error:
      raise RuntimeError(
        "XLA cannot capture this body; GraphMode.WARP_STAGED captures it apart from XLA, "
        "GraphMode.NONE runs it uncaptured"
      ) from error
    self._modules |= capture.graph.module_execs  # pyright: ignore


class ByAddress:
  """GraphMode WARP: captured on XLA's buffers, for these addresses."""

  ordered = False  # CUDA itself runs the launches of one graph one after the other

  def __init__(self, owner: Any, statics: dict, bound: binding.Binding):
    self.routine: shortcut.Routine | None = None
    self._body = owner.run_body
    self._statics = statics
    self._bound = bound
    self._graph: staged.Graph | None = None

  def __call__(self, pointers: bytes, stream: int) -> None:
    """Replays the graph of these addresses, or captures it."""
    if self._graph is not None:
      self._graph.replay(stream)
      return
    runs = self._bound.runs(pointers)
    with guard.body(self._bound.device, stream, alone=True):
      self._body(runs, self._statics)
    self._graph = staged.Graph(self._bound.device, lambda: self._body(runs, self._statics))
    if self._graph.executable is not None:
      self.routine = shortcut.Routine([self._graph.executable], keep=self._graph)
