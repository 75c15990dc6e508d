"""The forces of contacts, differentiable as the forward dynamics that they come from."""

from __future__ import annotations

import dataclasses

import jax
import warp as wp
from mujoco_warp._src import support as mjw_support
from mujoco_warp._src import types as mjw_types

from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_outputs import FORCE
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope
from mjx_warp_ffi.mjx.warp.ffi import Array, Inputs
from mjx_warp_ffi.mjx.warp.functions.stages import SOLVE, chain
from mjx_warp_ffi.mjx.warp.gradient.reverse_only import reverse_only
from mjx_warp_ffi.mjx.warp.gradient.vjp import differentiable_results
from mjx_warp_ffi.mjx.warp.staging.workspace import Workspace


@wp.kernel(enable_backward=False)
def contact_forces(
  # Model:
  opt_cone: int,
  # Data in:
  contact_frame: wp.array[wp.mat33],
  contact_friction: wp.array[mjw_types.vec5],
  contact_dim: wp.array[int],
  contact_efc_address: wp.array2d[int],
  contact_adhesion: wp.array[float],
  efc_force: wp.array2d[float],
  njmax: int,
  nacon: wp.array[int],
  # In:
  ncon: wp.array[int],
  order: wp.array2d[int],
  # Out:
  out: wp.array2d[wp.spatial_vector],
):
  """Force and torque of each contact in its frame, zero in the padding, a thread a contact."""
  world, i = wp.tid()
  result = wp.spatial_vector()
  if i < ncon[world]:
    result = mjw_support.contact_force_fn(
      opt_cone,
      contact_frame,
      contact_friction,
      contact_dim,
      contact_efc_address,
      contact_adhesion,
      efc_force,
      njmax,
      nacon,
      world,
      order[world, i],
      False,  # not in the axes of the world
    )
  out[world, i] = result


_FRAME = "contact.frame"


def _launch(w: Workspace, out: wp.array) -> None:
  w.run(chain(*SOLVE))
  m, d = w.m, w.d
  con = d.contact
  wp.launch(
    contact_forces,
    dim=out.shape,
    inputs=[
      *(m.opt.cone, con.frame, con.friction, con.dim, con.efc_address, con.adhesion),
      *(d.efc.force, d.njmax, d.nacon, w.contacts.ncon, w.contacts.order),
    ],
    outputs=[out],
  )


@dataclasses.dataclass(frozen=True)
class _ContactForce(ffi.Staged):
  """Forces and torques in the frames of the contacts, and those frames."""

  def results(self, m: Model, inputs: Inputs) -> dict[str, jax.Array]:
    """The results by name, for inputs that were checked."""
    outputs = tuple(self.outputs(m))
    signature = ffi.signature_of(m, inputs, name=self.name, outputs=outputs)
    extent = ffi.Extent(m.spec.mj_model, inputs.sizes)
    force = extent.fixed(Array(FORCE, ("nconmax",), wp.spatial_vector))
    signature = dataclasses.replace(signature, results=(force,))
    results = ffi.call(_launch, signature, m=m, inputs=inputs)
    return dict(zip((*signature.outputs, FORCE), results, strict=True))


_results = differentiable_results(
  _ContactForce(lambda m, d: None, "contact_force", lambda m: ("qacc", _FRAME)), Scope.FORWARD
)


def contact_force(m: Model, d: Data) -> tuple[jax.Array, jax.Array]:
  """The forces and torques of all contacts in their frames, (nconmax, 6), and the frames."""
  ffi.check(m, d)
  with reverse_only():
    out = _results(m, ffi.with_checked_controls(m, ffi.inputs_of(m, d)))
  return out[FORCE], out[_FRAME]
