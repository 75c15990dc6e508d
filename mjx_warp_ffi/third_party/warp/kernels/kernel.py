"""A Warp kernel behind an FFI target: what `jax_kernel` returns, without a derivative."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.calls import dispatch, target
from mjx_warp_ffi.third_party.warp.kernels import kernel_launch
from mjx_warp_ffi.third_party.warp.process import preload
from mjx_warp_ffi.third_party.warp.process.preload import ModulePreloadMode
from mjx_warp_ffi.third_party.warp.signature import arguments as args_lib
from mjx_warp_ffi.third_party.warp.signature import names


@dataclasses.dataclass(frozen=True)
class KernelOptions:
  """Everything that tells two wrappers of one kernel apart."""

  num_outputs: int
  vmap_method: str | None
  launch_dims: Any
  output_dims: Any
  in_out_argnames: tuple[str, ...]
  module_preload_mode: ModulePreloadMode
  has_side_effect: bool
  block_dim: int | None


class FfiKernel:
  """A kernel, or its adjoint, that JAX can call. Made by `jax_kernel`."""

  def __init__(
    self,
    kernel: wp.Kernel,
    options: KernelOptions,
    *,
    signature: args_lib.FfiSignature | None = None,
    plan: kernel_launch.LaunchPlan | None = None,
  ):
    """Registers the kernel with XLA.

    Args:
      kernel: The kernel.
      options: How to call it.
      signature: The arguments, by default those of the kernel.
      plan: What to launch with them, by default the kernel itself.
    """
    self.kernel = kernel
    self.options = options
    self.signature = signature or kernel_signature(kernel, options)
    self.plan = plan or kernel_launch.LaunchPlan(kernel, options.block_dim)
    described = f"{names.kernel_options(kernel)} {options} {self.plan.kind}"
    self.name = names.TARGET_NAMES.name("kernel", kernel.func, owner=self, options=described)
    # A graph that XLA captured does not keep the modules of its kernels loaded.
    self._modules: set[Any] = set()
    handler = dispatch.Dispatcher(self._build)
    traits = target.NO_TRAITS if runtime.has_ordered_sums(kernel) else target.CAPTURABLE
    self._target = target.get_or_register(
      self.name,
      lambda: target.Target(self.name, handler, traits=traits, shortcuts=True),
    )

  @property
  def block_dim(self) -> int | None:
    """The number of threads a block; None for Warp's default."""
    return self.options.block_dim

  def __call__(
    self,
    *args,
    output_dims: args_lib.Dims = None,
    launch_dims: int | Sequence[int] | None = None,
    vmap_method: str | None = None,
  ):
    """Launches the kernel on JAX arrays and static scalars.

    Args:
      *args: The inputs, in-outs among them.
      output_dims: Overrides the dimensions of the outputs.
      launch_dims: Overrides the dimensions of the launch.
      vmap_method: Overrides how the call behaves under `jax.vmap`.

    Returns:
      A list of the results, in-outs first.
    """
    arrays, statics = self.signature.split(args)
    given = self.options.launch_dims if launch_dims is None else launch_dims
    dims = self.signature.default_dims(arrays) if given is None else args_lib.hashable_dims(given)
    if dims is None:
      raise ValueError("Failed to determine launch dimensions: pass launch_dims")
    dims = (dims,) if isinstance(dims, int) else dims
    types = self.signature.result_types(
      arrays,
      self.options.output_dims if output_dims is None else output_dims,
      default=dims,
    )
    preload.preload(self.options.module_preload_mode, self.plan.load)
    self._target.complete()
    call = target.ffi_call(
      self.name,
      types,
      vmap_method=self.signature.batching(vmap_method or self.options.vmap_method),
      input_output_aliases=self.signature.aliases,
      has_side_effect=self.options.has_side_effect,
    )
    return call(*arrays, key=self.signature.encode(statics, dims=dims))

  def _build(self, device: wp.Device, shapes: dispatch.CallShapes) -> dispatch.Launcher:
    statics, more = self.signature.decode(shapes.key)
    launcher = kernel_launch.KernelLauncher(
      self.plan, device, signature=self.signature, shapes=shapes, statics=statics, dims=more["dims"]
    )
    self._modules.add(launcher.module)
    return launcher


def kernel_signature(kernel: wp.Kernel, options: KernelOptions) -> args_lib.FfiSignature:
  """Returns the signature of a kernel."""
  if kernel.is_generic:
    raise TypeError(f"kernel {kernel.key} is generic: pass an overload from wp.overload")
  annotations = [(arg.label, arg.type) for arg in kernel.adj.args]
  return args_lib.FfiSignature.make(
    annotations, options.num_outputs, in_out_argnames=options.in_out_argnames
  )
