"""`register_ffi_callback`: a Python function behind an FFI target of the caller's name."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.calls import target
from mjx_warp_ffi.third_party.warp.process import guard

_OLDEST_JAX = (0, 8, 0)


class FfiBuffer:
  """An argument or result of a callback.

  Attributes:
    dtype: its NumPy dtype.
    data: its address.
    shape: its shape.
  """

  def __init__(self, buffer: xla_ffi.Buffer, platform: str):
    """Describes a buffer of a platform, which is valid while the callback runs."""
    self._on_cpu = platform == "cpu"
    self.dtype: np.dtype = buffer.dtype
    self.data: int = buffer.data
    self.shape: tuple[int, ...] = buffer.shape

  @property
  def _interface(self) -> dict:
    # A struct or extension dtype (bfloat16) has no type string of its own; its bytes do.
    known = self.dtype.kind in "biufc"
    typestr = self.dtype.str if known else f"|V{self.dtype.itemsize}"
    return {"shape": self.shape, "typestr": typestr, "data": (self.data, False), "version": 3}

  @property
  def __cuda_array_interface__(self) -> dict:
    """The buffer for `wp.array` and others, when the call runs on CUDA."""
    if self._on_cpu:
      raise AttributeError("this buffer lies in the memory of the CPU")
    return self._interface

  @property
  def __array_interface__(self) -> dict:
    """The buffer for NumPy and `wp.array`, when the call runs on the CPU."""
    if not self._on_cpu:
      raise AttributeError("this buffer lies in the memory of a GPU")
    return self._interface

  def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
    """Says what to do instead, where NumPy cannot read the buffer."""
    raise TypeError(
      "this buffer lies in the memory of a GPU, where NumPy cannot read it: wrap it with"
      " wp.array(buffer, dtype=..., device='cuda') on the stream of the context"
    )


@dataclasses.dataclass(frozen=True)
class ExecutionContext:
  """Where and when a callback runs.

  Attributes:
    stage: the execution stage, `EXECUTE`.
    stream: the CUDA stream handle, 0 on the CPU.
    device_ordinal: the process-local ordinal of the device.
    platform: "cpu" or "CUDA".
  """

  stage: xla_ffi.Stage
  stream: int
  device_ordinal: int
  platform: str


def check_jax_version() -> None:
  """Raises `RuntimeError` if JAX is too old for this package."""
  if jax.__version_info__ < _OLDEST_JAX:
    oldest = ".".join(map(str, _OLDEST_JAX))
    raise RuntimeError(f"JAX {oldest} or newer is needed, found {jax.__version__}")


def register_ffi_callback(name: str, func: Callable, graph_compatible: bool = True) -> None:
  """Registers a Python function as an FFI target, for the CPU and for CUDA.

  Call it with `jax.ffi.ffi_call(name, result_types)(*args, **attributes)`.

  Args:
    name: The name of the target. A compiled program that refers to it finds it by this name, so
      a name is registered once in a process.
    func: `func(inputs, outputs, attrs, ctx)`, with lists of `FfiBuffer`, a dict of attributes and
      an `ExecutionContext`. It must use the given stream on CUDA.
    graph_compatible: Whether XLA may capture the function into a CUDA graph.

  Raises:
    ValueError: Another function has this name.
  """
  check_jax_version()

  def handler(call: call_lib.Call) -> None:
    context = ExecutionContext(
      xla_ffi.Stage(call.frame[xla_ffi.STAGE] & 0xFFFFFFFF),
      call.stream,
      call.ordinal,
      call.platform,
    )
    inputs = [FfiBuffer(buffer, call.platform) for buffer in call.inputs()]
    outputs = [FfiBuffer(buffer, call.platform) for buffer in call.outputs()]
    with guard.launching(call.platform):
      func(inputs, outputs, call.attributes(), context)

  traits = target.CAPTURABLE if graph_compatible else target.NO_TRAITS
  target.register_once(name, handler, owner=(func, graph_compatible), traits=traits)
