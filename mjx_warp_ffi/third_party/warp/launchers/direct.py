"""Launchers that run a Python function on the buffers of the call itself, without copies.

`jax_callable` makes one for each device and set of shapes, in the modes that are not staged.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.launchers import binding, staged
from mjx_warp_ffi.third_party.warp.native import shortcut
from mjx_warp_ffi.third_party.warp.process import guard

MakeBody = Callable[[Sequence[Sequence[wp.array]]], Callable[[], None]]
"""From lists of arrays to a body that calls a Python function once with each list."""


class Direct:
  """GraphMode NONE and JAX: the function runs in every call, on XLA's buffers."""

  ordered = False

  def __init__(
    self, make_body: MakeBody, bound: binding.Binding, *, modules: set[Any], waits: bool
  ):
    """Runs nothing yet.

    Args:
      make_body: Makes the body for the arrays of the call.
      bound: These arrays, which follow XLA's pointers.
      modules: Gets the modules that must stay loaded for the graphs that XLA captures.
      waits: Whether the function may wait for the device.
    """
    self.routine: shortcut.Routine | None = None
    self._make_body = make_body
    self._bound = bound
    self._on_cuda = bound.device.is_cuda
    self._modules = modules
    self._waits = waits
    self._body: Callable[[], None] | None = None

  def __call__(self, pointers: bytes | None, stream: int, *, uncaptured: bool = False) -> None:
    """Runs the function on the buffers at these addresses.

    Args:
      pointers: XLA's pointers; None if they are those of the last call.
      stream: XLA's stream.
      uncaptured: Whether the caller knows that XLA does not capture the stream.
    """
    body = self._body
    if body is None:
      assert pointers is not None  # only a later call leaves them out
      body = self._body = self._make_body(self._bound.runs(pointers))
    elif pointers is not None:
      self._bound.runs(pointers)
    # The first call loads modules.
    with guard.body(self._bound.device, stream, alone=self.routine is None, waits=self._waits):
      if self._on_cuda and not uncaptured and runtime.is_capturing(stream):
        self._captured_by_xla(body)
      else:
        body()
    if self.routine is None:
      self.routine = shortcut.Routine(body=functools.partial(self, uncaptured=True))

  def _captured_by_xla(self, body: Callable[[], None]) -> None:
    try:
      with wp.ScopedCapture(external=True) as capture:
        body()
    except Exception as error:
      raise RuntimeError(
        "XLA cannot capture this body; GraphMode.WARP_STAGED captures it apart from XLA, "
        "GraphMode.NONE runs it uncaptured"
      ) from error
    assert capture.graph is not None
    self._modules |= capture.graph.module_execs


class ByAddress:
  """GraphMode WARP: the function is captured on XLA's buffers, for the addresses of one call."""

  ordered = False  # CUDA itself runs the launches of one graph one after the other

  def __init__(self, make_body: MakeBody, bound: binding.Binding):
    """Captures nothing yet.

    Args:
      make_body: Makes the body for the arrays of the call.
      bound: These arrays.
    """
    self.routine: shortcut.Routine | None = None
    self._make_body = make_body
    self._bound = bound
    self._graph: staged.Graph | None = None

  def __call__(self, pointers: bytes, stream: int) -> None:
    """Replays the graph of these addresses, or captures it."""
    if self._graph is not None:
      self._graph.replay(stream)
      return
    body = self._make_body(self._bound.runs(pointers))
    with guard.body(self._bound.device, stream, alone=True):
      body()
    self._graph = staged.Graph(self._bound.device, body)
    if self._graph.executable is not None:
      self.routine = shortcut.Routine([self._graph.executable], keep=self._graph)
