"""Constants of a model that depend on other parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import mujoco

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.spec import Spec
from mjx_warp_ffi.mjx.data.types import Model, leaf_shape
from mjx_warp_ffi.mjx.numerics import inertia_matrix, rest_constants, rest_lengths
from mjx_warp_ffi.mjx.numerics.rest_constants import Leaves
from mjx_warp_ffi.mjx.numerics.topology import subtrees


def set_const(m: Model) -> Model:
  """Recomputes the constants that depend on other leaves, as mj_setConst does.

  To be called once after a change of masses, inertias, poses, armatures, gears or `qpos0`
  (`body_subtreemass`, `body_invweight0`, `dof_invweight0`, `tendon_invweight0`, `actuator_acc0`,
  `tendon_length0`, `eq_data` and the references of cameras and lights follow) or of `geom_size`
  (`geom_aabb`, `geom_rbound`). Other leaves act without it.

  It works under `jit`, `vmap` and all derivatives. `stat`, which is part of the model's structure,
  stays; in the step it only scales the solver's tolerance.

  Args:
    m: the model. Some of its leaves may have batch axes: then the constants that depend on those
      get them too, and no others (`jax.vmap` of this function gives every leaf a batch axis).

  Returns:
    The Model with these leaves replaced.
  """
  return m.replace(**_constants(m))


class _OneModel:
  """One model at `qpos0`: what several constants need, computed when first asked for."""

  def __init__(self, mj: mujoco.MjModel, leaves: Leaves):
    self.mj = mj
    self.leaves = leaves

  @functools.cached_property
  def rest(self) -> rest_constants.Rest:
    """Poses, and velocities of unit rates."""
    return rest_constants.rest(self.mj, self.leaves)

  @functools.cached_property
  def tendons(self) -> tuple[jax.Array, jax.Array]:
    """Lengths and rates."""
    return rest_lengths.tendons(self.rest)

  @functools.cached_property
  def inverse_mass(self) -> jax.Array:
    """The inverse of the inertia matrix."""
    return inertia_matrix.inverse(inertia_matrix.at_rest(self.rest, self.tendons[1]))


def _masses(one: _OneModel) -> Leaves:
  return {"body_subtreemass": jnp.asarray(subtrees(one.mj)) @ one.leaves["body_mass"]}


def _weights(one: _OneModel) -> Leaves:
  dofs = rest_constants.dof_weights(one.mj, one.leaves, inverse_mass=one.inverse_mass)
  return {
    "dof_invweight0": dofs,
    "body_invweight0": rest_constants.body_weights(one.rest, one.inverse_mass),
  }


def _tendon_weights(one: _OneModel) -> Leaves:
  rates = one.tendons[1]
  return {"tendon_invweight0": jnp.einsum("tv,vw,tw->t", rates, one.inverse_mass, rates)}


def _accelerations(one: _OneModel) -> Leaves:
  moments = rest_lengths.moments(one.rest, one.tendons[1])
  return {"actuator_acc0": rest_constants.norm(moments @ one.inverse_mass)}


# Each computes constants that depend on the same leaves.
_GROUPS: tuple[Callable[[_OneModel], Leaves], ...] = (
  _masses,
  _weights,
  _tendon_weights,
  _accelerations,
  lambda one: {"tendon_length0": one.tendons[0]},
  lambda one: {"eq_data": rest_constants.equality_data(one.rest)},
  lambda one: rest_constants.references(one.rest, "cam"),
  lambda one: rest_constants.references(one.rest, "light"),
  lambda one: rest_constants.geom_bounds(one.mj, one.leaves),
)


class _Recorder(dict):
  """Leaves that note which of them are read."""

  def __init__(self, leaves: Leaves):
    super().__init__(leaves)
    self.read: set[str] = set()

  def __getitem__(self, name: str) -> jax.Array:
    self.read.add(name)
    return super().__getitem__(name)


def _shapes(spec: Spec) -> dict[str, jax.ShapeDtypeStruct]:
  """The leaves of one model."""
  kinds = {f.name: f for f in fields.model_leaves()}
  shapes = {n: leaf_shape(f, spec.mj_model) for n, f in kinds.items()}
  return {n: jax.ShapeDtypeStruct(shape, kinds[n].dtype) for n, shape in shapes.items()}


@functools.lru_cache(maxsize=64)
def _plan(spec: Spec) -> tuple[tuple[Callable[[_OneModel], Leaves], tuple[str, ...]], ...]:
  """The groups that a model has, and the leaves that each reads."""
  mj, plan = spec.mj_model, []
  for group in _GROUPS:
    read: set[str] = set()

    def trace(leaves: Leaves, group=group, read=read) -> Leaves:
      recorder = _Recorder(leaves)
      out = group(_OneModel(mj, recorder))
      read |= recorder.read
      return out

    shapes = jax.eval_shape(trace, _shapes(spec))
    if any(x.size for x in shapes.values()):
      plan.append((group, tuple(sorted(read))))
  return tuple(plan)


@jax.jit
def _constants(m: Model) -> Leaves:
  """The constants by name; each has the batch axes of the leaves that it depends on."""
  mj, shapes = m.spec.mj_model, _shapes(m.spec)
  leaves = {n: fields.lookup(m, n) for n in shapes}
  batched = any(x.ndim > len(shapes[n].shape) for n, x in leaves.items())

  def compute(leaves: Leaves, groups: list[Callable[[_OneModel], Leaves]]) -> Leaves:
    axes = {n: x.ndim - len(shapes[n].shape) for n, x in leaves.items()}
    outermost = max(axes.values())
    if outermost:
      here = {n: 0 if axis == outermost else None for n, axis in axes.items()}
      return jax.vmap(functools.partial(compute, groups=groups), in_axes=(here,))(leaves)
    one = _OneModel(mj, leaves)
    return {name: x for group in groups for name, x in group(one).items()}

  with jax.default_matmul_precision("highest"):
    if not batched:
      return compute(leaves, [group for group, _ in _plan(m.spec)])
    out: Leaves = {}
    for group, read in _plan(m.spec):
      out |= compute({n: leaves[n] for n in read}, [group])
    return out
