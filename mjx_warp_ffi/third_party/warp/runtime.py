"""The border to Warp: the few uses of its private modules, all of them in this file.

Warp's public functions do much of the same, but take several microseconds of Python a call, or do
not take XLA's stream, which is a bare handle. `core` checks once that this Warp has what is needed.
"""

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import warp as wp
from warp._src import context, logger, types

_NATIVE = (
  "wp_apic_cpu_replay_state",
  "wp_cuda_context_pop_current",
  "wp_cuda_context_push_current",
  "wp_cuda_graph_create_exec",
  "wp_cuda_graph_launch",
  "wp_cuda_event_record",
  "wp_cuda_event_synchronize",
  "wp_cuda_stream_synchronize",
  "wp_cuda_stream_wait_event",
  "wp_cuda_stream_is_capturing",
  "wp_memcpy_h2d",
  "wp_memset_device",
)


class Quiet:
  """A context that keeps Warp's notes on loaded modules from the terminal.

  A logger of the user's own goes on listening to them.
  """

  __slots__ = ("_level",)

  def __init__(self):
    """Changes nothing yet."""
    self._level = 0

  def __enter__(self) -> None:
    """Raises the level of what is printed."""
    self._level = wp.config.log_level
    if self._level == wp.LOG_INFO and type(wp.get_logger()) is logger.LoggerBasic:
      wp.config.log_level = wp.LOG_WARNING

  def __exit__(self, *exception: object) -> None:
    """Puts the level back."""
    if wp.config.log_level != self._level:
      wp.config.log_level = self._level


class Handle(NamedTuple):
  """Stands for a stream in a recorded launch of one kernel, which reads no more than its handle.

  A `wp.Stream` in its place would be entered in Warp's table of streams.
  """

  cuda_stream: int


class OnStream:
  """A context that makes a CUDA stream and its device current.

  `wp.ScopedStream(stream, sync_enter=False)` does the same, in twice the time.
  """

  __slots__ = ("_before", "_default", "_stream")

  def __init__(self, stream: wp.Stream):
    """Changes nothing yet."""
    self._stream = stream

  def __enter__(self) -> None:
    """Makes them current."""
    device, process = self._stream.device, context.runtime
    self._before, self._default = device.stream, process.default_device
    process.default_device = device
    core().wp_cuda_context_push_current(device.context)
    device.set_stream(self._stream, sync=False)

  def __exit__(self, *exception: object) -> None:
    """Puts back what was current before."""
    self._stream.device.set_stream(self._before, sync=False)
    core().wp_cuda_context_pop_current()
    context.runtime.default_device = self._default


# Of `wp.utils`: they read their arrays, on the host or in kernels of their own.
_READERS = "array_scan radix_sort_pairs runlength_encode segmented_sort_pairs".split()


class NoLaunches:
  """A context in which what this thread launches does nothing but name its module.

  `wp.launch` loads the module of its kernel first, and does nothing more if there is none, so the
  loading is replaced. Functions that would read what no kernel has written are left out. A loop on
  a condition in an array runs once, and so does each side of a branch.
  """

  def __init__(self, needs: Callable[[Any, int | None], object]):
    """Changes nothing yet; `needs` gets each module and the number of threads a block."""
    self._needs = needs
    self._own: list[tuple[Any, str, Any]] = []

  def __enter__(self) -> None:
    """Turns launches off."""
    try:
      self._replace(context.Module, "load", self._name)
      self._replace(wp, "capture_while", self._once)
      self._replace(wp, "capture_if", self._both)
      self._replace(wp, "get_suggested_block_size", self._block_size)
      for name in _READERS:
        self._replace(wp.utils, name, lambda *args, **kwargs: None)
    except BaseException:
      self.__exit__()
      raise

  def __exit__(self, *exception: object) -> None:
    """Turns them on again."""
    while self._own:
      setattr(*self._own.pop())

  def _replace(self, owner: Any, name: str, here: Callable[..., Any]) -> None:
    """Replaces a function of a module or class, but only for calls from this thread."""
    own, thread = getattr(owner, name), threading.get_ident()

    def function(*args, **kwargs):
      return (here if threading.get_ident() == thread else own)(*args, **kwargs)

    self._own.append((owner, name, own))
    setattr(owner, name, function)

  def _name(self, module: Any, device: Any, block_dim: int | None = None, *args: Any) -> None:
    self._needs(module, block_dim)

  def _once(self, condition: Any, while_body: Callable, stream: Any = None, **kwargs: Any) -> None:
    while_body(**kwargs)

  def _block_size(self, kernel: Any, device: Any = None) -> tuple[int, int]:
    if wp.get_device(device).is_cuda:  # a question to the loaded module, of the default block
      self._needs(kernel.module, None)
    return 1, 1

  def _both(
    self, condition: Any, on_true: Any = None, on_false: Any = None, stream: Any = None, **kwargs
  ) -> None:
    for side in (on_true, on_false):
      if side is not None:
        side(**kwargs)


