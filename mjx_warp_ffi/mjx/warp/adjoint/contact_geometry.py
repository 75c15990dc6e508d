"""Contacts as differentiable functions of the poses and sizes of their two geoms.

The contract:

  geometry = ContactGeometry(mjm, m, d)          # once, outside a capture
  geometry.forward(geom_xpos, geom_xmat)         # launches; after MJWarp's collision of `d`
  geometry.dist, geometry.pos, geometry.frame    # (naconmax,) float, vec3, mat33
  geometry.backward(grad_dist, grad_pos, grad_frame=..., grad_geom_xpos=..., grad_geom_xmat=...,
                    grad_geom_size=...)          # launches; adds to the last three

* `forward` reads the pool (`d.contact.geom, worldid, geomcollisionid, dist, pos, frame`, `d.nacon`)
  and computes every contact that exists once more, from `geom_xpos`, `geom_xmat` (nworld, ngeom)
  and `m.geom_size`. The poses must be those at which the collision ran: which features touch (face,
  edge, vertex, side, rim, slot) is read off the contact there and stays frozen. Rows beyond
  `min(nacon, naconmax)` are not written.
* `frame` is MuJoCo's: row 0 the normal from geom 0 to geom 1, rows 1 and 2 the tangents of
  MJWarp's `make_frame` (those of plane-capsule follow the capsule). Tangents move with the normal.
* `backward` takes gradients over the pool: `grad_dist` (naconmax,) float, `grad_pos` vec3,
  `grad_frame` mat33, and differentiates at the inputs of the last `forward`, which must still hold
  their values. It ADDS (atomically) to `grad_geom_xpos` (nworld, ngeom) vec3, `grad_geom_xmat`
  (nworld, ngeom) mat33 and, if given, `grad_geom_size` (shaped as `m.geom_size`) vec3. Rows of
  `grad_*` beyond nacon are not read. Nobody's `.grad` is touched; all arrays lack `requires_grad`.
* The gradient with respect to `geom_xmat` is ambient: d/d(entry) of each of the nine entries, as if
  they were independent. Its part along the rotations is what means something: contract it with
  d(xmat)/d(quaternion), or with xmat' = [theta]x xmat for a rotation theta in the world.
* Both can be captured in a graph, on the CPU and on CUDA. One thread a contact; threads beyond
  nacon return at once.
* `unsupported` names the pairs of geom types that can touch in this model and have no rule. The
  caller refuses such a model; the contacts of such pairs are copied and get no gradient.
"""

import mujoco
import mujoco_warp as mjw
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry_capsule_box import capsule_box_codes
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry_primitive import PRIMITIVES, primitive_kernel
from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry_types import Pool


def possible_pairs(m: mjw.Model) -> tuple[tuple[mjw.GeomType, mjw.GeomType], ...]:
  """The pairs of geom types that MJWarp's collision filters let touch in a model."""
  types = list(mjw.GeomType)
  pairs = [(a, b) for i, a in enumerate(types) for b in types[i:]]
  return tuple(pair for pair, count in zip(pairs, m.geom_pair_type_count, strict=True) if count)


class ContactGeometry:
  """Distance, position and frame of the contacts in a pool, with a reverse mode.

  The module's docstring is the contract.

  Attributes:
    dist: (naconmax,) float; distance of the two surfaces, negative where they overlap.
    pos: (naconmax,) vec3; the midpoint of the two witness points.
    frame: (naconmax,) mat33; the rows are the normal and two tangents.
    unsupported: names of the pairs of geom types that can touch and have no rule.
  """

  def __init__(self, mjm: mujoco.MjModel, m: mjw.Model, d: mjw.Data):
    """Prepares the kernels and outputs for a model and the capacity of a Data.

    Args:
      mjm: the model that `m` was made from.
      m: the MJWarp Model; its `geom_size` is read at every launch.
      d: the MJWarp Data whose contact pool is read.
    """
    self._m = m
    self._d = d
    pairs = possible_pairs(m)
    primitive = tuple(pair for pair in pairs if pair in PRIMITIVES)
    self.unsupported = tuple(f"{a.name}-{b.name}" for a, b in pairs if (a, b) not in PRIMITIVES)
    self._kernels = [primitive_kernel(primitive)] if primitive else []
    self._frozen = []
    if (mjw.GeomType.CAPSULE, mjw.GeomType.BOX) in pairs:
      self._frozen.append(capsule_box_codes)
    self._pool = _pool(m, d)
    device = d.contact.dist.device
    self.dist = wp.zeros(d.naconmax, dtype=float, device=device)
    self.pos = wp.zeros(d.naconmax, dtype=wp.vec3, device=device)
    self.frame = wp.zeros(d.naconmax, dtype=wp.mat33, device=device)

  def forward(self, geom_xpos: wp.array, geom_xmat: wp.array) -> None:
    """Computes the contacts that the pool holds, at the poses where they were found.

    Args:
      geom_xpos: (nworld, ngeom) vec3.
      geom_xmat: (nworld, ngeom) mat33.
    """
    self._inputs = [self._pool, geom_xpos, geom_xmat, self._m.geom_size]
    for kernel in self._frozen:
      wp.launch(
        kernel, dim=self._d.naconmax, inputs=self._inputs, outputs=[self._pool.code], device=self.dist.device
      )
    for kernel in self._kernels:
      wp.launch(
        kernel,
        dim=self._d.naconmax,
        inputs=self._inputs,
        outputs=[self.dist, self.pos, self.frame],
        device=self.dist.device,
      )

  def backward(
    self,
    grad_dist: wp.array,
    grad_pos: wp.array,
    *,
    grad_frame: wp.array,
    grad_geom_xpos: wp.array,
    grad_geom_xmat: wp.array,
    grad_geom_size: wp.array | None = None,
  ) -> None:
    """Adds the gradients of the inputs of the last `forward`.

    Args:
      grad_dist: (naconmax,) float, the gradient of `dist`.
      grad_pos: (naconmax,) vec3, the gradient of `pos`.
      grad_frame: (naconmax,) mat33, the gradient of `frame`.
      grad_geom_xpos: (nworld, ngeom) vec3, added to.
      grad_geom_xmat: (nworld, ngeom) mat33, added to; the nine entries count as independent.
      grad_geom_size: shaped as `m.geom_size`, vec3, added to if given.
    """
    for kernel in self._kernels:
      wp.launch(
        kernel,
        dim=self._d.naconmax,
        inputs=self._inputs,
        outputs=[self.dist, self.pos, self.frame],
        adj_inputs=[Pool(), grad_geom_xpos, grad_geom_xmat, grad_geom_size],
        adj_outputs=[grad_dist, grad_pos, grad_frame],
        adjoint=True,
        device=self.dist.device,
      )


def _pool(m: mjw.Model, d: mjw.Data) -> Pool:
  """The arrays of the contact pool that the kernels read."""
  pool = Pool()
  pool.nacon = d.nacon
  pool.geom = d.contact.geom
  pool.worldid = d.contact.worldid
  pool.slot = d.contact.geomcollisionid
  pool.dist = d.contact.dist
  pool.pos = d.contact.pos
  pool.frame = d.contact.frame
  pool.code = wp.zeros(d.naconmax, dtype=int, device=d.nacon.device)
  pool.geom_type = m.geom_type
  return pool
