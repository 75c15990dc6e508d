"""Functions of mujoco_warp with further arguments, whose results are no fields of Data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp.ffi import Array, Inputs, Signature


def inputs_with(m: Model, d: Data, *, names: Iterable[str], rows: bool, nconmax: int = 0) -> Inputs:
  """The inputs of a step and further fields of a Data.

  Args:
    m: the model.
    d: the data.
    names: the further fields; those without elements are left out.
    rows: whether contacts and constraint rows are wanted; without, there is no room for any.
    nconmax: room for contacts of one world, without `rows`.
  """
  inputs = ffi.inputs_of(m, d)
  extent = ffi.Extent(m.spec.mj_model, d.sizes)
  more = {
    n: jnp.asarray(fields.lookup(d, n)) for n in names if 0 not in ffi.FIELDS[n].shape(extent)
  }
  sizes = inputs.sizes
  if not rows:
    sizes = sizes.without_rows(nconmax)
  return Inputs({**inputs.arrays, **more}, sizes)


def without_gradient(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
  """The function, whose differentiation raises an error that says what to do instead."""

  @jax.custom_vjp
  def call(*args: Any) -> Any:
    return function(*args)

  def forward(*args: Any) -> Any:
    raise NotImplementedError(
      f"{name} has no gradient: differentiate mjx.forward or mjx.step, or pass"
      " jax.lax.stop_gradient(d) where no gradient shall flow"
    )

  call.defvjp(forward, lambda residual, cotangents: cotangents)
  return call


@dataclasses.dataclass(frozen=True)
class Computed:
  """A function with further arguments, whose results are no fields of Data.

  Attributes:
    function: `f(workspace, *arguments, *results)` on Warp arrays with a leading world axis.
    name: name of the FFI target.
    results: what it writes.
    arguments: what it reads beside the state.
    reads: gives the names of the results in a Data that it reads, for a model.
    static: hashable values that the function depends on.
    rows: whether it deals with contacts and constraint rows.
    captured: as in `ffi.Signature`.
    nconmax: contacts of one world that it needs, without `rows`.
  """

  function: Callable[..., None]
  name: str
  results: tuple[Array, ...]
  arguments: tuple[Array, ...] = ()
  reads: Callable[[Model], tuple[str, ...]] = lambda m: ()
  static: tuple[Any, ...] = ()
  rows: bool = False
  captured: bool = True
  nconmax: int = 0

  def __call__(self, m: Model, d: Data, *args: Any) -> tuple[jax.Array, ...]:
    """The results, for arguments in their order; checks them first."""
    ffi.check(m, d)
    inputs = inputs_with(m, d, names=self.reads(m), rows=self.rows, nconmax=self.nconmax)
    extra = [_argument(a, v) for a, v in zip(self.arguments, args, strict=True)]
    signature = self._signature(m, d, inputs, extra)

    def call(m: Model, inputs: Inputs, extra: list[jax.Array]) -> tuple[jax.Array, ...]:
      return ffi.call(self.function, signature, m=m, inputs=inputs, further=extra)

    return without_gradient(self.name, call)(m, inputs, extra)

  def _signature(self, m: Model, d: Data, inputs: Inputs, extra: list[jax.Array]) -> Signature:
    extent = ffi.Extent(m.spec.mj_model, d.sizes)
    arguments = [extent.bound(a, v.shape) for a, v in zip(self.arguments, extra, strict=True)]
    return dataclasses.replace(
      ffi.signature_of(m, inputs, name=self.name, outputs=()),
      arguments=tuple(arguments),
      results=tuple(extent.fixed(r) for r in self.results),
      static=self.static,
      captured=self.captured,
    )


def _argument(array: Array, value: Any) -> jax.Array:
  return jax.lax.convert_element_type(jnp.asarray(value), array.field.dtype)
