"""`jax_kernel`: a Warp kernel as a JAX function."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp.kernels.kernel import FfiKernel, KernelOptions
from mjx_warp_ffi.third_party.warp.kernels.kernel_vjp import DifferentiableKernel
from mjx_warp_ffi.third_party.warp.process.preload import ModulePreloadMode
from mjx_warp_ffi.third_party.warp.signature import arguments as args_lib
from mjx_warp_ffi.third_party.warp.signature import names

_kernels: names.Registry[Callable] = names.Registry()


def jax_kernel(
  kernel: wp.Kernel,
  num_outputs: int = 1,
  vmap_method: str | None = "broadcast_all",
  launch_dims: int | Sequence[int] | None = None,
  output_dims: args_lib.Dims = None,
  in_out_argnames: Sequence[str] | None = None,
  module_preload_mode: ModulePreloadMode = ModulePreloadMode.CURRENT_DEVICE,
  enable_backward: bool = False,
  has_side_effect: bool = False,
  block_dim: int | None = None,
):
  """Makes a JAX function from a Warp kernel.

  The arguments of the kernel are inputs first, in-outs among them, then outputs. Arrays are
  contiguous, scalars are static. Equal arguments return the same object.

  Under `jax.vmap` a kernel that uses its first thread index only to index its arrays is launched
  once for the whole batch, any other kernel once for each entry.

  Args:
    kernel: The kernel.
    num_outputs: The number of results, in-outs included.
    vmap_method: As in `jax.ffi.ffi_call`. By "expand_dims" and "legacy_vectorized" an array without
      a batch is not repeated; if there is one, the kernel is launched for each entry.
    launch_dims: Dimensions of the launch. By default those of the first array.
    output_dims: Dimensions of all outputs, or a dict by name. By default those of the launch.
    in_out_argnames: Names of inputs that are results, too, in the same buffer.
    module_preload_mode: Where to load the kernel's module when a call is traced.
    enable_backward: Give the function a reverse-mode derivative from the kernel's adjoint. The
      outputs then start at zero, and the call takes no overrides.
    has_side_effect: Run even if no result is used.
    block_dim: Threads a block.

  Returns:
    A function of the inputs that returns a list of the results.

  Raises:
    NotImplementedError: `enable_backward` with in-outs or `output_dims`.
    TypeError: An annotation is invalid.
    ValueError: The numbers or names of arguments do not fit the kernel.
  """
  options = KernelOptions(
    num_outputs,
    vmap_method,
    args_lib.hashable_dims(launch_dims),
    args_lib.hashable_dims(output_dims),
    tuple(in_out_argnames or ()),
    ModulePreloadMode(module_preload_mode),
    has_side_effect,
    _checked_block_dim(block_dim),
  )
  content = names.content_key(kernel.func), names.kernel_options(kernel)
  if enable_backward:
    return _kernels.get((content, options, "vjp"), lambda: DifferentiableKernel(kernel, options))
  return _kernels.get((content, options), lambda: FfiKernel(kernel, options))


def _checked_block_dim(block_dim: Any) -> int | None:
  if block_dim is None:
    return None
  try:
    if isinstance(block_dim, bool):
      raise TypeError
    block_dim = operator.index(block_dim)
  except TypeError:
    raise TypeError("jax_kernel(): block_dim must be an integer or None.") from None
  if block_dim <= 0:
    raise ValueError("jax_kernel(): block_dim must be positive.")
  return block_dim
