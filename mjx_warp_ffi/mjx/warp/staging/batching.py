"""Batch axes: all leading axes fold into one axis of worlds, and results unfold again.

A call on worlds that lie on several devices runs on each device with the worlds there: JAX's
partitioner is told that the axis of worlds may be cut, and nothing else. Where types say how arrays
lie (meshes with explicit axes), no partitioner decides, and the call is mapped over the devices.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import custom_batching
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec, reshard

from mjx_warp_ffi.third_party.warp.signature.arguments import varying_alike as varying_alike

Arrays = tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class Fold:
  """One more batch axis beside that of the worlds, and both as one.

  Attributes:
    size: length of the batch axis.
    worlds_first: whether the worlds are the slower axis of the two: where types cut them over
      devices and not the batch.
  """

  size: int
  worlds_first: bool = False

  def fold(self, x: jax.Array, *, is_batched: bool) -> jax.Array:
    """(size, nworld, ...) to (size * nworld, ...); an array without the batch is repeated."""
    if not is_batched:
      x = jnp.broadcast_to(x[None], (self.size, *x.shape))
    if self.worlds_first:
      x = jnp.swapaxes(x, 0, 1)
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])

  def unfold(self, x: jax.Array) -> jax.Array:
    """(size * nworld, ...) to (size, nworld, ...)."""
    nworld = x.shape[0] // self.size
    if self.worlds_first:
      return jnp.swapaxes(x.reshape(nworld, self.size, *x.shape[1:]), 0, 1)
    return x.reshape(self.size, nworld, *x.shape[1:])


def sharded(call: Callable[..., Arrays], by_world: list[bool]) -> Callable[..., Arrays]:
  """The same function, which each device runs for the worlds that it has.

  Args:
    call: A function of arrays whose results have a leading axis of worlds.
    by_world: Which arguments have a leading axis of worlds; the others are replicated.

  Returns:
    The function. A program for one device is the same as without it.
  """
  function = custom_partitioning(lambda *args: call(*args))

  def rule(_mesh: Any, arguments: Any, results: Any) -> str:
    flags = [*by_world, *(True for _ in results)]
    names = itertools.count()
    terms = []
    for is_by_world, kind in zip(flags, (*arguments, *results), strict=True):
      own = [f"s{next(names)}" for _ in kind.shape]
      terms.append(" ".join(["w", *own[1:]] if is_by_world else own))
    count = len(by_world)
    return f"{', '.join(terms[:count])} -> {', '.join(terms[count:])}"

  def partition(mesh: Any, arguments: Any, results: Any) -> Any:
    def cut(kind: Any, is_by_world: bool) -> NamedSharding:
      # on all devices alike it may come without a spec
      spec = getattr(kind.sharding, "spec", ()) if is_by_world else ()
      return NamedSharding(mesh, PartitionSpec(*spec[:1]))

    into = tuple(cut(a, flag) for a, flag in zip(arguments, by_world, strict=True))
    return mesh, call, jax.tree.map(lambda r: cut(r, True), results), into

  function.def_partition(partition=partition, sharding_rule=rule)

  def on_devices(*args: jax.Array) -> Arrays:
    found = (_cut(x) for x, is_by_world in zip(args, by_world, strict=True) if is_by_world)
    cut = next(filter(None, found), None)
    if cut is None:  # with explicit axes alone the types are known to say that nothing is cut
      mesh = jax.sharding.get_abstract_mesh()
      return (call if mesh.axis_names and mesh.are_all_axes_explicit else function)(*args)
    mesh, worlds = cut.mesh, cut.spec
    specs = tuple(worlds if is_by_world else PartitionSpec() for is_by_world in by_world)
    laid = (reshard(x, NamedSharding(mesh, s)) for x, s in zip(args, specs, strict=True))
    return jax.shard_map(call, mesh=mesh, in_specs=specs, out_specs=worlds)(*laid)

  return on_devices


def laid_as(x: jax.Array, like: jax.Array) -> jax.Array:
  """`x` on the devices where the type of `like` says that it lies, if it does."""
  sharding = _typed(like)
  return x if sharding is None else reshard(x, sharding)


def _cut(x: jax.Array, axis: int = 0) -> NamedSharding | None:
  """How the type of an array says that one of its axes is cut; None if it does not."""
  sharding = _typed(x)
  if sharding is None or sharding.spec[axis] is None:
    return None
  return NamedSharding(sharding.mesh, PartitionSpec(sharding.spec[axis]))


def _typed(x: jax.Array) -> NamedSharding | None:
  """How the type of an array says that it is cut, which only explicit axes of a mesh do."""
  sharding = getattr(jax.typeof(x), "sharding", None)
  return sharding if sharding is not None and any(sharding.spec) else None


def batched(
  call: Callable[[frozenset[int], Arrays], Arrays],
  shared: int,
  *,
  rows: frozenset[int] = frozenset(),
) -> Callable[..., Arrays]:
  """A function over worlds that `vmap` turns into the same function over more worlds.

  Args:
    call: Takes the indices of the shared arguments that have a row for each world, and the
      arguments; all results have a leading axis of worlds.
    shared: The number of arguments, the first ones, that all worlds may share; they get an axis of
      worlds only when they differ between worlds. The others always have one.
    rows: The shared arguments that have an axis of worlds already.

  Returns:
    The function of the arguments.
  """

  @custom_batching.custom_vmap
  def over_worlds(*args: jax.Array) -> Arrays:
    by_world = [i >= shared or i in rows for i in range(len(args))]
    return tuple(sharded(lambda *arrays: call(rows, arrays), by_world)(*args))

  @over_worlds.def_vmap
  def rule(size: int, in_batched: list[bool], *args: jax.Array) -> tuple[Any, Any]:
    nworld = next(
      x.shape[1 if b else 0] for x, b in zip(args[shared:], in_batched[shared:], strict=True)
    )
    by_world = [
      (x, b) for i, (x, b) in enumerate(zip(args, in_batched, strict=True)) if i >= shared
    ]
    worlds_cut = any(_cut(x, 1 if b else 0) for x, b in by_world)
    axes = Fold(size, worlds_cut and not any(b and _cut(x) for x, b in by_world))
    folded, more = [], set(rows)
    for i, (x, is_batched) in enumerate(zip(args, in_batched, strict=True)):
      if i >= shared or i in rows:
        folded.append(axes.fold(x, is_batched=is_batched))
      elif is_batched:
        more.add(i)
        each = jnp.broadcast_to(x[:, None], (size, nworld, *x.shape[1:]))
        folded.append(axes.fold(each, is_batched=True))
      else:
        folded.append(x)
    results = batched(call, shared, rows=frozenset(more))(*folded)
    return tuple(axes.unfold(x) for x in results), (True,) * len(results)

  return over_worlds
