"""A call from XLA, of which only what somebody asks for is decoded.

`calls/target.py` makes one in every call and hands it to the handler of the target. Beside it stand
what everybody must agree on about calls: platforms, devices, and the text that names the target.
"""

import functools
import traceback
from typing import Any

import jax
import warp as wp

from mjx_warp_ffi.third_party.warp import runtime, xla_ffi

PLATFORMS = ("cpu", "CUDA")
SEPARATOR = b" "
"""Stands between the name of the target and the key in the one attribute of a call."""


class Call:
  """One execution of an FFI target. Valid only while the handler runs."""

  __slots__ = ("frame", "platform")

  def __init__(self, frame: tuple[int, ...], platform: str):
    """Keeps the frame; nothing is decoded yet."""
    self.frame = frame
    self.platform = platform

  @property
  def ordinal(self) -> int:
    """XLA's process-local device ordinal; eight virtual CPU devices have eight."""
    if only_device(self.platform):
      return 0
    return xla_ffi.get_device_ordinal(self.frame[xla_ffi.API], self.frame[xla_ffi.CTX])

  @property
  def stream(self) -> int:
    """The CUDA stream handle to launch on; 0 on the CPU, where calls are synchronous."""
    if self.platform == "cpu":
      return 0
    return xla_ffi.get_stream(self.frame[xla_ffi.API], self.frame[xla_ffi.CTX])

  @property
  def target(self) -> str:
    """The name of the target that is called."""
    return self._text()[0].decode()

  @property
  def key(self) -> bytes:
    """The text after the name of the target: the static values, or the program that is meant."""
    return self._text()[2]

  def _text(self) -> tuple[bytes, bytes, bytes]:
    if self.frame[xla_ffi.ATTR_COUNT] != 1:
      raise ValueError(f"expected one attribute, got {sorted(self.attributes())}")
    return xla_ffi.read_only_string(self.frame[xla_ffi.ATTRS]).partition(SEPARATOR)

  def inputs(self) -> list[xla_ffi.Buffer]:
    """Returns the arguments with their dtypes and shapes."""
    return xla_ffi.read_buffers(self.frame[xla_ffi.ARGS], self.frame[xla_ffi.ARG_COUNT])

  def outputs(self) -> list[xla_ffi.Buffer]:
    """Returns the results with their dtypes and shapes."""
    return xla_ffi.read_buffers(self.frame[xla_ffi.RETS], self.frame[xla_ffi.RET_COUNT])

  def attributes(self) -> dict[str, Any]:
    """Returns all attributes by name."""
    return xla_ffi.read_attributes(self.frame[xla_ffi.ATTR_COUNT : xla_ffi.ATTRS + 1])


def failure(api: int, name: str) -> int:
  """Returns the error of a call that the current exception ended.

  Args:
    api: The address of XLA's table of functions.
    name: What was called, the first words of the message.
  """
  return xla_ffi.make_error(api, f"{name} failed:\n{traceback.format_exc()}")


@functools.cache
def only_device(platform: str) -> bool:
  """Returns whether a platform has one device; asking XLA for the ordinal takes a microsecond."""
  devices = jax.local_devices(backend=platform.lower())
  return [device.local_hardware_id for device in devices] == [0]


def warp_device(platform: str, ordinal: int) -> wp.Device:
  """Returns Warp's device for an XLA platform name and ordinal.

  Raises:
    RuntimeError: This Warp build or machine has no such device.
  """
  runtime.initialise()
  if platform == "cpu":
    if not wp.is_cpu_available():
      raise RuntimeError("this build of Warp has no CPU support, but XLA runs this call on the CPU")
    return wp.get_device("cpu")
  if not wp.is_cuda_available():
    raise RuntimeError("Warp finds no CUDA device, but XLA runs this call on one")
  return wp.get_cuda_device(ordinal)
