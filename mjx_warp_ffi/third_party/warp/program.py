"""Programs: work over fixed Warp buffers, called from JAX with copies in and out.

`mjx/warp/ffi.py` makes the step of MuJoCo Warp one, for it works on a Model and a Data that stay.
"""

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
import warp as wp

from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.calls import dispatch, target
from mjx_warp_ffi.third_party.warp.launchers import binding, copies, staged
from mjx_warp_ffi.third_party.warp.launchers.staged import GraphMode
from mjx_warp_ffi.third_party.warp.process import guard
from mjx_warp_ffi.third_party.warp.signature import arguments as args_lib

_PREFIX = "mjx_warp_ffi."


@dataclasses.dataclass(frozen=True)
class Program:
  """Work over fixed Warp buffers.

  A call copies its arguments to `inputs`, runs `body()` and copies `outputs` to its results. The
  body is run once uncaptured and, in the WARP modes, once while it is captured; after that only
  the recorded launches run.

  Attributes:
    inputs: Contiguous arrays; the i-th FFI argument has the same number of bytes. Several arrays
      in a tuple are one argument, their concatenation.
    outputs: Contiguous arrays; the i-th FFI result likewise. An array may be in both.
    body: Launches Warp work on the current device and stream; reads inputs, writes outputs.
    early: The outputs that the body may hand out before it ends.
    rehearsal: Whether the body may run once more ahead of its first run, without launching any
      kernel, so that their modules can be compiled side by side.
    keep: Anything that must live as long as the program.
  """

  inputs: tuple[wp.array | tuple[wp.array, ...], ...]
  outputs: tuple[wp.array, ...]
  body: Callable[[], None]
  early: staged.Early = dataclasses.field(default_factory=staged.Early)
  rehearsal: bool = False
  keep: object = None


@dataclasses.dataclass(frozen=True)
class _Recipe:
  """How to make a program, and the calls that it serves."""

  make: Callable[[wp.Device], Program]
  mode: GraphMode
  shapes: dispatch.CallShapes


class _ProgramTarget:
  """A target: the recipes of its programs, and the programs that are made."""

  def __init__(self, name: str):
    self.name = name
    self.recipes: dict[bytes, _Recipe] = {}
    self.dispatcher = dispatch.Dispatcher(self._build)

  def _build(self, device: wp.Device, shapes: dispatch.CallShapes) -> dispatch.Launcher:
    recipe = self.recipes.get(shapes.key)
    if recipe is None:
      raise KeyError(
        f"no program {shapes.key.decode()} of {self.name} in this process: a compiled function "
        "from another process runs after the function that made it was traced here once"
      )
    with guard.building(device):
      program = recipe.make(device)
      _check(program.inputs, shapes.inputs, "input")
      _check(program.outputs, shapes.outputs, "output")
      work = staged.Work(
        program.body,
        program.inputs,
        program.outputs,
        early=program.early,
        rehearsal=program.rehearsal,
        keep=program,
      )
      return staged.STAGED[recipe.mode](device, work)


_registries: dict[str, _ProgramTarget] = {}
_lock = threading.Lock()


def _registry(name: str) -> _ProgramTarget:
  if " " in name:
    raise ValueError(f"the name of a program must have no space, got {name!r}")
  with _lock:
    if name not in _registries:
      _registries[name] = _ProgramTarget(name)
    registry = _registries[name]
  full_name = _PREFIX + name
  target.get_or_register(
    full_name, lambda: target.Target(full_name, registry.dispatcher, shortcuts=True)
  ).complete()
  return registry


def _check(places: Sequence[copies.Fixed], buffers: Sequence[xla_ffi.Buffer], kind: str) -> None:
  if len(places) != len(buffers):
    raise ValueError(f"the program has {len(places)} {kind}s, the call {len(buffers)}")
  for i, (place, buffer) in enumerate(zip(places, buffers, strict=True)):
    arrays = copies.parts(place)
    if not all(array.is_contiguous for array in arrays):
      raise ValueError(f"{kind} {i} of the program is not contiguous")
    have, want = sum(map(copies.byte_count, arrays)), binding.byte_size(buffer)
    if have != want:
      raise ValueError(f"{kind} {i} of the program has {have} bytes, the call {want}")


def _buffers(values: Iterable[Any]) -> tuple[xla_ffi.Buffer, ...]:
  return tuple(xla_ffi.Buffer(0, np.dtype(v.dtype), tuple(v.shape)) for v in values)


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
    ValueError: The graph mode is not one that works on fixed buffers, or the name has a space.
  """
  graph_mode = GraphMode(graph_mode)
  if graph_mode not in staged.STAGED:
    raise ValueError(
      f"a program works on fixed buffers, which GraphMode.{graph_mode.name} does not use; "
      f"valid modes are {', '.join(mode.name for mode in staged.STAGED)}"
    )
  registry = _registry(name)
  result_types = tuple(result_types)

  def call(*args) -> tuple[jax.Array, ...]:
    inputs, outputs = _buffers(args), _buffers(result_types)
    identity = repr((key, graph_mode.name, inputs, outputs))
    full_key = f"{key}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    shapes = dispatch.CallShapes(full_key.encode(), inputs, outputs)
    registry.recipes.setdefault(shapes.key, _Recipe(make, graph_mode, shapes))
    results = target.ffi_call(
      _PREFIX + name,
      args_lib.varying_like(result_types, args),
      input_output_aliases=input_output_aliases,
      has_side_effect=has_side_effect,
    )(*args, key=full_key)
    return tuple(results)

  return call


def prepare_programs(name: str, key: str, *, device: jax.Device) -> int:
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
  recipes = [r for k, r in registry.recipes.items() if k.startswith(f"{key}.".encode())]
  for recipe in recipes:
    registry.dispatcher.prepare(recipe.shapes, device)
  return len(recipes)


def clear_programs(name: str | None = None) -> None:
  """Frees the graphs, copies and buffers of the programs of one target, or of all.

  The next call of a freed program makes it anew.
  """
  with _lock:
    registries = [r for r in _registries.values() if name is None or r.name == name]
  for registry in registries:
    registry.dispatcher.slots.clear()


def live_programs(name: str) -> int:
  """Returns the number of programs of a target that are held."""
  return len(_registry(name).dispatcher.slots)
