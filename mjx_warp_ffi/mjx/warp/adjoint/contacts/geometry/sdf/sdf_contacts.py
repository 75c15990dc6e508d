"""Contacts of SDFs: the derivative of the search that found them.

MJWarp's contacts of an SDF are where a search of a few steps stops (`point_search`), and not the
deepest points, so that no rule about touching surfaces says how they move. The search is
differentiated instead (`search_reverse`), by the fields' own derivatives (`distance_field`).
"""

import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.sdf.distance_field import DistanceFields
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.sdf.point_search import (
  NONE,
  Searches,
  chain_contacts,
  find_starts,
  trace_searches,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.sdf.search_reverse import searches_backward
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool

_LONGEST = 2.0  # MJWarp's `linesearch_alpha0`

# The types of geoms whose contacts with an SDF have a rule.
PARTNERS = tuple(
  getattr(mjw.GeomType, name)
  for name in ("PLANE", "SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "SDF")
)


def _pairs(m: mjw.Model) -> np.ndarray:
  """The pairs of geoms that can touch and have a rule, the SDF last."""
  types, pairs = m.geom_type.numpy(), m.nxn_geom_pair_filtered.numpy().reshape(-1, 2)
  swap = types[pairs[:, 0]] > types[pairs[:, 1]]
  pairs = np.where(swap[:, None], pairs[:, ::-1], pairs)
  known = np.isin(types[pairs[:, 0]], PARTNERS) & (types[pairs[:, 1]] == mjw.GeomType.SDF)
  return np.unique(pairs[known], axis=0)


def has_plugins(m: mjw.Model) -> bool:
  """Whether an SDF that can touch is a function of a user.

  Its slope, by differences in float32 in MJWarp's own examples, has no derivative to speak of.
  """
  return bool((m.geom_plugin_index.numpy()[_pairs(m)] >= 0).any())


class SdfContacts:
  """The contacts of SDFs in a pool, with a reverse mode; see `ContactGeometry`."""

  def __init__(self, m: mjw.Model, d: mjw.Data, pool: ContactPool):
    """Prepares kernels and room for the searches.

    Args:
      m: the MJWarp Model.
      d: the MJWarp Data whose contact pool is read.
      pool: its arrays.
    """
    self._device = d.contact.dist.device
    self._pool, self._searches, self._fields = pool, Searches(), DistanceFields()
    pairs = _pairs(m)
    self._starts = (d.nworld, len(pairs), m.opt.sdf_initpoints)
    self._dim = d.naconmax
    pair_of = np.full((m.ngeom, m.ngeom), NONE)
    pair_of[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
    steps = m.opt.sdf_iterations + 1
    searches, device = self._searches, self._device
    searches.pair = wp.array(pairs, dtype=wp.vec2i, device=device)
    searches.pair_of = wp.array(pair_of, dtype=int, device=device)
    searches.iterations = m.opt.sdf_iterations
    searches.longest = _LONGEST
    searches.first = wp.zeros(self._starts[:2], dtype=int, device=device)
    searches.following = wp.zeros(d.naconmax, dtype=int, device=device)
    searches.start = wp.zeros(d.naconmax, dtype=int, device=device)
    searches.path = wp.zeros((steps + 1, d.naconmax), dtype=wp.vec3, device=device)
    searches.weight = wp.zeros((steps + 1, d.naconmax), dtype=wp.vec2, device=device)
    for name in (
      "geom_type",
      "geom_aabb",
      "geom_dataid",
      "mesh_octadr",
      "oct_child",
      "oct_aabb",
      "oct_coeff",
    ):
      setattr(self._fields, name, getattr(m, name))
    self._no_size = wp.zeros((0, 0), dtype=wp.vec3, device=device)

  def forward(self, poses: list[wp.array], outputs: list[wp.array]) -> None:
    """Finds the searches of the contacts in the pool.

    Args:
      poses: `geom_xpos`, `geom_xmat` and `geom_size`.
      outputs: `dist`, `pos` and `frame`, which become MJWarp's.
    """
    inputs = [self._fields, self._pool, self._searches, *poses]
    self._searches.first.fill_(NONE)
    self._launch(chain_contacts, self._dim, [self._pool, self._searches])
    self._launch(find_starts, self._starts, inputs)
    self._launch(trace_searches, self._dim, [*inputs, *outputs])

  def backward(
    self, poses: list[wp.array], grads_out: list[wp.array], *, grads_in: list[wp.array | None]
  ) -> None:
    """Adds the gradients of poses and sizes.

    Args:
      poses: those of the last `forward`.
      grads_out: the gradients of `dist`, `pos` and `frame`.
      grads_in: the gradients of the poses, and of the sizes or None, added to.
    """
    *pose_grads, size_grad = grads_in
    grads = [*grads_out, *pose_grads, self._no_size if size_grad is None else size_grad]
    inputs = [self._fields, self._pool, self._searches, *poses, *grads]
    self._launch(searches_backward, self._dim, inputs)

  def _launch(self, kernel: wp.Kernel, dim: int | tuple[int, ...], inputs: list) -> None:
    wp.launch(kernel, dim=dim, inputs=inputs, device=self._device)
