"""Warp work as JAX functions, through XLA's FFI."""

from mjx_warp_ffi.third_party.warp.graphs import GraphMode as GraphMode
from mjx_warp_ffi.third_party.warp.graphs import JaxCallableGraphMode as JaxCallableGraphMode
from mjx_warp_ffi.third_party.warp.program import Program as Program
from mjx_warp_ffi.third_party.warp.program import clear_programs as clear_programs
from mjx_warp_ffi.third_party.warp.program import jax_program as jax_program
from mjx_warp_ffi.third_party.warp.program import live_programs as live_programs
from mjx_warp_ffi.third_party.warp.program import prepare_programs as prepare_programs
