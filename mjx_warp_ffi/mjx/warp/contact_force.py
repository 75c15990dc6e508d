"""The forces of contacts, differentiable as the forward dynamics that they come from."""

from __future__ import annotations

import dataclasses

import jax
import warp as wp

from mjx_warp_ffi.mjx.types import Data, Model
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp import support_kernels as kernels
from mjx_warp_ffi.mjx.warp.adjoint.contact_outputs import FORCE
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope
from mjx_warp_ffi.mjx.warp.ffi import Array, Inputs
from mjx_warp_ffi.mjx.warp.reverse import reverse_only
from mjx_warp_ffi.mjx.warp.stages import SOLVE, chain
from mjx_warp_ffi.mjx.warp.vjp import differentiable_results
from mjx_warp_ffi.mjx.warp.workspace import Workspace

_FRAME = "contact.frame"


def _launch(w: Workspace, out: wp.array) -> None:
  w.run(chain(*SOLVE))
  m, d = w.m, w.d
  con = d.contact
  wp.launch(
    kernels.contact_forces,
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
