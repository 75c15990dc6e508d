"""FFI targets: a Python handler registered with XLA for the CPU and for CUDA.

Each door makes one for what it wraps. When XLA calls it, `run` in `_function` decodes the frame,
lets the handler serve the call, and turns whatever it raises into an error of XLA's.
"""

import atexit
import contextlib
import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp import runtime, xla_ffi
from mjx_warp_ffi.third_party.warp.native import handler as native_lib

NO_TRAITS: Mapping[str, xla_ffi.Traits] = {}
# XLA may capture the handler into a CUDA graph of its own; the CPU has no command buffers.
CAPTURABLE: Mapping[str, xla_ffi.Traits] = {"CUDA": xla_ffi.Traits.COMMAND_BUFFER_COMPATIBLE}


class Target:
  """A handler that XLA calls by name, on any thread.

  Args:
    name: The name that compiled programs carry. It must mean the same in every process that may
      load them from a cache or an export.
    handler: Runs the call; whatever it raises reaches the caller of the JAX function as an error
      with the traceback.
    traits: What the handler promises to XLA, by platform.
    owner: What the name stands for, when the caller chose it.
    shortcuts: Whether calls on CUDA may go around the handler, by the shortcuts that it leaves.

  Attributes:
    name: As given.
    owner: As given.
    handler: As given.
    shortcuts: As given.
  """

  def __init__(
    self,
    name: str,
    handler: Callable[[call_lib.Call], None],
    *,
    traits: Mapping[str, xla_ffi.Traits] = NO_TRAITS,
    owner: object = None,
    shortcuts: bool = False,
  ):
    """Registers the handler for the CPU; `complete` does the rest."""
    self.name = name
    self.owner = owner
    self.handler = handler
    self._traits = traits
    self.shortcuts = shortcuts
    self._lock = threading.Lock()
    self._missing: list[str] = list(call_lib.PLATFORMS)
    self._register("cpu")

  def complete(self) -> None:
    """Registers the handler wherever it is not registered yet; before a call is traced.

    It initialises Warp if there may be shortcuts.
    """
    with self._lock:
      for platform in tuple(self._missing):
        self._register(platform)

  def _register(self, platform: str) -> None:
    native = native_handler() if self.shortcuts and platform == "CUDA" else None
    traits = self._traits.get(platform, xla_ffi.Traits.NONE)
    if native is None:
      address = _address(_function(platform, traits, lambda _: self))
    else:
      address = native.run_capturable if traits else native.run
    jax.ffi.register_ffi_target(self.name, jax.ffi.pycapsule(address), platform=platform)
    self._missing.remove(platform)


def _function(
  platform: str, traits: xla_ffi.Traits, find: Callable[[call_lib.Call], Target]
) -> Any:
  """Returns a C function for XLA that runs the handler of the target that `find` returns."""

  def run(address: int) -> int | None:
    frame = xla_ffi.read_frame(address)
    target = None
    try:
      extension = frame[xla_ffi.EXTENSION]
      if extension and xla_ffi.answer_metadata(extension, traits):
        return None
      call = call_lib.Call(frame, platform)
      target = find(call)
      target.handler(call)
      return None
    except BaseException:  # Nothing may cross the C boundary.
      return call_lib.failure(frame[xla_ffi.API], target.name if target else "an FFI call")

  function = xla_ffi.Handler(run)
  runtime.keep_forever(function)  # XLA never drops a handler
  return function


def _address(function: Any) -> int:
  return ctypes.cast(function, ctypes.c_void_p).value or 0


_targets: dict[str, Target] = {}
_lock = threading.Lock()
# What the handler in C++ passes a call on to if no shortcut fits, whatever the target of the call.
_fallback, _fallback_capturable = (
  _function("CUDA", traits, lambda call: _targets[call.target])
  for traits in (xla_ffi.Traits.NONE, CAPTURABLE["CUDA"])
)


def native_handler() -> native_lib.Native | None:
  """Returns the handler in C++ that follows shortcuts, None where there can be none."""
  return native_lib.get(_address(_fallback), _address(_fallback_capturable))


def get_or_register(name: str, make: Callable[[], Target]) -> Target:
  """Returns the target of this name, made on the first use.

  XLA keeps the address of a handler for the life of the process, so a target is never dropped. It
  is complete, unless that would initialise Warp.
  """
  with _lock:
    if not _targets:
      atexit.register(_keep_clients)
    if name not in _targets:
      _targets[name] = make()
    made = _targets[name]
  if not made.shortcuts or runtime.is_initialised():
    made.complete()
  return made


def _keep_clients() -> None:
  """Keeps XLA's clients beyond the end of the interpreter, which has come.

  A client that is destroyed with the last objects of the interpreter waits for its threads; one
  that is about to call a handler waits for the interpreter, and the process would never end.
  """
  for platform in call_lib.PLATFORMS:
    with contextlib.suppress(RuntimeError):  # there is no such platform
      for device in jax.local_devices(backend=platform.lower()):
        runtime.keep_forever(device.client)


def register_once(
  name: str,
  handler: Callable[[call_lib.Call], None],
  *,
  owner: object,
  traits: Mapping[str, xla_ffi.Traits],
) -> None:
  """Registers a handler under a name that the caller chose.

  Raises:
    ValueError: The name belongs to another owner.
  """
  made = get_or_register(name, lambda: Target(name, handler, traits=traits, owner=owner))
  if made.owner != owner:
    raise ValueError(f"an FFI target named {name!r} is registered already; choose another name")


def registered() -> tuple[str, ...]:
  """Returns the names of all targets that were registered here."""
  with _lock:
    return tuple(_targets)


def ffi_call(name: str, result_types: Sequence[jax.ShapeDtypeStruct], **options: Any) -> Callable:
  """As `jax.ffi.ffi_call` with several results, but XLA runs the call no more than once.

  XLA for GPUs fuses a call in a loop with the dynamic-update-slice that stacks one of its results,
  and leaves the call itself in place too if a result has another use: JAX 0.11.2 runs it twice, at
  twice the time, side effects included (mended by https://github.com/openxla/xla/pull/45799). It
  does not look behind a barrier, which is gone in the compiled program.
  """
  call = jax.ffi.ffi_call(name, result_types, **options)

  def behind_a_barrier(*args: jax.Array, key: str) -> Any:
    results = call(*args, key=f"{name}{call_lib.SEPARATOR.decode()}{key}")
    return jax.lax.optimization_barrier(results) if results else results

  return behind_a_barrier
