"""Calls that go around the handler in Python.

The handler in Python needs the interpreter's lock and some 20 us. Once it has served a call, the
next ones of the same call site differ in their pointers at most, and the handler in C++ can do what
is left: fill in the pointers, then launch the captured graphs or the kernel, or run the function in
Python that the call is for.

A launcher says what that is by its `Routine`; `calls/dispatch.py` makes the `Shortcut`.
"""

import ctypes
import dataclasses
from collections.abc import Callable, Sequence

import warp as wp

from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.native import handler as native_lib
from mjx_warp_ffi.third_party.warp.native import handler_code


@dataclasses.dataclass(frozen=True)
class Routine:
  """All that a launcher does with a call once it has captured its work, or loaded its modules.

  Attributes:
    graphs: The executable graphs to launch, one after the other.
    table: Where on the device XLA's pointers go; None if the graphs serve one set of pointers.
    forget: Makes the launcher fill in the pointers anew.
    launch: A launch of a kernel, instead of graphs.
    body: A function to run instead, with the pointers of the call, None if they are those of the
      last one, and its stream.
    keep: What owns the graphs and the table.
  """

  graphs: Sequence[ctypes.c_void_p] = ()
  table: wp.array | None = None
  forget: Callable[[], None] = lambda: None
  launch: handler_code.Launch | None = None
  body: native_lib.Body | None = None
  keep: object = None

  @property
  def kind(self) -> int:
    """Whether it is graphs, a kernel or a body, by the number that the handler has for it."""
    if self.body is not None:
      return handler_code.BODY
    return handler_code.GRAPHS if self.launch is None else handler_code.KERNEL


class Shortcut:
  """The way of a launcher's calls around Python.

  In a `with` block the launcher is Python's: calls from elsewhere wait for it there. After it the
  handler in C++ takes nothing of what it knew of streams and pointers for granted.
  """

  def __init__(
    self,
    native: native_lib.Native,
    frame: tuple[int, ...],
    *,
    ordinal: int,
    routine: Routine,
    event: wp.Event | None,
  ):
    """Describes the calls that are like the one at a frame; none comes here before `open`.

    Args:
      native: The handler.
      frame: A call frame.
      ordinal: The ordinal of the device.
      routine: What to do.
      event: Marks the end of each call, for those on other streams.
    """
    self._native = native
    self._routine = routine
    self._entry = native.take()
    inputs = xla_ffi.read_words(frame[xla_ffi.ARGS], frame[xla_ffi.ARG_COUNT])
    outputs = xla_ffi.read_words(frame[xla_ffi.RETS], frame[xla_ffi.RET_COUNT])
    text = xla_ffi.read_only_string(frame[xla_ffi.ATTRS])
    described = _words([word for _, words in (*inputs, *outputs) for word in words])
    pointers = _words([data for data, _ in (*inputs, *outputs)])
    self._name = text.partition(call_lib.SEPARATOR)[0].decode()
    self._pointers = pointers
    table, launch = routine.table, routine.launch
    self._fields = {
      "text": ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value,
      "text_size": len(text),
      "ordinal": ordinal,
      "arg_count": len(inputs),
      "ret_count": len(outputs),
      "described": ctypes.addressof(described),
      "pointers": ctypes.addressof(pointers),
      "kind": routine.kind,
      "launch": 0 if launch is None else ctypes.addressof(launch),
      "by_address": table is None,
      "table": 0 if table is None else table.ptr,
      "context": 0 if table is None else wp.get_device(table.device).context,
      "graph_count": len(routine.graphs),
      "event": 0 if event is None else event.cuda_event,
      "live": True,
    }
    # With the entry, whatever becomes of this object: the handler knows only the entry.
    self._keep = text, described, pointers, routine, event

  def open(self, frame: tuple[int, ...]) -> None:
    """Begins: the next call at a frame comes here."""
    with self:
      self._entry.keep = self._keep
      for i, graph in enumerate(self._routine.graphs):
        self._entry.graphs[i] = graph.value or 0
      if self._routine.body is not None:
        self._native.stand_for(
          self._entry, self._name, body=self._routine.body, pointers=self._pointers
        )
      for name, value in self._fields.items():
        setattr(self._entry, name, int(value or 0))
    self.lead(frame)

  def __enter__(self) -> None:
    """Waits for a call in C++, and keeps others out."""
    self._native.hold(self._entry)
    self._routine.forget()

  def __exit__(self, *exception: object) -> None:
    """Lets calls in C++ go on."""
    self._entry.pointers_known = self._entry.stream = 0
    self._native.let_go(self._entry)

  def lead(self, frame: tuple[int, ...]) -> None:
    """Leads calls at a frame here."""
    self._native.lead(frame, self._entry)

  def used(self) -> bool:
    """Returns whether it served a call since this was asked the last time."""
    used, self._entry.used = bool(self._entry.used), 0
    return used

  def close(self) -> None:
    """Ends it: the next call goes to Python."""
    with self:
      self._entry.live = 0
      self._entry.keep = None
    self._native.give_back(self._entry)


def _words(values: Sequence[int]) -> ctypes.Array:
  return (ctypes.c_uint64 * len(values))(*values)
