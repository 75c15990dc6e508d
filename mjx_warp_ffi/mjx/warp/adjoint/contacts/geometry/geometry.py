"""Contacts as differentiable functions of the poses and sizes of their two geoms.

The contract:

  geometry = ContactGeometry(mjm, m, d)          # outside a capture
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
* Both can be captured in a graph once they have run, on the CPU and on CUDA. One thread a contact;
  threads beyond nacon return at once.
* `unsupported` names the pairs of geom types that can touch in this model and have no rule (SDFs
  with plugins, meshes or height fields, and flexes). The caller refuses such a model.
* Right or loud. A contact of which no feature explains what MJWarp found keeps MJWarp's values, and
  its gradient is NaN wherever a gradient reaches it. It happens at random poses of cylinders, where
  EPA may clip along an arbitrary line of the side, to a few contacts in a hundred, and deep in
  ellipsoids.

The values are MJWarp's to rounding, except that contacts of ellipsoids and cylinders are solved
exactly, where EPA leaves errors of 1e-3 to 1e-2 in the normal. In a model where they can be
(`refines`), `refine()` after `forward` writes them to the pool: an acceleration solved with other
contacts than those that are differentiated would be some thirty times further off in the gradient.

Which rule serves which pair:
* `primitives`: what MJWarp solves in closed form, through its own functions.
* `capsule_box`: capsule and box.
* `sdf/`: SDFs, by the derivative of the search that found the contact.
* `convex`: all others, from the features that `classify` finds.
tests/adjoint/test_adjoint_contact_geometry.py prints a table of the errors of every pair
(`-m slow -s`).
"""

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.capsule_box import capsule_box_codes
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.classify import (
  classify_contacts,
  poison_unknown,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.convex import (
  ELSEWHERE,
  SINGLE,
  UNKNOWN,
  convex_contacts,
  refine_contacts,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.primitives import PRIMITIVES, primitive_kernel
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.sdf.sdf_contacts import (
  PARTNERS,
  SdfContacts,
  has_plugins,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import Frozen, Surfaces
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool

_POLYTOPES_AND_CURVED = tuple(
  getattr(mjw.GeomType, name)
  for name in ("SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH")
)
_CURVED = (mjw.GeomType.ELLIPSOID, mjw.GeomType.CYLINDER)


def possible_pairs(m: mjw.Model) -> tuple[tuple[mjw.GeomType, mjw.GeomType], ...]:
  """The pairs of geom types that MJWarp's collision filters let touch in a model."""
  types = list(mjw.GeomType)
  pairs = [(a, b) for i, a in enumerate(types) for b in types[i:]]
  return tuple(pair for pair, count in zip(pairs, m.geom_pair_type_count, strict=True) if count)


def _is_sdf(pair: tuple[mjw.GeomType, mjw.GeomType]) -> bool:
  """Whether a pair of geom types is that of an SDF and a partner with a rule."""
  return pair[0] in PARTNERS and pair[1] == mjw.GeomType.SDF


def _rule_of_pair(pair: tuple[mjw.GeomType, mjw.GeomType]) -> int:
  """What a pair of geom types starts from: a closed form, features, or nothing."""
  if pair in PRIMITIVES or _is_sdf(pair):
    return int(ELSEWHERE)
  first, second = pair
  if first in _POLYTOPES_AND_CURVED and second in _POLYTOPES_AND_CURVED:
    return int(SINGLE)
  if pair == (mjw.GeomType.PLANE, mjw.GeomType.MESH):
    return int(SINGLE)
  if first == mjw.GeomType.HFIELD and second in _POLYTOPES_AND_CURVED:
    return int(SINGLE)
  return int(UNKNOWN)


class ContactGeometry:
  """Distance, position and frame of the contacts in a pool, with a reverse mode.

  The module's docstring is the contract.

  Attributes:
    dist: (naconmax,) float; distance of the two surfaces, negative where they overlap.
    pos: (naconmax,) vec3; the midpoint of the two witness points.
    frame: (naconmax,) mat33; the rows are the normal and two tangents.
    unsupported: names of the pairs of geom types that can touch and have no rule.
    refines: whether `refine` can change contacts.
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
    device = d.contact.dist.device
    pairs = possible_pairs(m)
    rules = {pair: _rule_of_pair(pair) for pair in pairs}
    self.unsupported = tuple(f"{a.name}-{b.name}" for (a, b), rule in rules.items() if rule < 0)
    if mjm.nflex:
      self.unsupported += ("FLEX",)
    if any(map(_is_sdf, pairs)) and has_plugins(m):
      self.unsupported += ("SDF with a plugin",)
    primitive = tuple(pair for pair in pairs if pair in PRIMITIVES)
    self._primitive = primitive_kernel(primitive) if primitive else None
    self._has_capsule_box = (mjw.GeomType.CAPSULE, mjw.GeomType.BOX) in pairs
    self._has_convex = any(rule != ELSEWHERE for rule in rules.values()) or mjm.nflex > 0
    iterative = [pair for pair, rule in rules.items() if rule == SINGLE]
    self.refines = any(kind in pair for pair in iterative for kind in _CURVED)
    self._pool = _pool(m, d)
    self._code = wp.zeros(d.naconmax, dtype=int, device=device)
    self._poses = [d.geom_xpos, d.geom_xmat, m.geom_size]
    self._sdf = SdfContacts(m, d, self._pool) if any(map(_is_sdf, pairs)) else None
    self._surfaces = _surfaces(m)
    self._frozen = _frozen(d.naconmax if self._has_convex else 0, device)
    table = np.full((len(mjw.GeomType), len(mjw.GeomType)), int(UNKNOWN))
    for (a, b), rule in rules.items():
      table[a, b] = table[b, a] = rule
    self._rules = wp.array(table, dtype=int, device=device)
    self.dist = wp.zeros(d.naconmax, dtype=float, device=device)
    self.pos = wp.zeros(d.naconmax, dtype=wp.vec3, device=device)
    self.frame = wp.zeros(d.naconmax, dtype=wp.mat33, device=device)

  def forward(self, geom_xpos: wp.array, geom_xmat: wp.array) -> None:
    """Computes the contacts that the pool holds, at the poses where they were found.

    Args:
      geom_xpos: (nworld, ngeom) vec3.
      geom_xmat: (nworld, ngeom) mat33.
    """
    self._poses = [geom_xpos, geom_xmat, self._m.geom_size]
    if self._has_capsule_box:
      self._launch(capsule_box_codes, [self._pool, *self._poses, self._code])
    if self._primitive:
      inputs = [self._pool, self._code, *self._poses, *self._outputs()]
      self._launch(self._primitive, inputs)
    if self._sdf:
      self._sdf.forward(self._poses, self._outputs())
    if self._has_convex:
      inputs = [self._pool, self._surfaces, *self._poses, self._rules, self._frozen]
      self._launch(classify_contacts, inputs)
      self._launch(convex_contacts, [self._pool, self._frozen, *self._poses, *self._outputs()])

  def refine(self) -> None:
    """Writes the contacts of the last `forward` to MJWarp's pool."""
    if self.refines:
      self._launch(refine_contacts, [self._pool, self._frozen, *self._outputs()])

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
    grads_in = [grad_geom_xpos, grad_geom_xmat, grad_geom_size]
    grads_out = [grad_dist, grad_pos, grad_frame]
    if self._primitive:
      constants, grads = [self._pool, self._code], [ContactPool(), None, *grads_in]
      self._launch_adjoint(self._primitive, constants, grads, grads_out)
    if self._sdf:
      self._sdf.backward(self._poses, grads_out, grads_in=grads_in)
    if self._has_convex:
      constants, grads = [self._pool, self._frozen], [ContactPool(), Frozen(), *grads_in]
      self._launch_adjoint(convex_contacts, constants, grads, grads_out)
      self._launch(poison_unknown, [*constants, *grads_out, *grads_in])

  def _outputs(self) -> list[wp.array]:
    return [self.dist, self.pos, self.frame]

  def _launch(self, kernel: wp.Kernel, inputs: list) -> None:
    wp.launch(kernel, dim=self._d.naconmax, inputs=inputs, device=self.dist.device)

  def _launch_adjoint(self, kernel: wp.Kernel, constants: list, grads_in: list, grads_out: list):
    wp.launch(
      kernel,
      dim=self._d.naconmax,
      inputs=[*constants, *self._poses],
      outputs=self._outputs(),
      adj_inputs=grads_in,
      adj_outputs=grads_out,
      adjoint=True,
      device=self.dist.device,
    )


def _pool(m: mjw.Model, d: mjw.Data) -> ContactPool:
  """The arrays of the contact pool that the kernels read."""
  pool = ContactPool()
  pool.nacon = d.nacon
  pool.geom = d.contact.geom
  pool.world = d.contact.worldid
  pool.slot = d.contact.geomcollisionid
  pool.dist = d.contact.dist
  pool.pos = d.contact.pos
  pool.frame = d.contact.frame
  pool.margin = d.contact.includemargin
  pool.geom_type = m.geom_type
  return pool


def _surfaces(m: mjw.Model) -> Surfaces:
  """The arrays of the meshes and height fields that the search for features reads."""
  surfaces = Surfaces()
  surfaces.geom_dataid = m.geom_dataid
  for name in (
    "vertadr",
    "vertnum",
    "vert",
    "polynum",
    "polyadr",
    "polynormal",
    "polyvertadr",
    "polyvertnum",
    "polyvert",
  ):
    setattr(surfaces, name, getattr(m, f"mesh_{name}"))
  for name in ("hfield_size", "hfield_nrow", "hfield_ncol", "hfield_adr", "hfield_data"):
    setattr(surfaces, name, getattr(m, name))
  return surfaces


def _frozen(count: int, device: wp.Device) -> Frozen:
  """Room for the features of `count` contacts."""
  frozen = Frozen()
  frozen.rule = wp.zeros(count, dtype=int, device=device)
  frozen.kind = wp.zeros((count, 4), dtype=int, device=device)
  frozen.point = wp.zeros((count, 4), dtype=wp.vec3, device=device)
  frozen.direction = wp.zeros((count, 4), dtype=wp.vec3, device=device)
  frozen.normal = wp.zeros((count, 4), dtype=wp.vec3, device=device)
  frozen.pad = wp.zeros((count, 4), dtype=float, device=device)
  frozen.start = wp.zeros(count, dtype=wp.vec3, device=device)
  frozen.inverse = wp.zeros(count, dtype=wp.mat22, device=device)
  return frozen
