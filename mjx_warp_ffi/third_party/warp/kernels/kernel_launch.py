"""Launches of one kernel on XLA's buffers: recorded once, then only the pointers change."""

import ctypes
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import warp as wp

from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.calls import dispatch
from mjx_warp_ffi.third_party.warp.launchers import binding
from mjx_warp_ffi.third_party.warp.native import handler_code, shortcut
from mjx_warp_ffi.third_party.warp.process import guard
from mjx_warp_ffi.third_party.warp.signature import arguments as args_lib
from mjx_warp_ffi.third_party.warp.signature import folding


@dataclasses.dataclass(frozen=True)
class LaunchPlan:
  """Which kernel, or its adjoint, to launch with the arguments of a signature.

  Attributes:
    kernel: The kernel.
    block_dim: Threads a block.
    adjoint: For the adjoint, the name of the argument that holds the gradient of each kernel
      argument, None where there is none. None for a forward launch.
    zeroed: Names of the arrays to fill with zeros before each launch.
  """

  kernel: wp.Kernel
  block_dim: int | None
  adjoint: tuple[str | None, ...] | None = None
  zeroed: tuple[str, ...] = ()

  @property
  def kind(self) -> str:
    """What tells the plans of one kernel apart."""
    return f"{'adjoint' if self.adjoint else 'forward'} {self.zeroed}"

  @functools.cached_property
  def foldable(self) -> bool:
    """Whether one launch can serve a whole batch."""
    arrays = [arg.label for arg in self.kernel.adj.args if runtime.is_array_annotation(arg.type)]
    return folding.foldable(self.kernel.func, arrays)

  def load(self, device: wp.Device) -> None:
    """Compiles and loads the kernel's module."""
    wp.load_module(self.kernel.module, device, block_dim=self.block_dim)


