"""Warp arrays on XLA's buffers, for launchers without buffers of their own."""

import math
import struct
from collections.abc import Sequence

import numpy as np
import warp as wp

from mjx_warp_ffi.third_party.warp import runtime, xla_ffi
from mjx_warp_ffi.third_party.warp.signature import arguments as args_lib


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


def batch_axes(shape: Sequence[int], arg: args_lib.FfiArg) -> tuple[int, ...]:
  """Returns the batch axes of a buffer, which are in front."""
  return tuple(shape[: max(0, len(shape) - arg.jax_ndim)])


def entry_shape(shape: Sequence[int], arg: args_lib.FfiArg) -> tuple[int, ...]:
  """Returns the Warp shape of one batch entry of a buffer."""
  return tuple(shape[len(shape) - arg.jax_ndim :][: arg.warp_ndim])


class Binding:
  """The array arguments of a call as Warp arrays, which follow XLA's pointers.

  Making an array takes longer than all else in a call, so they are made once and moved.

  All batch axes are folded into the first dimension, and one run serves the batch, unless an
  argument lacks some of them: then each entry has a run of its own. A run over the folded batch
  would read past that argument.

  Attributes:
    shapes: Warp shapes of the arguments, batch axes folded.
    entries: the number of entries of the batch.
    folds: whether all arguments have all entries.
    places: for each argument, the index of its pointer among those of a call.

  Args:
    signature: The arguments.
    device: Where the buffers lie.
    inputs: XLA's arguments.
    outputs: XLA's results.
  """

  def __init__(
    self,
    signature: args_lib.FfiSignature,
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
    axes = [batch_axes(b.shape, a) for a, b in zip(self.args, self.buffers, strict=True)]
    whole = np.broadcast_shapes(*axes)
    self.entries = math.prod(whole)
    self.folds = all(some == whole for some in axes)
    # for each argument, the entry that each run takes, and the bytes of one
    self._rows = [_rows(some, whole) for some in axes]
    counts = [max(1, math.prod(some)) for some in axes]
    self._strides = [byte_size(b) // n for b, n in zip(self.buffers, counts, strict=True)]
    self.entry_shapes = [
      entry_shape(b.shape, a) for a, b in zip(self.args, self.buffers, strict=True)
    ]
    # Pointer i of a call is that of argument i, but in-outs come again as the first results.
    count = len(inputs) + len(outputs)
    first_pure = len(inputs) + len(signature.in_outs)
    self._words = struct.Struct(f"={count}Q")
    self.places = [*range(len(inputs)), *range(first_pure, count)]
    self._all = len(self.places) == count
    self._pointers = b""
    self._runs: list[list[wp.array]] = []

  def addresses(self, pointers: bytes) -> Sequence[int]:
    """Returns the addresses of the array arguments, from the packed pointers of a call."""
    words = self._words.unpack(pointers)
    return words if self._all else [words[i] for i in self.places]

  def offset(self, i: int, *, entry: int) -> int:
    """Returns where an entry of argument i begins in its buffer, in bytes."""
    return self._rows[i][entry] * self._strides[i]

  def runs(self, pointers: bytes) -> list[list[wp.array]]:
    """Returns the array arguments of each run, in their order: always the same objects."""
    if pointers != self._pointers:
      addresses = self.addresses(pointers)
      if not self._runs:
        self._runs = self.views(addresses)
      for entry, arrays in enumerate(self._runs):
        for array, address in zip(arrays, self._of_entry(addresses, entry), strict=True):
          if address != array.ptr:
            runtime.move_array(array, address)
      self._pointers = pointers
    return self._runs

  def views(self, addresses: Sequence[int]) -> list[list[wp.array]]:
    """Returns arrays for each run on buffers that something else keeps."""
    shapes = self.shapes if self.folds else self.entry_shapes
    return [
      [
        wp.array(ptr=address or None, dtype=arg.type.dtype, shape=shape, device=self.device)
        for arg, shape, address in zip(
          self.args, shapes, self._of_entry(addresses, entry), strict=True
        )
      ]
      for entry in range(1 if self.folds else self.entries)
    ]

  def _of_entry(self, addresses: Sequence[int], entry: int) -> Sequence[int]:
    """Returns where an entry begins in each buffer; 0 for a buffer without memory."""
    if self.folds:
      return addresses
    return [a and a + self.offset(i, entry=entry) for i, a in enumerate(addresses)]

  def empty(self) -> list[wp.array]:
    """Returns new arrays of the shapes."""
    return [
      wp.empty(shape, dtype=arg.type.dtype, device=self.device)
      for arg, shape in zip(self.args, self.shapes, strict=True)
    ]


def _rows(axes: tuple[int, ...], whole: tuple[int, ...]) -> Sequence[int]:
  """Returns the entry of an argument for each entry of the whole batch."""
  if axes == whole:
    return range(math.prod(whole))
  entries = np.arange(math.prod(axes)).reshape(axes)
  return np.broadcast_to(entries, whole).ravel().tolist()


def byte_size(buffer: xla_ffi.Buffer) -> int:
  """Returns the number of bytes of a buffer."""
  return int(np.prod(buffer.shape, dtype=np.int64)) * buffer.dtype.itemsize
