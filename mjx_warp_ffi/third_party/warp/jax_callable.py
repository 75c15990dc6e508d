"""`jax_callable`: an annotated Python function that launches Warp work, as a JAX function."""

import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp.calls import dispatch, slots, target
from mjx_warp_ffi.third_party.warp.launchers import binding, staged
from mjx_warp_ffi.third_party.warp.launchers.direct import ByAddress, Direct, MakeBody
from mjx_warp_ffi.third_party.warp.launchers.staged import GraphMode
from mjx_warp_ffi.third_party.warp.process import guard, preload
from mjx_warp_ffi.third_party.warp.process.preload import ModulePreloadMode
from mjx_warp_ffi.third_party.warp.signature import arguments as args_lib
from mjx_warp_ffi.third_party.warp.signature import names


@dataclasses.dataclass(frozen=True)
class CallableOptions:
  """Everything that tells two callables of one function apart."""

  num_outputs: int
  graph_mode: GraphMode
  vmap_method: str | None
  output_dims: Any
  in_out_argnames: tuple[str, ...]
  stage_in_argnames: tuple[str, ...] | None
  stage_out_argnames: tuple[str, ...] | None
  module_preload_mode: ModulePreloadMode
  has_side_effect: bool


class FfiCallable:
  """A Python function over Warp arrays that JAX can call. Made by `jax_callable`."""

  def __init__(self, func: Callable[..., None], options: CallableOptions, graph_cache_max):
    """Registers the function with XLA."""
    self.func = func
    self.options = options
    self.signature = args_lib.FfiSignature.make(
      _annotations(func), options.num_outputs, in_out_argnames=options.in_out_argnames
    )
    self.graph_mode = options.graph_mode
    # A graph that XLA captured does not keep the modules of its kernels loaded.
    self._modules: set[Any] = set()
    self.name = names.TARGET_NAMES.name("callable", func, owner=self, options=repr(options))
    self._captures = self.graph_mode not in (GraphMode.NONE, GraphMode.JAX)
    self._dispatcher = dispatch.Dispatcher(
      self._build,
      by_pointer=self.graph_mode == GraphMode.WARP,
      maximum=graph_cache_max,
    )
    traits = target.CAPTURABLE if self.graph_mode == GraphMode.JAX else target.NO_TRAITS
    self._target = target.get_or_register(
      self.name,
      lambda: target.Target(self.name, self._dispatcher, traits=traits, shortcuts=True),
    )

  @property
  def graph_cache_max(self) -> int | None:
    """The number of captured graphs to keep; None for no bound."""
    return self._dispatcher.slots.maximum

  @graph_cache_max.setter
  def graph_cache_max(self, value: int | None) -> None:
    self._dispatcher.slots.maximum = value

  @property
  def graph_cache_size(self) -> int:
    """The number of captured graphs that are held."""
    return len(self._dispatcher.slots) if self._captures else 0

  def clear(self) -> None:
    """Frees graphs and staging buffers; the next call makes them again."""
    self._dispatcher.slots.clear()

  def __call__(self, *args, output_dims: args_lib.Dims = None, vmap_method: str | None = None):
    """Calls the function on JAX arrays and static scalars.

    Args:
      *args: The inputs, in-outs among them.
      output_dims: Overrides the dimensions of the outputs.
      vmap_method: Overrides how the call behaves under `jax.vmap`.

    Returns:
      A list of the results, in-outs first.
    """
    arrays, statics = self.signature.split(args)
    types = self.signature.result_types(
      arrays,
      self.options.output_dims if output_dims is None else output_dims,
      default=self.signature.default_dims(arrays),
    )
    module = wp.get_module(self.func.__module__)
    if module.kernels:
      preload.preload(self.options.module_preload_mode, lambda d: wp.load_module(module, d))
    self._target.complete()
    call = target.ffi_call(
      self.name,
      types,
      vmap_method=self.signature.batching(vmap_method or self.options.vmap_method),
      input_output_aliases=self.signature.aliases,
      has_side_effect=self.options.has_side_effect,
    )
    return call(*arrays, key=self.signature.encode(statics))

  def _body(
    self, statics: dict[str, Any], runs: Sequence[Sequence[wp.array]]
  ) -> Callable[[], None]:
    """Returns what calls the function with static values and the arrays of each run in turn."""
    func = self.func
    arguments = [self.signature.merge(arrays, statics) for arrays in runs]

    def body() -> None:
      for values in arguments:
        func(*values)

    return body

  def _build(self, device: wp.Device, shapes: dispatch.CallShapes) -> dispatch.Launcher:
    statics, _ = self.signature.decode(shapes.key)
    bound = binding.Binding(self.signature, device, inputs=shapes.inputs, outputs=shapes.outputs)
    make_body = functools.partial(self._body, statics)
    if self.graph_mode in (GraphMode.NONE, GraphMode.JAX):
      waits = self.graph_mode == GraphMode.NONE
      return Direct(make_body, bound, modules=self._modules, waits=waits)
    if self.graph_mode == GraphMode.WARP:
      return ByAddress(make_body, bound)
    return self._staged(make_body, bound)

  def _staged(self, make_body: MakeBody, bound: binding.Binding) -> dispatch.Launcher:
    with guard.building(bound.device):
      arrays = bound.empty()
      fixed = {arg.name: array for arg, array in zip(bound.args, arrays, strict=True)}
      moving_in, moving_out = self.options.stage_in_argnames, self.options.stage_out_argnames
      inputs = [arg.name for arg in self.signature.array_inputs]
      outputs = [arg.name for arg in (*self.signature.in_outs, *self.signature.outputs)]
      runs = [arrays] if bound.folds else bound.views([array.ptr or 0 for array in arrays])
      work = staged.Work(
        make_body(runs),
        [fixed[name] if moving_in is None or name in moving_in else None for name in inputs],
        [fixed[name] if moving_out is None or name in moving_out else None for name in outputs],
        first_inputs=[fixed[name] for name in inputs] if moving_in else (),
      )
      return staged.STAGED[self.graph_mode](bound.device, work)


