"""Warp arrays on XLA's buffers."""

from collections.abc import Sequence

import numpy as np
import warp as wp

from mjx_warp_ffi.third_party.warp import args as args_lib
from mjx_warp_ffi.third_party.warp import runtime, xla_ffi


def collapsed(shape: Sequence[int], arg: args_lib.FfiArg) -> tuple[int, ...]:
  """Returns the Warp shape of a buffer; batch axes are folded into the first dimension."""
  shape = tuple(shape[: len(shape) - arg.dtype_ndim])
  batch = len(shape) - arg.warp_ndim
  if batch < 0:
    raise ValueError(f"Argument '{arg.name}' has too few dimensions: {shape}")
  if not batch or not arg.warp_ndim:
    return shape
  first = int(np.prod(shape[: batch + 1], dtype=np.int64))
  return (first, *shape[batch + 1 :])


def batch_size(shape: Sequence[int], arg: args_lib.FfiArg) -> int | None:
  """Returns the product of the batch axes of a buffer, None if it has none."""
  batch = len(shape) - arg.jax_ndim
  return int(np.prod(shape[:batch], dtype=np.int64)) if batch > 0 else None


class Binding:
  """The array arguments of a call as Warp arrays, which follow XLA's pointers.

  Making an array takes longer than all else in a call, so they are made once and moved.

  Args:
    signature: The arguments.
    device: Where the buffers lie.
    inputs: XLA's arguments.
    outputs: XLA's results.
  """

  def __init__(
    self,
    signature: args_lib.Signature,
    device: wp.Device,
    *,
    inputs: Sequence[xla_ffi.Buffer],
    outputs: Sequence[xla_ffi.Buffer],
  ):
    """Reads the shapes."""
    pure = outputs[len(signature.in_outs) :]
    if len(inputs) != len(signature.array_inputs) or len(pure) != len(signature.outputs):
      raise ValueError(
        f"expected {len(signature.array_inputs)} buffers in and "
        f"{len(signature.outputs) + len(signature.in_outs)} out, got {len(inputs)} and "
        f"{len(outputs)}"
      )
    self.device = device
    self.args = signature.arrays
    self.buffers = (*inputs, *pure)
    self.shapes = [collapsed(b.shape, a) for a, b in zip(self.args, self.buffers, strict=True)]
    sizes = [batch_size(b.shape, a) for a, b in zip(self.args, self.buffers, strict=True)]
    self.batches = sizes
    # Pointer i of a call is that of argument i, but in-outs come again as the first results.
    count = len(inputs) + len(outputs)
    first_pure = len(inputs) + len(signature.in_outs)
    self.pointer_indices = [*range(len(inputs)), *range(first_pure, count)]
    self._pointers = b""
    self._arrays: list[wp.array] = []

  def addresses(self, pointers: bytes) -> list[int]:
    """Returns the addresses of the array arguments, from the packed pointers of a call."""
    values = np.frombuffer(pointers, np.uint64).tolist()
    return [values[i] for i in self.pointer_indices]

  def arrays(self, pointers: bytes) -> list[wp.array]:
    """Returns Warp arrays for the array arguments, in their order: always the same objects."""
    if pointers != self._pointers:
      addresses = self.addresses(pointers)
      if not self._arrays:
        self._arrays = [
          wp.array(ptr=address or None, dtype=arg.type.dtype, shape=shape, device=self.device)
          for arg, shape, address in zip(self.args, self.shapes, addresses, strict=True)
        ]
      for array, address in zip(self._arrays, addresses, strict=True):
        runtime.move_array(array, address)
      self._pointers = pointers
    return self._arrays

  def empty(self) -> list[wp.array]:
    """Returns new arrays of the same shapes."""
    return [
      wp.empty(shape, dtype=arg.type.dtype, device=self.device)
      for arg, shape in zip(self.args, self.shapes, strict=True)
    ]


def byte_size(buffer: xla_ffi.Buffer) -> int:
  """Returns the number of bytes of a buffer."""
  return int(np.prod(buffer.shape, dtype=np.int64)) * buffer.dtype.itemsize
