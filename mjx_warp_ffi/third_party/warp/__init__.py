"""Warp work as JAX functions, through XLA's FFI, on CUDA and on the CPU."""

from mjx_warp_ffi.third_party.warp.callback import ExecutionContext as ExecutionContext
from mjx_warp_ffi.third_party.warp.callback import FfiBuffer as FfiBuffer
from mjx_warp_ffi.third_party.warp.callback import check_jax_version as check_jax_version
from mjx_warp_ffi.third_party.warp.callback import register_ffi_callback as register_ffi_callback
from mjx_warp_ffi.third_party.warp.jax_callable import (
  clear_jax_callable_graph_cache as clear_jax_callable_graph_cache,
)
from mjx_warp_ffi.third_party.warp.jax_callable import (
  get_jax_callable_default_graph_cache_max as get_jax_callable_default_graph_cache_max,
)
from mjx_warp_ffi.third_party.warp.jax_callable import jax_callable as jax_callable
from mjx_warp_ffi.third_party.warp.jax_callable import (
  set_jax_callable_default_graph_cache_max as set_jax_callable_default_graph_cache_max,
)
from mjx_warp_ffi.third_party.warp.jax_kernel import jax_kernel as jax_kernel
from mjx_warp_ffi.third_party.warp.launchers.staged import Early as Early
from mjx_warp_ffi.third_party.warp.launchers.staged import GraphMode as GraphMode
from mjx_warp_ffi.third_party.warp.launchers.staged import (
  JaxCallableGraphMode as JaxCallableGraphMode,
)
from mjx_warp_ffi.third_party.warp.process.preload import (
  JaxModulePreloadMode as JaxModulePreloadMode,
)
from mjx_warp_ffi.third_party.warp.process.preload import ModulePreloadMode as ModulePreloadMode
from mjx_warp_ffi.third_party.warp.program import Program as Program
from mjx_warp_ffi.third_party.warp.program import clear_programs as clear_programs
from mjx_warp_ffi.third_party.warp.program import jax_program as jax_program
from mjx_warp_ffi.third_party.warp.program import live_programs as live_programs
from mjx_warp_ffi.third_party.warp.program import prepare_programs as prepare_programs
from mjx_warp_ffi.third_party.warp.signature.arguments import FfiArg as FfiArg