_initialising = threading.Lock()


def initialise() -> None:
  """Initialises Warp; two threads that did it at the same time would leave two runtimes."""
  with _initialising, Quiet():
    wp.init()


def is_initialised() -> bool:
  """Returns whether Warp is initialised."""
  return context.runtime is not None


@functools.cache
def core() -> Any:
  """Returns Warp's native library, with Warp initialised.

  Raises:
    ImportError: This Warp lacks something that is needed here.
  """
  initialise()
  native = context.runtime.core
  missing = [name for name in _NATIVE if not hasattr(native, name)]
  missing += [name for name in ("apic_state", "graph_exec") if not hasattr(_probe(), name)]
  if not _can_move_arrays():
    missing.append("the cached descriptor of an array")
  if missing:
    raise ImportError(
      f"warp-lang {wp.__version__} lacks {', '.join(missing)}; install warp-lang 1.19 or later"
    )
  return native


def _probe() -> Any:
  return context.Graph(wp.get_device("cpu") if wp.is_cpu_available() else wp.get_device())


def _can_move_arrays() -> bool:
  array = wp.array(ptr=64, shape=(1,), dtype=wp.uint8, device=_probe().device)
  before = array.__ctype__()
  move_array(array, 128)
  return (before.data, array.__ctype__().data) == (64, 128)


def address_of(name: str) -> int:
  """Returns the address of a function of Warp's native library."""
  return ctypes.cast(getattr(core(), name), ctypes.c_void_p).value or 0


def keep_forever(thing: object) -> None:
  """Keeps an object beyond the end of the interpreter."""
  ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def is_array_annotation(annotation: Any) -> bool:
  """Returns whether an annotation is `wp.array(...)` or `wp.array[...]`, not indexed or Fabric."""
  return types.matches_array_class(annotation, wp.array)


def move_array(array: wp.array, address: int) -> None:
  """Lets an array that owns no memory describe other memory; its launches so far are unchanged."""
  array.ptr = address or None
  # A new descriptor, since a recorded launch keeps the one that it was given. A copy: Warp takes
  # as long to make one as to launch half a kernel.
  if array.ctype is not None:
    array.ctype = type(array.ctype).from_buffer_copy(array.ctype)
    array.ctype.data = address


def default_device() -> wp.Device:
  """Returns Warp's default device, which is one for the whole process, not one a thread.

  Warp must be initialised.
  """
  return context.runtime.default_device


def replay_cpu(graph: Any) -> None:
  """Replays a graph that was captured on the CPU."""
  if not core().wp_apic_cpu_replay_state(graph.apic_state):
    raise RuntimeError(f"Warp could not replay a CPU graph: {error_string()}")


def instantiate_cuda(graph: Any, stream: wp.Stream) -> ctypes.c_void_p:
  """Makes a captured CUDA graph executable; the graph owns the result."""
  handle = ctypes.c_void_p()
  create = core().wp_cuda_graph_create_exec
  if not create(graph.device.context, stream.cuda_stream, graph.graph, ctypes.byref(handle)):
    raise RuntimeError(f"Warp could not instantiate a CUDA graph: {error_string()}")
  graph.graph_exec = handle
  return handle


