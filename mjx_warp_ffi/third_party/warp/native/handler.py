"""A handler in C++ that launches graphs and kernels, or knows the function in Python to run.

It serves CUDA only. It finds an entry by where the call frame lies, and serves the call if all is
as the entry says; the rest goes to a handler in Python. `shortcut.py` fills in the entries.
"""

import ctypes
import functools
import threading
import time
from collections.abc import Callable

import warp as wp

from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp import runtime, xla_ffi
from mjx_warp_ffi.third_party.warp.native import handler_code as code
from mjx_warp_ffi.third_party.warp.process import guard

_FIRST_WAIT, _LAST_WAIT = 2e-5, 1e-3  # seconds; launches take microseconds, bodies what they want
_WARP = {
  "launch_graph": "wp_cuda_graph_launch",
  "launch_kernel": "wp_cuda_launch_kernel",
  "fill": "wp_memset_device",
  "copy_to_device": "wp_memcpy_h2d",
  "wait_event": "wp_cuda_stream_wait_event",
  "record_event": "wp_cuda_event_record",
  "is_capturing": "wp_cuda_stream_is_capturing",
}
_Take = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_LetGo = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Body = ctypes.CFUNCTYPE(ctypes.c_uint64, *(4 * (ctypes.c_uint64,)))

Body = Callable[[bytes | None, int], None]
"""A Python function that an entry may stand for.

It gets the packed pointers of the call, None if they are those of the last one, and the stream.
"""


class Native:
  """The functions in C++ and the memory that they share with Python.

  XLA may call them until the process ends, so nothing of it is ever freed. They know one memory,
  that of the object that was connected last.

  Attributes:
    run: The address of the handler.
    run_capturable: That of the same handler where XLA may capture it.
  """

  def __init__(self, python: int, python_capturable: int):
    """Builds the functions.

    Args:
      python: The address of the handler for the calls that this one cannot serve.
      python_capturable: The same where XLA may capture it.
    """
    self._places = (ctypes.c_uint64 * code.PLACES)()
    self._bodies: dict[int, tuple[str, Body, ctypes.Array]] = {}
    self._body = _Body(self._run_body)
    self._shared = code.Shared(
      places=ctypes.addressof(self._places),
      python=python,
      python_capturable=python_capturable,
      body=ctypes.cast(self._body, ctypes.c_void_p).value,
    )
    for name, function in _WARP.items():
      setattr(self._shared, name, runtime.address_of(function))
    functions = self.connect()
    self.run, self.run_capturable = functions[code.RUN], functions[code.RUN_CAPTURABLE]
    self._take, self._let_go = _Take(functions[code.TAKE]), _LetGo(functions[code.LET_GO])
    self._code = tuple(code.functions.module.execs.values())
    self._lock = threading.Lock()
    self._entries: list[code.Entry] = []
    self._free: list[code.Entry] = []
    runtime.keep_forever(self)

  def connect(self) -> list[int]:
    """Lets the functions use this memory; returns their addresses."""
    with guard.tracing():
      addresses = wp.zeros(code.LET_GO + 1, dtype=wp.uint64, device="cpu")
      inputs = [ctypes.addressof(self._shared), addresses]
      wp.launch(code.functions, dim=addresses.shape, inputs=inputs, device="cpu")
      found = addresses.numpy().tolist()
    if not all(found):
      raise RuntimeError("Warp records a graph on the CPU: make callables outside of it")
    return found

  def _run_body(self, entry: int, stream: int, known: int, api: int) -> int:
    """Runs the function that an entry stands for; returns XLA's error or 0."""
    name = "an FFI call"
    try:
      name, body, pointers = self._bodies[entry]
      body(None if known else bytes(pointers), stream)
      return 0
    except BaseException:  # Nothing may cross the C boundary.
      return call_lib.failure(api, name)

  def stand_for(self, entry: code.Entry, name: str, *, body: Body, pointers: ctypes.Array) -> None:
    """Says which function an entry of the kind `BODY` stands for.

    Args:
      entry: The entry.
      name: Whose function it is, for errors.
      body: The function.
      pointers: Where the entry has the pointers of the last call.
    """
    self._bodies[ctypes.addressof(entry)] = name, body, pointers

  def take(self) -> code.Entry:
    """Returns an entry that nobody uses."""
    with self._lock:
      if not self._free:
        self._free.append(code.Entry())
        self._entries.append(self._free[0])
      return self._free.pop()

  def give_back(self, entry: code.Entry) -> None:
    """Takes an entry back that is not live any more; a handler may still look at it."""
    self._bodies.pop(ctypes.addressof(entry), None)
    with self._lock:
      self._free.append(entry)

  def hold(self, entry: code.Entry) -> None:
    """Keeps the handler away from an entry; waits for a call of it.

    Python holds an entry in one thread at a time: whoever asks must see to that.
    """
    address = ctypes.addressof(entry)
    wait = _FIRST_WAIT
    try:
      while not self._take(address):
        time.sleep(wait)
        wait = min(2 * wait, _LAST_WAIT)
    except BaseException:  # an interrupt while it waits, or just after
      if entry.held == code.PYTHON:
        self._let_go(address)
      raise

  def let_go(self, entry: code.Entry) -> None:
    """Ends `hold`."""
    self._let_go(ctypes.addressof(entry))

  def lead(self, frame: tuple[int, ...], entry: code.Entry) -> None:
    """Lets the handler try an entry for calls at a frame on its device."""
    at = frame[xla_ffi.ARGS] + 3 * frame[xla_ffi.RETS] + entry.ordinal
    mixed = at * code.MIX % 2**64
    self._places[mixed >> code.SHIFT] = ctypes.addressof(entry)


_building = threading.Lock()
_only = functools.cache(Native)


def get(python: int, python_capturable: int) -> Native | None:
  """Returns the handler in C++, made once; None without a CUDA device or without a compiler.

  Args:
    python: As for `Native`.
    python_capturable: As for `Native`.
  """
  runtime.initialise()
  if not (wp.is_cuda_available() and wp.is_cpu_available()):
    return None
  with _building:
    return _only(python, python_capturable)
