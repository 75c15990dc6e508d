"""Programs: work over fixed Warp buffers, called from JAX with copies in and out."""

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Sequence

import jax
import warp as wp

from mjx_warp_ffi.third_party.warp import args as args_lib
from mjx_warp_ffi.third_party.warp import cache, copies, graphs, guard, target
from mjx_warp_ffi.third_party.warp import call as call_lib
from mjx_warp_ffi.third_party.warp.graphs import GraphMode

_PREFIX = "mjx_warp_ffi."


@dataclasses.dataclass(frozen=True)
class Program:
  """Work over fixed Warp buffers.

  A call copies its arguments to `inputs`, runs `body()` and copies `outputs` to its results. The
  body is run once uncaptured and, in the WARP modes, once while it is captured; after that only
  the recorded launches run.

  Attributes:
    inputs: Contiguous arrays; the i-th FFI argument has the same number of bytes.
    outputs: Contiguous arrays; the i-th FFI result likewise. An array may be in both.
    body: Launches Warp work on the current device and stream; reads inputs, writes outputs.
    keep: Anything that must live as long as the program.
  """

  inputs: tuple[wp.array, ...]
  outputs: tuple[wp.array, ...]
  body: Callable[[], None]
  keep: object = None


@dataclasses.dataclass(frozen=True)
class _Recipe:
  """How to make a program, and the bytes of the arguments and results of its calls."""

  make: Callable[[wp.Device], Program]
  mode: GraphMode
  argument_bytes: tuple[int, ...]
  result_bytes: tuple[int, ...]


class _Registry:
  """The recipes and live programs of one target."""

  def __init__(self, name: str):
    self.name = name
    self.recipes: dict[bytes, _Recipe] = {}
    self.slots = cache.SlotCache()

  def run(self, call: call_lib.Call) -> None:
    """Runs one call from XLA."""
    key, ordinal, stream = call.key, call.ordinal, call.stream
    pointers = call.pointers()
    slot = self.slots.acquire((key, call.platform, ordinal))
    try:
      if slot.value is None:
        device = call_lib.warp_device(call.platform, ordinal)
        slot.value = (device, self.build(key, device))
      device, launcher = slot.value
      slot.begin(stream)
      launcher(pointers, stream)
      slot.end(device, stream)
    finally:
      slot.lock.release()

  def build(self, key: bytes, device: wp.Device):
    """Returns the launcher of a program, not yet captured."""
    recipe = self.recipes.get(key)
    if recipe is None:
      raise KeyError(
        f"no program {key.decode()} of {self.name} in this process: a compiled function from "
        "another process runs after the function that made it was traced here once"
      )
    with guard.building(device):
      program = recipe.make(device)
      _check(program.inputs, recipe.argument_bytes, "input")
      _check(program.outputs, recipe.result_bytes, "output")
      work = graphs.Work(program.body, program.inputs, program.outputs, keep=program)
      return graphs.STAGED[recipe.mode](device, work)


_registries: dict[str, _Registry] = {}
_lock = threading.Lock()


def _registry(name: str) -> _Registry:
  with _lock:
    if name not in _registries:
      registry = _registries[name] = _Registry(name)
      full_name = _PREFIX + name
      target.get_or_register(full_name, lambda: target.Target(full_name, registry.run))
    return _registries[name]


def _check(arrays: Sequence[wp.array], expected: Sequence[int], kind: str) -> None:
  if len(arrays) != len(expected):
    raise ValueError(f"the program has {len(arrays)} {kind}s, the call {len(expected)}")
  for i, (array, size) in enumerate(zip(arrays, expected, strict=True)):
    if not array.is_contiguous:
      raise ValueError(f"{kind} {i} of the program is not contiguous")
    if copies.byte_count(array) != size:
      raise ValueError(
        f"{kind} {i} of the program has {copies.byte_count(array)} bytes, the call {size}"
      )


