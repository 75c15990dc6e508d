"""Compiling kernels and allocating buffers ahead of use, and freeing all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mjx_warp_ffi.mjx import io
from mjx_warp_ffi.mjx.batch import model_axes
from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.types import Data, Model, leaf_shape
from mjx_warp_ffi.mjx.forward import step
from mjx_warp_ffi.mjx.reset import forget_defaults
from mjx_warp_ffi.mjx.warp.staging import caches


def warmup(
  m: Model,
  nworld: int,
  *,
  data: Data | None = None,
  functions: Sequence[Callable[[Model, Data], Any]] = (step,),
  progress: bool = True,
) -> float:
  """Compiles kernels, allocates buffers and captures graphs for a batch of worlds, ahead of use.

  Later calls of the same functions on batches of this size find all of that ready, under whatever
  `jit`, `scan` or `vmap`; only XLA's own compilation of the program around them remains. Kernels
  stay in Warp's cache on disk for other processes.

  Args:
    m: the model; leaves that have a batch axis are randomized ones.
    nworld: the number of worlds.
    data: a Data of one world with the capacities that will be used; `make_data(m)` if None.
    functions: functions of a Model and a Data of one world.
    progress: show a progress bar on stderr.

  Returns:
    The seconds that it took.

  Raises:
    ValueError: if a leaf of the model has another number of worlds than `nworld`.
  """
  start = time.perf_counter()
  axes = _axes(m, nworld)
  one = io.make_data(m.spec.mj_model) if data is None else data
  batch = jax.jit(_repeated, static_argnums=1)(one, nworld)
  columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
  with Progress(
    *columns, console=Console(stderr=True), transient=True, disable=not progress
  ) as bar:
    task = bar.add_task("tracing", total=3 * len(functions))
    for function in functions:
      _warm(jax.vmap(function, (axes, 0)), (m, batch), lambda text: bar.update(task, **text))
  return time.perf_counter() - start


def _repeated(data: Any, nworld: int) -> Any:
  return jax.tree.map(lambda x: jnp.broadcast_to(x, (nworld, *x.shape)), data)


def _warm(
  function: Callable[..., Any], args: tuple[Any, ...], show: Callable[[dict[str, Any]], None]
) -> None:
  names: list[str] = []

  def loaded(name: str) -> None:
    names.append(name)
    show({"description": f"kernels: {len(names)} modules"})

  lowered = jax.jit(function).lower(*args)
  show({"advance": 1, "description": "compiling"})
  compiled = lowered.compile()
  show({"advance": 1, "description": "kernels"})
  with caches.listening(loaded):
    jax.block_until_ready(compiled(*args))
  show({"advance": 1})


def _axes(m: Model, nworld: int) -> Model | None:
  """The `in_axes` of a model, some leaves of which may have a batch axis."""
  randomized = False
  for field in fields.model_leaves():
    shape = jnp.shape(fields.lookup(m, field.name))
    if len(shape) > len(leaf_shape(field, m.spec.mj_model)):
      randomized = True
      if shape[0] != nworld:
        raise ValueError(f"{field.name} has {shape[0]} worlds, but nworld={nworld}")
  return model_axes(m) if randomized else None


def clear_caches() -> None:
  """Frees the graphs, buffers and workspaces of all functions of this package.

  The next call makes what it needs anew. Counts of `capacity_peaks` start again from zero.
  """
  caches.clear()
  forget_defaults()