class KernelLauncher:
  """The launches for one set of shapes and statics on a device."""

  ordered = False

  def __init__(
    self,
    plan: LaunchPlan,
    device: wp.Device,
    *,
    signature: args_lib.FfiSignature,
    shapes: dispatch.CallShapes,
    statics: Mapping[str, Any],
    dims: Sequence[int],
  ):
    """Records the launch; the buffers need not hold data yet."""
    self._plan = plan
    self._device = device
    bound = binding.Binding(signature, device, inputs=shapes.inputs, outputs=shapes.outputs)
    self._bound = bound
    fold = plan.foldable and bound.folds and all(s[0] == dims[0] for s in bound.entry_shapes)
    self._entries = 1 if fold else bound.entries
    dims = (bound.entries * dims[0], *dims[1:]) if fold else tuple(dims)
    self._arrays = self._entry_arrays()
    names = (arg.name for arg in bound.args)
    values = dict(zip(names, self._arrays, strict=True)) | dict(statics)
    self._launch_anew = functools.partial(_launch, plan, device, dims=dims, values=values)
    with guard.building(device):
      self._launch = self._launch_anew(record=True)
    # Other recorded launches (sums in a fixed order) hold on to the arrays that they began with.
    self._takes_pointers = self._launch is None or runtime.is_plain(self._launch)
    self._slots = self._parameters(values)
    self._zeroed = [i for i, arg in enumerate(bound.args) if arg.name in plan.zeroed]
    self._sizes = [binding.byte_size(b) for b in bound.buffers]
    self._pointers = b""
    self._addresses: Sequence[int] = ()
    self.routine = self._routine() if device.is_cuda else None

  def __call__(self, pointers: bytes, stream: int) -> None:
    """Launches on these buffers."""
    if pointers != self._pointers:
      self._addresses = self._bound.addresses(pointers)
      self._pointers = pointers
      if self._entries:
        self._point(0)
    for i in self._zeroed:
      if self._sizes[i]:
        runtime.fill_zero(self._device, self._addresses[i], size=self._sizes[i], stream=stream)
    if self._launch is None:  # an empty launch
      return
    if not self._takes_pointers:
      self._launch_arrays(stream)
      return
    handle: Any = runtime.Handle(stream) if stream else None
    with guard.launching("cpu" if self._device.is_cpu else "CUDA"):
      if self._entries == 1:
        self._launch.launch(handle)
        return
      for entry in range(self._entries):
        self._point(entry)
        self._launch.launch(handle)

  def _launch_arrays(self, stream: int) -> None:
    """Launches without what was recorded."""
    with guard.body(self._device, stream, waits=False):
      for entry in range(self._entries):
        for i, array in enumerate(self._arrays):
          runtime.move_array(array, self._addresses[i] + self._bound.offset(i, entry=entry))
        self._launch_anew(record=False)

  @property
  def module(self) -> Any:
    """The loaded module of the kernel, None for an empty launch."""
    return self._launch and self._launch.module_exec

  def _routine(self) -> shortcut.Routine | None:
    """Returns what `__call__` does without Python, None if that is not one launch."""
    if self._launch is None or self._entries != 1 or not self._takes_pointers:
      return None
    place = self._bound.places
    patches = [
      word for parameter, i in self._slots for word in (runtime.data_address(parameter), place[i])
    ]
    zeros = [word for i in self._zeroed if self._sizes[i] for word in (place[i], self._sizes[i])]
    arrays = [(ctypes.c_uint64 * max(1, len(words)))(*words) for words in (patches, zeros)]
    launch = handler_code.Launch(
      **runtime.launch_parameters(self._launch),
      patch_count=len(patches) // 2,
      patches=ctypes.addressof(arrays[0]),
      zero_count=len(zeros) // 2,
      zeros=ctypes.addressof(arrays[1]),
    )
    launch.keep = arrays, self._launch
    return shortcut.Routine(launch=launch, forget=self._forget)

  def _forget(self) -> None:
    """Lets the next call set its pointers, whatever they are."""
    self._pointers = b""

  def _point(self, entry: int) -> None:
    """Sets the pointers of the recorded launch to those of a batch entry."""
    for parameter, i in self._slots:
      parameter.data = self._addresses[i] + self._bound.offset(i, entry=entry)

  def _entry_arrays(self) -> list[wp.array]:
    bound = self._bound
    shapes = bound.shapes if self._entries == 1 else bound.entry_shapes
    return [
      wp.array(ptr=b.data or None, dtype=arg.type.dtype, shape=shape, device=self._device)
      for arg, b, shape in zip(bound.args, bound.buffers, shapes, strict=True)
    ]

  def _parameters(self, values: Mapping[str, Any]) -> list[tuple[Any, int]]:
    """Returns the array descriptors of the launch, each with the index of its argument."""
    if self._launch is None:
      return []
    index = {arg.name: i for i, arg in enumerate(self._bound.args)}
    names = [arg.label for arg in self._plan.kernel.adj.args]
    names += list(self._plan.adjoint or ())
    pairs = zip(self._launch.params[1:], names, strict=True)
    return [(parameter, index[name]) for parameter, name in pairs if name in index]


def _launch(
  plan: LaunchPlan,
  device: wp.Device,
  *,
  dims: tuple[int, ...],
  values: Mapping[str, Any],
  record: bool,
) -> wp.Launch | None:
  """Launches on the current stream, or returns the recorded launch, None if it has no threads."""
  options: dict[str, Any] = {}
  if plan.adjoint is not None:
    options["adjoint"] = True
    options["adj_inputs"] = [
      _gradient(arg.type, values.get(name) if name else None)
      for arg, name in zip(plan.kernel.adj.args, plan.adjoint, strict=True)
    ]
  launch = wp.launch(
    plan.kernel,
    dim=dims,
    inputs=[values[arg.label] for arg in plan.kernel.adj.args],
    device=device,
    block_dim=plan.block_dim,
    record_cmd=record,
    record_tape=False,
    **options,
  )
  if record and launch is None and int(np.prod(dims)):
    raise RuntimeError(f"kernel {plan.kernel.key} could not be built for {device}")
  return launch


def _gradient(type: Any, array: wp.array | None) -> Any:
  return array if runtime.is_array_annotation(type) else type(0)