def launch_cuda(executable: ctypes.c_void_p, stream: int) -> None:
  """Launches an executable CUDA graph on a stream handle."""
  if not core().wp_cuda_graph_launch(executable, stream):
    raise RuntimeError(f"Warp could not launch a CUDA graph: {error_string()}")


def is_plain(launch: wp.Launch) -> bool:
  """Returns whether a recorded launch is one kernel; that of sums in a fixed order is not."""
  return type(launch) is wp.Launch and (launch.device.is_cpu or launch.params_addr is not None)


def has_ordered_sums(kernel: wp.Kernel) -> bool:
  """Returns whether CUDA launches sum in a fixed order, for which the host reads a count."""
  return kernel.module.options["deterministic"] != wp.DeterministicMode.NOT_GUARANTEED


def launch_parameters(launch: wp.Launch) -> dict[str, Any]:
  """Returns what CUDA needs to launch a plain recorded launch: numbers, handles and addresses."""
  hooks, way = launch.hooks, "backward" if launch.adjoint else "forward"
  parameters: Any = launch.params_addr  # an array of ctypes, since the launch is plain
  return {
    "context": launch.device.context,
    "function": getattr(hooks, way),
    "dim": launch.bounds.size,
    "max_blocks": launch.max_blocks,
    "block_dim": launch.block_dim,
    "grid_stride": int(launch.grid_stride),
    "cluster_dim": launch.cluster_dim,
    "shared": getattr(hooks, f"{way}_smem_bytes"),
    "params": ctypes.addressof(parameters),
  }


def data_address(descriptor: Any) -> int:
  """Returns where the descriptor of an array in a recorded launch has its data pointer."""
  return ctypes.addressof(descriptor) + type(descriptor).data.offset


def is_capturing(stream: int) -> bool:
  """Returns whether a CUDA stream handle is being captured."""
  return bool(core().wp_cuda_stream_is_capturing(stream))


def record_event(event: wp.Event, stream: int) -> None:
  """Records an event on a CUDA stream handle."""
  core().wp_cuda_event_record(event.cuda_event, stream, False)


def wait_event(event: wp.Event, stream: int) -> None:
  """Makes a CUDA stream handle wait for an event; does not block the host."""
  core().wp_cuda_stream_wait_event(stream, event.cuda_event, False)


def synchronize_stream(stream: int) -> None:
  """Waits for a CUDA stream handle, also while another thread captures on its device.

  `wp.synchronize_stream` and `wp.synchronize_event` refuse to then, but the driver does not.
  """
  if not core().wp_cuda_stream_synchronize(stream):
    raise RuntimeError(f"Warp could not wait for a CUDA stream: {error_string()}")


def synchronize_event(event: wp.Event) -> None:
  """Waits for an event, also while another thread captures on its device."""
  if not core().wp_cuda_event_synchronize(event.cuda_event):
    raise RuntimeError(f"Warp could not wait for an event of {event.device}: {error_string()}")


def copy_to_device(device: wp.Device, target: int, *, source: bytes, stream: int) -> None:
  """Copies host bytes to CUDA memory in stream order.

  The source is pageable memory, which the driver stages before the call returns, so the caller
  may drop it at once.
  """
  if not core().wp_memcpy_h2d(device.context, target, source, len(source), stream):
    raise RuntimeError(f"Warp could not copy to {device}: {error_string()}")


def fill_zero(device: wp.Device, target: int, *, size: int, stream: int) -> None:
  """Sets bytes to zero, in stream order on a CUDA device."""
  if not device.is_cuda:
    ctypes.memset(target, 0, size)
  elif not core().wp_memset_device(device.context, target, 0, size, stream):
    raise RuntimeError(f"Warp could not fill memory of {device}: {error_string()}")


def error_string() -> str:
  """Returns the last error that Warp's native library recorded."""
  return context.runtime.get_error_string() or "no error text"
