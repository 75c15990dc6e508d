"""Annotated arguments and their JAX shapes and dtypes."""

from collections.abc import Iterable, Sequence

import jax


def varying_like(
  result_types: Sequence[jax.ShapeDtypeStruct], args: Iterable[jax.Array]
) -> list[jax.ShapeDtypeStruct]:
  """Returns result types that vary over the mesh axes that any argument varies over.

  JAX cannot see through an FFI call, so inside `shard_map` every result is taken to depend on
  every argument.
  """
  axes: set = set()
  for arg in args:
    axes |= set(getattr(jax.typeof(arg), "vma", ()) or ())
  if not axes:
    return list(result_types)
  mesh = jax.sharding.get_abstract_mesh()
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  return [
    jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=sharding, vma=frozenset(axes))  # pyright: ignore
    for t in result_types
  ]
