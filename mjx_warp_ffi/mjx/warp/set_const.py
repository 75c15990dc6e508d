"""The model's derived constants, by mujoco_warp's own functions: leaves in, leaves out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.spec import Sizes
from mjx_warp_ffi.mjx.types import Model, leaf_shape
from mjx_warp_ffi.mjx.warp import batching, ffi, fields
from mjx_warp_ffi.mjx.warp.workspace import Plan, Workspace
from mjx_warp_ffi.third_party.warp.program import Program, jax_program

# What mujoco_warp.set_const writes.
_OUTPUTS = (
  *("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0"),
  *("geom_size", "geom_aabb", "geom_rbound", "tendon_length0", "tendon_invweight0", "eq_data"),
  *("cam_pos0", "cam_poscom0", "cam_mat0", "light_pos0", "light_poscom0", "light_dir0"),
)
# Leaves that say nothing of poses, inertias and sizes.
_UNREAD = ("opt.", "mat_", "pair_", "sensor_")


def _names(m: Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """The leaves that are read, and those that are written too."""
  mj_model = m.spec.mj_model
  present = [f.name for f in fields.model_leaves() if 0 not in leaf_shape(f, mj_model)]
  written = [n for n in _OUTPUTS if n in present]
  if not np.any(mj_model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD):
    written = [n for n in written if n != "geom_size"]
  read = [n for n in present if n not in written and not n.startswith(_UNREAD)]
  return tuple(read), tuple(written)


def constants(m: Model) -> dict[str, jax.Array]:
  """The derived constants of one model, by leaf name; `vmap` batches it."""
  read, written = _names(m)
  values = [jnp.asarray(fields.lookup(m, n)) for n in read]
  values += [jnp.asarray(fields.lookup(m, n))[None] for n in written]

  def over_worlds(rows: frozenset[int], arrays: batching.Arrays) -> batching.Arrays:
    batched = frozenset(read[i] for i in rows).union(written)
    sizes = Sizes(m.spec.structure, nconmax=0, njmax=0, nccdmax=0)
    plan = Plan(m.spec, m.opt.statics, sizes, arrays[len(read)].shape[0], batched)
    return _launch(plan, read, written, arrays)

  results = batching.batched(over_worlds, len(read))(*values)
  return {n: x[0] for n, x in zip(written, results, strict=True)}


def _launch(
  plan: Plan, read: tuple[str, ...], written: tuple[str, ...], arrays: batching.Arrays
) -> batching.Arrays:
  def make(device: wp.Device) -> Program:
    with wp.ScopedDevice(device):
      w = Workspace(plan)
    inputs = tuple(w.leaf(n) for n in (*read, *written))
    return Program(
      inputs,
      inputs[len(read) :],
      lambda: mjw.set_const(w.m, w.d, restore=False),
      keep=w,
    )

  call = jax_program(
    "set_const",
    make,
    key=ffi.digest(("set_const", read, written), plan),
    result_types=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays[len(read) :]],
    input_output_aliases={len(read) + i: i for i in range(len(written))},
  )
  return tuple(call(*arrays))
