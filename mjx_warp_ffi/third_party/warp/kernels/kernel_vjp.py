"""Reverse-mode derivatives of kernels, from the adjoints that Warp generates."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import warp as wp

from mjx_warp_ffi.third_party.warp.kernels import kernel as kernel_lib
from mjx_warp_ffi.third_party.warp.kernels import kernel_launch
from mjx_warp_ffi.third_party.warp.signature import arguments as args_lib

_ADJOINT = "adj_"
_MAX_FUNCTIONS = 64


class DifferentiableKernel:
  """A kernel that JAX can call and differentiate. Made by `jax_kernel(enable_backward=True)`."""

  def __init__(self, kernel: wp.Kernel, options: kernel_lib.KernelOptions):
    """Registers the kernel and its adjoint.

    Raises:
      NotImplementedError: An option that has no derivative.
      ValueError: The kernel has no adjoint.
    """
    if options.in_out_argnames:
      raise NotImplementedError(
        "jax_kernel(): Input-output arguments (in_out_argnames) are not supported when "
        "enable_backward=True: the adjoint needs the input as it was"
      )
    if options.output_dims is not None:
      raise NotImplementedError(
        "jax_kernel(): output_dims is not supported when enable_backward=True; outputs have the "
        "dimensions of the launch"
      )
    if not kernel.options.get("enable_backward", kernel.module.options["enable_backward"]):
      raise ValueError(f"kernel {kernel.key} was made with enable_backward=False")
    self.kernel = kernel
    self.options = options
    self.signature = kernel_lib.kernel_signature(kernel, options)
    names = tuple(arg.name for arg in self.signature.outputs)
    forward = kernel_launch.LaunchPlan(kernel, options.block_dim, zeroed=names)
    self._forward = kernel_lib.FfiKernel(kernel, options, plan=forward)
    self._backward = self._make_backward()
    self._function = functools.lru_cache(maxsize=_MAX_FUNCTIONS)(self._make_function)

  @property
  def block_dim(self) -> int | None:
    """The number of threads a block; None for Warp's default."""
    return self.options.block_dim

  def __call__(self, *args, **overrides):
    """Launches the kernel on JAX arrays and static scalars; returns a list of the results."""
    if overrides:
      raise TypeError(
        f"jax_kernel(): {', '.join(sorted(overrides))} cannot be overridden per call when "
        "enable_backward=True; make another wrapper with jax_kernel()"
      )
    arrays, statics = self.signature.split(args)
    self._check_launch(arrays)
    return self._function(self.signature.encode(statics))(*args_lib.varying_alike(arrays))

  def _check_launch(self, arrays: Sequence[Any]) -> None:
    """Raises `ValueError` if threads would repeat, which a gradient counts more than once."""
    dims = self.options.launch_dims
    if isinstance(dims, int):
      dims = (dims,)
    if dims is None:
      dims = self.signature.default_dims(arrays) or ()
    self.kernel.module.get_module_hash()  # finds out the dimensions of the thread index
    expected = self.kernel.adj.kernel_dim
    if len(dims) > expected:
      raise ValueError(
        f"kernel {self.kernel.key} uses {expected} thread indices, but would be launched over "
        f"{tuple(dims)}, so its gradient would be counted more than once: pass launch_dims with "
        f"{expected} dimensions"
      )

  def _make_backward(self) -> kernel_lib.FfiKernel:
    """The adjoint takes inputs, outputs and their gradients, and returns those of the inputs."""
    signature = self.signature
    results = [arg for arg in signature.outputs if _is_float(arg)]
    wanted = [arg for arg in signature.array_inputs if _is_float(arg)]
    backward = args_lib.FfiSignature(
      (*signature.inputs, *signature.outputs, *map(_adjoint_arg, results)),
      tuple(map(_adjoint_arg, wanted)),
    )
    named = {arg.name for arg in (*results, *wanted)}
    plan = kernel_launch.LaunchPlan(
      self.kernel,
      self.options.block_dim,
      adjoint=tuple(
        _ADJOINT + arg.label if arg.label in named else None for arg in self.kernel.adj.args
      ),
      zeroed=tuple(arg.name for arg in backward.outputs),
    )
    options = dataclasses.replace(self.options, has_side_effect=False)
    return kernel_lib.FfiKernel(self.kernel, options, signature=backward, plan=plan)

  def _make_function(self, key: str):
    """Returns the function of the arrays for these statics."""
    signature = self.signature
    statics, _ = signature.decode(key.encode())

    @jax.custom_vjp
    def function(*arrays):
      return self._forward(*signature.merge(arrays, statics))

    def forward(*arrays):
      results = function(*arrays)
      return results, (arrays, tuple(results))

    def backward(residuals, cotangents):
      arrays, results = residuals
      gradients = self._adjoint(arrays, results, statics=statics, cotangents=cotangents)
      return tuple(
        gradients.get(arg.name) if _is_float(arg) else None for arg in signature.array_inputs
      )

    function.defvjp(forward, backward)
    return function

  def _adjoint(self, arrays, results, *, statics, cotangents) -> dict[str, Any]:
    signature = self.signature
    wanted = [
      (arg, array)
      for arg, array in zip(signature.array_inputs, arrays, strict=True)
      if _is_float(arg)
    ]
    if not wanted:
      return {}
    given = [
      cotangent
      for arg, cotangent in zip(signature.outputs, cotangents, strict=True)
      if _is_float(arg)
    ]
    inputs = [*signature.merge(arrays, statics), *results, *given]
    dims = {_ADJOINT + arg.name: array.shape for arg, array in wanted}
    found = self._backward(*inputs, output_dims=dims)
    return dict(zip((arg.name for arg, _ in wanted), found, strict=True))


def _adjoint_arg(arg: args_lib.FfiArg) -> args_lib.FfiArg:
  return args_lib.FfiArg(_ADJOINT + arg.name, arg.type)


def _is_float(arg: args_lib.FfiArg) -> bool:
  return jnp.issubdtype(arg.jax_scalar_type, jnp.floating)