def _annotations(func: Callable[..., None]) -> list[tuple[str, Any]]:
  signature = inspect.signature(func, eval_str=True)
  if signature.return_annotation not in (inspect.Signature.empty, None):
    raise TypeError("Function must not return a value")
  result = []
  for parameter in signature.parameters.values():
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
      raise TypeError(f"argument '{parameter.name}' must be positional")
    if parameter.annotation is inspect.Parameter.empty:
      raise RuntimeError(
        f"Incomplete argument annotations on function {func.__qualname__}: "
        f"'{parameter.name}' has none"
      )
    result.append((parameter.name, parameter.annotation))
  return result


class _Defaults:
  """The settings of the process."""

  def __init__(self):
    self.lock = threading.Lock()
    self.graph_cache_max: int | None = slots.DEFAULT_MAX


_defaults = _Defaults()
_callables: names.Registry[FfiCallable] = names.Registry()
# Tells "not given" from None, which means no bound.
_DEFAULT = -1


def get_jax_callable_default_graph_cache_max() -> int | None:
  """Returns the bound that callables without one of their own get."""
  return _defaults.graph_cache_max


def set_jax_callable_default_graph_cache_max(cache_max: int | None) -> None:
  """Sets the bound for callables made after this; None for no bound."""
  with _defaults.lock:
    _defaults.graph_cache_max = cache_max


def jax_callable(
  func: Callable[..., None],
  num_outputs: int = 1,
  graph_mode: GraphMode = GraphMode.JAX,
  vmap_method: str | None = "broadcast_all",
  output_dims: args_lib.Dims = None,
  in_out_argnames: Sequence[str] | None = None,
  stage_in_argnames: Sequence[str] | None = None,
  stage_out_argnames: Sequence[str] | None = None,
  graph_cache_max: int | None = _DEFAULT,
  module_preload_mode: ModulePreloadMode = ModulePreloadMode.CURRENT_DEVICE,
  has_side_effect: bool = False,
) -> FfiCallable:
  """Makes a JAX function from a Python function that launches Warp work.

  The arguments of the function are annotated as those of a Warp kernel: inputs first, in-outs
  among them, then outputs. Arrays are contiguous, scalars are static. Equal arguments return the
  same object.

  Args:
    func: The function. It must not return a value.
    num_outputs: The number of results, in-outs included.
    graph_mode: How the launches are captured; see `GraphMode`. All modes work on the CPU and on
      CUDA; on the CPU, JAX is the same as NONE.
    vmap_method: As in `jax.ffi.ffi_call`. Batch axes are folded into the first dimension of each
      array, and the function runs once. By "expand_dims" and "legacy_vectorized" an array without
      a batch is not repeated; if there is one, the function runs for each entry, without the axis.
    output_dims: Dimensions of all outputs, or a dict by name. By default those of the first array.
    in_out_argnames: Names of inputs that are results, too, in the same buffer.
    stage_in_argnames: In the staged modes, the inputs to copy in every call; the others keep the
      values of the first call. By default all.
    stage_out_argnames: In the staged modes, the results to copy out. By default all.
    graph_cache_max: How many captured graphs to keep, None for no bound. 32 by default.
    module_preload_mode: Where to load the module of `func` when a call is traced.
    has_side_effect: Run even if no result is used.

  Returns:
    A callable object, with `graph_cache_max` and `graph_cache_size`.

  Raises:
    TypeError: An annotation is missing or invalid.
    ValueError: The numbers or names of arguments do not fit the function.
  """
  options = CallableOptions(
    num_outputs,
    GraphMode(graph_mode),
    vmap_method,
    args_lib.hashable_dims(output_dims),
    tuple(in_out_argnames or ()),
    tuple(stage_in_argnames) if stage_in_argnames else None,
    tuple(stage_out_argnames) if stage_out_argnames else None,
    ModulePreloadMode(module_preload_mode),
    has_side_effect,
  )
  maximum = _defaults.graph_cache_max if graph_cache_max == _DEFAULT else graph_cache_max
  key = (names.content_key(func), options)
  made = _callables.get(key, lambda: FfiCallable(func, options, maximum))
  if graph_cache_max != _DEFAULT:
    made.graph_cache_max = maximum
  return made


def clear_jax_callable_graph_cache(callable: FfiCallable | None = None) -> None:
  """Frees the graphs and staging buffers of one callable, or of all."""
  for item in _callables.values() if callable is None else (callable,):
    item.clear()