def _signature(values) -> tuple[tuple[tuple[int, ...], str], ...]:
  return tuple((tuple(value.shape), str(value.dtype)) for value in values)


def _bytes(values) -> tuple[int, ...]:
  return tuple(value.size * value.dtype.itemsize for value in values)


def jax_program(
  name: str,
  make: Callable[[wp.Device], Program],
  *,
  key: str,
  result_types: Sequence[jax.ShapeDtypeStruct],
  input_output_aliases: dict[int, int] | None = None,
  graph_mode: GraphMode = GraphMode.WARP_STAGED,
  has_side_effect: bool = False,
) -> Callable[..., tuple[jax.Array, ...]]:
  """Returns a JAX function that runs a program.

  Args:
    name: Names the FFI target, `mjx_warp_ffi.<name>`; the same in every process.
    make: Builds the program on a device. Called on the first execution there, with the device
      current, and again after an eviction.
    key: A digest of what `make` builds. With the shapes and dtypes of a call it identifies the
      program, also in other processes; the first `make` of an identity stays.
    result_types: Shapes and dtypes of the results.
    input_output_aliases: Argument index -> index of the result that shares its buffer.
    graph_mode: NONE, WARP_STAGED or WARP_STAGED_EX.
    has_side_effect: Run even when no result is used.

  Returns:
    A function from arrays to a tuple of arrays, one FFI call. It has no batching rule.

  Raises:
    ValueError: The graph mode is not one that works on fixed buffers.
  """
  graph_mode = GraphMode(graph_mode)
  if graph_mode not in graphs.STAGED:
    raise ValueError(
      f"a program works on fixed buffers, which GraphMode.{graph_mode.name} does not use; "
      f"valid modes are {', '.join(mode.name for mode in graphs.STAGED)}"
    )
  registry = _registry(name)
  result_types = tuple(result_types)

  def call(*args) -> tuple[jax.Array, ...]:
    identity = (key, graph_mode.name, _signature(args), _signature(result_types))
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    full_key = f"{key}.{digest}"
    recipe = _Recipe(make, graph_mode, _bytes(args), _bytes(result_types))
    registry.recipes.setdefault(full_key.encode(), recipe)
    results = jax.ffi.ffi_call(
      _PREFIX + name,
      args_lib.varying_like(result_types, args),
      input_output_aliases=input_output_aliases,
      has_side_effect=has_side_effect,
    )(*args, key=full_key)
    return tuple(results)

  return call


def prepare_programs(name: str, key: str, device: jax.Device) -> int:
  """Builds and captures the programs of a key on a device, ahead of their first call.

  Only programs that a call was traced for are known. The body runs once on what `make` left in
  the input buffers.

  Args:
    name: As in `jax_program`.
    key: As in `jax_program`.
    device: The JAX device.

  Returns:
    The number of programs that are ready.
  """
  registry = _registry(name)
  platform = "cpu" if device.platform == "cpu" else "CUDA"
  ordinal = device.local_hardware_id or 0
  keys = [known for known in registry.recipes if known.startswith(f"{key}.".encode())]
  for known in keys:
    slot = registry.slots.acquire((known, platform, ordinal))
    try:
      warp_device = call_lib.warp_device(platform, ordinal)
      if slot.value is None:
        slot.value = (warp_device, registry.build(known, warp_device))
      stream = graphs.private_stream(warp_device).cuda_stream if warp_device.is_cuda else 0
      slot.begin(stream)
      slot.value[1].warm(stream)
      slot.end(warp_device, stream)
    finally:
      slot.lock.release()
  return len(keys)


def clear_programs(name: str | None = None) -> None:
  """Frees the graphs, copies and buffers of the programs of one target, or of all.

  The next call of a freed program makes it anew.
  """
  with _lock:
    registries = [r for r in _registries.values() if name is None or r.name == name]
  for registry in registries:
    registry.slots.clear()


def live_programs(name: str) -> int:
  """Returns the number of programs of a target that are held."""
  return len(_registry(name).slots)
