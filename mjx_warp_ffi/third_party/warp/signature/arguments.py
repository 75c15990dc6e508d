"""Annotated arguments: what JAX must pass for them, and what Warp receives.

`jax_kernel` and `jax_callable` read the annotations here when they wrap something, check the
arguments when JAX traces a call, and get the static ones back from the text of a call that runs.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import warp as wp

from mjx_warp_ffi.third_party.warp import runtime

Dims = int | Sequence[int] | Mapping[str, int | Sequence[int]] | None
_PYTHON_SCALARS = {bool: wp.bool, int: wp.int32, float: wp.float32}


class FfiArg:
  """An annotated argument of a kernel or callable.

  Attributes:
    name: its name.
    type: its annotation.
    in_out: whether it is an input whose buffer is also a result.
    is_array: whether it is an array; otherwise it is a static scalar.
    dtype_shape: the shape of one element, `(3,)` for `vec3`.
    dtype_ndim: the length of `dtype_shape`.
    jax_scalar_type: the JAX dtype.
    warp_ndim: the number of dimensions in Warp.
    jax_ndim: the number of dimensions in JAX, those of the element included.
  """

  def __init__(self, name: str, type: Any, in_out: bool = False):
    """Reads the annotation.

    Raises:
      TypeError: It is neither an array of scalars, vectors or matrices nor a scalar.
    """
    self.name = name
    self.type = type
    self.in_out = in_out
    self.is_array = runtime.is_array_annotation(type)
    element = type.dtype if self.is_array else type
    self.dtype_shape: tuple[int, ...] = ()
    if self.is_array and hasattr(element, "_wp_scalar_type_"):
      self.dtype_shape = tuple(element._shape_)
      element = element._wp_scalar_type_
    element = _PYTHON_SCALARS.get(element, element)
    if not wp.types.type_is_scalar(element) and element is not wp.bool:
      expected = "an array of scalars, vectors or matrices, or a scalar"
      raise TypeError(f"Invalid type for argument '{name}', expected {expected}, got {type}")
    self.jax_scalar_type = wp.dtype_to_jax(element)
    self.dtype_ndim = len(self.dtype_shape)
    self.warp_ndim = type.ndim if self.is_array else 0
    self.jax_ndim = self.warp_ndim + self.dtype_ndim

  @functools.cached_property
  def itemsize(self) -> int:
    """Bytes of one element."""
    return int(np.prod(self.dtype_shape, dtype=int)) * np.dtype(self.jax_scalar_type).itemsize

  def check(self, value: Any) -> None:
    """Raises `TypeError` if an array does not fit the annotation."""
    if not hasattr(value, "dtype") or not hasattr(value, "ndim"):
      raise TypeError(f"Argument '{self.name}' must be an array, got {type(value).__name__}")
    if value.dtype != self.jax_scalar_type:
      expected = np.dtype(self.jax_scalar_type)
      hint = "" if expected.itemsize < 8 else " (64-bit types need jax_enable_x64)"
      raise TypeError(
        f"Invalid data type for array argument '{self.name}', expected {expected}, "
        f"got {value.dtype}{hint}"
      )
    if value.ndim != self.jax_ndim:
      raise TypeError(
        f"Invalid dimensionality for array argument '{self.name}', expected {self.jax_ndim} "
        f"dimensions, got {value.ndim}; under jax.vmap the batch axis is not counted"
      )
    inner = tuple(value.shape[self.warp_ndim :])
    if inner != self.dtype_shape:
      raise TypeError(
        f"Invalid inner dimensions for array argument '{self.name}', expected "
        f"{self.dtype_shape}, got {inner}"
      )

  def static(self, value: Any) -> Any:
    """Returns a static value in the annotated type; `ValueError` for a traced one."""
    if isinstance(value, jax.core.Tracer):
      raise ValueError(
        f"Argument '{self.name}' must be a static value, not a traced one: close over it, mark it "
        "static in jax.jit, or annotate it as an array"
      )
    return self.type(getattr(value, "value", value))  # Warp's scalars hold a Python number

  def result_type(self, dims: int | Sequence[int]) -> jax.ShapeDtypeStruct:
    """Returns the JAX type of an output with these Warp or JAX dimensions."""
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(dims) == self.warp_ndim:
      dims += self.dtype_shape
    if len(dims) != self.jax_ndim or dims[self.warp_ndim :] != self.dtype_shape:
      raise ValueError(
        f"Invalid output dimensions for argument '{self.name}': {dims}; expected "
        f"{self.warp_ndim}, with the element shape {self.dtype_shape} after them or left out"
      )
    return jax.ShapeDtypeStruct(dims, self.jax_scalar_type)


@dataclasses.dataclass(frozen=True)
class FfiSignature:
  """The arguments of a kernel or callable: inputs, with in-outs among them, then outputs."""

  inputs: tuple[FfiArg, ...]
  outputs: tuple[FfiArg, ...]

  @classmethod
  def make(
    cls,
    annotations: Iterable[tuple[str, Any]],
    num_outputs: int,
    *,
    in_out_argnames: Sequence[str] = (),
  ) -> "FfiSignature":
    """Returns the signature of annotated arguments.

    Args:
      annotations: Names and annotations in order.
      num_outputs: The number of results, in-outs included.
      in_out_argnames: Names of the inputs that are results, too.

    Raises:
      TypeError: An annotation is not of a valid type.
      ValueError: The numbers or names do not fit the arguments.
    """
    annotations, wanted = list(annotations), set(in_out_argnames)
    _check_counts(len(annotations), num_outputs, list(in_out_argnames))
    args = [FfiArg(name, type, name in wanted) for name, type in annotations]
    count = len(args) - num_outputs + len(wanted)
    unknown = wanted - {arg.name for arg in args}
    if unknown:
      raise ValueError(f"in_out_argnames: {sorted(unknown)} did not match any argument names")
    for arg in args[count:]:
      if arg.in_out:
        raise ValueError(
          f"Expected an output-only argument for argument {arg.name}: in-out arguments go before "
          "output-only arguments"
        )
    for arg in args:
      if not arg.is_array and (arg.in_out or arg in args[count:]):
        raise TypeError(f"All output arguments must be arrays, '{arg.name}' is not")
    return cls(tuple(args[:count]), tuple(args[count:]))

  @functools.cached_property
  def array_inputs(self) -> tuple[FfiArg, ...]:
    """The inputs that are FFI arguments."""
    return tuple(arg for arg in self.inputs if arg.is_array)

  @functools.cached_property
  def in_outs(self) -> tuple[FfiArg, ...]:
    """The inputs that are results, too; their results come first."""
    return tuple(arg for arg in self.inputs if arg.in_out)

  @functools.cached_property
  def arrays(self) -> tuple[FfiArg, ...]:
    """All array arguments, each once, in order."""
    return self.array_inputs + self.outputs

  @functools.cached_property
  def aliases(self) -> dict[int, int]:
    """FFI argument index -> FFI result index of the in-outs."""
    return {self.array_inputs.index(arg): i for i, arg in enumerate(self.in_outs)}

  def batching(self, vmap_method: str | None) -> str | None:
    """Returns the `vmap_method` that `jax.ffi.ffi_call` is given for that of a caller.

    Batch axes are folded, so that an axis of size 1 looks like no axis: the legacy method is
    "expand_dims". The buffer of an in-out is that of a result, which has every batch axis.
    """
    if vmap_method not in ("expand_dims", "legacy_vectorized"):
      return vmap_method
    return "broadcast_all" if self.in_outs else "expand_dims"

  def split(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the checked arrays and the static values by name."""
    if len(values) != len(self.inputs):
      names = ", ".join(arg.name for arg in self.inputs)
      raise ValueError(f"Expected {len(self.inputs)} inputs ({names}), but got {len(values)}")
    arrays, statics = [], {}
    for arg, value in zip(self.inputs, values, strict=True):
      if arg.is_array:
        arg.check(value)
        arrays.append(value)
      else:
        statics[arg.name] = arg.static(value)
    return arrays, statics

  def merge(self, arrays: Sequence[Any], statics: Mapping[str, Any]) -> list[Any]:
    """Returns arrays and statics in the order of the arguments; the reverse of `split`."""
    remaining = iter(arrays)
    inputs = [next(remaining) if arg.is_array else statics[arg.name] for arg in self.inputs]
    return inputs + list(remaining)

  def default_dims(self, arrays: Sequence[Any]) -> tuple[int, ...] | None:
    """Returns the Warp shape of the first array, None if there is none."""
    if not arrays:
      return None
    return tuple(arrays[0].shape[: self.array_inputs[0].warp_ndim])

  def result_types(
    self, arrays: Sequence[Any], output_dims: Dims, *, default: Sequence[int] | None
  ) -> list[jax.ShapeDtypeStruct]:
    """Returns the types of all results, in-outs first."""
    by_name = dict(zip((arg.name for arg in self.array_inputs), arrays, strict=True))
    types = [arg.result_type(by_name[arg.name].shape) for arg in self.in_outs]
    given = default if output_dims is None else output_dims
    types += [arg.result_type(_dims_of(arg, given)) for arg in self.outputs]
    return varying_like(types, arrays)

  def encode(self, statics: Mapping[str, Any], **more: Any) -> str:
    """Returns statics and more as the text that travels with the call."""
    plain = {name: _plain(value) for name, value in statics.items()}
    return json.dumps([plain, more], separators=(",", ":"), sort_keys=True)

  def decode(self, text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what `encode` was given."""
    plain, more = json.loads(text)
    types = {arg.name: arg.type for arg in self.inputs}
    return {name: types[name](_parse(value)) for name, value in plain.items()}, more


def _check_counts(args: int, num_outputs: int, in_outs: list[str]) -> None:
  if num_outputs < 1:
    raise ValueError("At least one output is required")
  if num_outputs > args:
    raise ValueError("Number of outputs cannot be greater than the number of arguments")
  if len(set(in_outs)) != len(in_outs):
    raise ValueError("in_out_argnames must not contain duplicate names")
  if num_outputs < len(in_outs):
    raise ValueError("Number of outputs cannot be smaller than the number of in_out_argnames")


def _dims_of(output: FfiArg, given: Dims) -> int | Sequence[int]:
  """Returns the dimensions of an output among those that were given for all outputs."""
  if given is None:
    raise ValueError("Unable to determine output dimensions: pass output_dims")
  if not isinstance(given, Mapping):
    return given
  if output.name not in given:
    raise ValueError(f"Missing output dimensions for argument '{output.name}'")
  return given[output.name]


def _plain(value: Any) -> bool | int | str:
  value = getattr(value, "value", value)
  return float(value).hex() if isinstance(value, float | np.floating) else value


def _parse(value: bool | int | str) -> Any:
  return float.fromhex(value) if isinstance(value, str) else value


def hashable_dims(dims: Dims) -> Any:
  """Returns dimensions as nested tuples."""
  if isinstance(dims, Mapping):
    return tuple(sorted((name, hashable_dims(value)) for name, value in dims.items()))
  if dims is None or isinstance(dims, int):
    return dims
  return tuple(int(d) for d in dims)


def varying_like(
  result_types: Sequence[jax.ShapeDtypeStruct], args: Iterable[Any]
) -> list[jax.ShapeDtypeStruct]:
  """Returns result types that vary over the mesh axes that any argument varies over.

  JAX cannot see through an FFI call, so inside `shard_map` every result is taken to depend on
  every argument.
  """
  axes = _axes(args)
  if not axes:
    return list(result_types)
  # Results that vary must lie on the mesh of the surrounding shard_map.
  sharding = jax.sharding.NamedSharding(
    jax.sharding.get_abstract_mesh(), jax.sharding.PartitionSpec()
  )
  return [
    jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=sharding, **_varying(axes))
    for t in result_types
  ]


def varying_alike(tree: Any, *others: Any) -> Any:
  """Returns arrays that vary over all mesh axes that any of them, or of the others, varies over.

  Inside `shard_map` the transpose of this sums over the devices that share an array, so that a
  derivative rule behind it sees arrays of one kind. Elsewhere nothing happens.
  """
  axes = _axes(jax.tree.leaves((tree, others)))

  def cast(x: Any) -> Any:
    missing = tuple(sorted(axes - set(_varying_axes(jax.typeof(x))), key=str))
    if not missing:
      return x
    # Newer JAX releases renamed the function.
    pcast = getattr(jax.lax, "pcast", None)
    return pcast(x, missing, to="varying") if pcast else jax.lax.pvary(x, missing)

  return jax.tree.map(cast, tree) if axes else tree


def _axes(arrays: Iterable[Any]) -> set:
  return {axis for array in arrays for axis in _varying_axes(jax.typeof(array))}


def _varying_axes(aval: Any) -> Iterable[Any]:
  manual = getattr(aval, "manual_axis_type", None)
  return manual.varying if manual is not None else getattr(aval, "vma", None) or ()


def _varying(axes: set) -> dict[str, Any]:
  # Newer JAX releases renamed the keyword.
  if hasattr(jax.sharding, "ManualAxisType"):
    return {"manual_axis_type": jax.sharding.ManualAxisType(varying=frozenset(axes))}
  return {"vma": frozenset(axes)}
