"""Which features of two convex geoms touch, read off the contact that MJWarp found.

A contact's witness points tell which vertex, edge or face they lie on more surely than its normal
does: where the depth is tiny, the normal is the difference of two nearly equal points. So the
features near the witness points are all tried, by every rule of `convex`, and those that reproduce
the contact best are kept. Where none does, the contact keeps MJWarp's values and its gradient
becomes NaN (`poison_unknown`).
"""

import warp as wp
from mujoco_warp import GeomType
from mujoco_warp._src.math import make_frame

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.candidates import (
  ALIGNED,
  ContactSide,
  clipped_candidate,
  is_flat,
  is_round,
  make_side,
  single_candidate,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.convex import (
  CLIPPED,
  CORNER,
  SINGLE,
  TRIANGLE,
  UNKNOWN,
  VERTICAL,
  Hint,
  clipped_contact,
  single_contact,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.features import (
  EDGE,
  FACE,
  RIM,
  newton_inverse,
  residual,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.mismatch import SoughtContact, mismatch
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.polytopes import (
  NONE,
  crossing_edge,
  facing,
  nearest_edge,
  nearest_vertex,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.search import (
  FeaturePair,
  find_triangle,
  find_vertical,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.structs import (
  Feature,
  Frozen,
  Geom,
  Surfaces,
  load_geom,
  make_contact,
  poison,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False, "max_unroll": 1})

NEWTON_STEPS = wp.constant(8)
BETTER = wp.constant(0.99)  # a later rule has to beat an earlier one: they may coincide
PARALLEL = wp.constant(0.99999)  # cosine beyond which two axes touch along a line
WORST = wp.constant(0.01)  # relative mismatch beyond which no feature counts as found;
WORST_CURVED = wp.constant(0.05)  # EPA is noisy on curved surfaces
NOISE = wp.constant(2.0e-6)  # of the normal, times the size of the geoms over the depth


@struct
class Match:
  """The best explanation of a contact so far."""

  score: float
  rule: int
  fa: Feature
  fb: Feature
  hint: Hint


@wp.func
def _polished(a: Geom, b: Geom, fa: Feature, fb: Feature, n: wp.vec3) -> wp.vec3:
  """Newton's method for the normal of two features."""
  if fa.kind == FACE or fb.kind == FACE:
    return n
  for _ in range(NEWTON_STEPS):
    step = newton_inverse(a, b, fa, fb, n) @ residual(a, b, fa, fb, n)
    frame = make_frame(n)
    step = step * wp.min(1.0, 0.3 / wp.max(wp.length(step), 1.0e-12))
    n = wp.normalize(n - frame[1] * step[0] - frame[2] * step[1])
  return n


@wp.func
def _fixes_normal(first: int, second: int) -> bool:
  """Whether features of two kinds may fix a normal: parallel ones do not."""
  if first == NONE or second == NONE:
    return False
  return (first != FACE or (second != FACE and second != EDGE)) and (
    first != EDGE or second != FACE
  )


@wp.func
def _best_single(
  a: ContactSide, b: ContactSide, s: Surfaces, sought: SoughtContact, match: Match
) -> Match:
  """Tries all pairs of features that fix a normal, until one fits within rounding."""
  best = match
  hint = Hint()
  hint.normal = sought.contact.frame[0]
  for ka in range(4):
    fa = Feature()
    fa.kind = NONE
    if best.score > 0.0 and (ka != 1 or a.geom.kind == GeomType.HFIELD):
      fa = single_candidate(a, s, (ka + 2) % 4)  # faces first
    for kb in range(4):
      fb = Feature()
      fb.kind = NONE
      if best.score > 0.0 and fa.kind != NONE:
        fb = single_candidate(b, s, (kb + 2) % 4)
      if kb == 1 and wp.abs(wp.dot(a.geom.axis, b.geom.axis)) < PARALLEL:
        fb.kind = NONE
      if a.geom.kind == GeomType.HFIELD:
        fb.pad = 0.5 * a.margin
      if _fixes_normal(fa.kind, fb.kind):
        hint.start = _polished(a.geom, b.geom, fa, fb, a.geom.rot @ a.n)
        hint.inverse = newton_inverse(a.geom, b.geom, fa, fb, hint.start)
        score = mismatch(single_contact(a.geom, b.geom, fa, fb, hint), sought)
        if score < best.score * BETTER:
          best.score = score
          best.rule = SINGLE
          best.fa = fa
          best.fb = fb
          best.hint = hint
  return best


@wp.func
def _touched(a: ContactSide, s: Surfaces, w: wp.vec3, start: wp.vec3, way: int) -> Feature:
  """What of geom a a capsule or cylinder may touch near w.

  By the `way`: with its side a face (0), an edge (1) or a vertex (2); with an end a vertex (3) or
  an edge (4).
  """
  found = Feature()
  found.kind = FACE
  if way == 1:
    across = wp.transpose(a.geom.rot) @ wp.normalize(start)
    edge = crossing_edge(a.geom, s, a.data, across)
    if wp.length_sq(edge) > 0.0:
      found.kind = EDGE
      found.direction = edge
  if a.geom.kind == GeomType.BOX or a.geom.kind == GeomType.MESH:
    if way == 2 or way == 3:
      found = nearest_vertex(a.geom, s, a.data, w)
    if way == 4:
      found = nearest_edge(a.geom, s, a.data, w, wp.vec3(0.0))
  return found


@wp.func
def _best_clipped(
  a: ContactSide, b: ContactSide, s: Surfaces, sought: SoughtContact, which: int, match: Match
) -> Match:
  """Tries the contacts on a face of a; if `which` is 2, a is the second geom."""
  best = match
  face = facing(a.geom, s, a.data, a.w, a.n, True)
  if face.kind == NONE:
    return best
  normal = a.geom.rot @ face.normal
  v = sought.contact.pos + sought.contact.frame[0] * (0.5 * sought.contact.dist)
  if which == 2:
    v = sought.contact.pos - sought.contact.frame[0] * (0.5 * sought.contact.dist)
  if which == 0:
    other = facing(b.geom, s, b.data, b.w, b.n, True)
    along = wp.dot(normal, b.geom.rot @ other.normal)
    if other.kind == NONE or along > -ALIGNED:
      return best
    v = (
      sought.contact.pos
      - sought.contact.frame[0] * (0.5 * sought.contact.dist)
      - normal * (sought.contact.dist / along)
    )
  va = wp.transpose(a.geom.rot) @ (v - a.geom.pos)
  vb = wp.transpose(b.geom.rot) @ (v - b.geom.pos)
  hint = Hint()
  hint.normal = sought.contact.frame[0]
  hint.start = b.geom.rot @ wp.vec3(vb[0], vb[1], 0.0)
  ways = wp.int32(1)
  if b.geom.kind == GeomType.CYLINDER:
    ways = 2
  if b.geom.kind == GeomType.CAPSULE:
    ways = 5
  for k in range(3 * ways):
    how = k % 3
    way = k // 3
    if how == 0 and best.score > 0.0:
      hint.touched = _touched(a, s, va, hint.start, way)
      hint.touching = single_candidate(b, s, wp.where(way < 3, 1, 0))  # the side, or an end
    fa = facing(a.geom, s, a.data, va, a.n, how == CORNER)
    fb = clipped_candidate(b, s, vb, how)
    if which == 0 and how != CORNER:
      fb.normal = facing(b.geom, s, b.data, vb, b.n, True).normal
    if b.geom.kind == GeomType.CAPSULE:
      fb.pad = 0.5 * b.margin
    if best.score > 0.0 and fa.kind == FACE and fb.kind != NONE:
      rule = CLIPPED + 3 * which + how
      score = mismatch(clipped_contact(a.geom, b.geom, fa, fb, rule, hint), sought)
      if score < best.score * BETTER:
        best.score = score
        best.rule = rule
        best.hint = hint
        best.fa = fa
        best.fb = fb
        if which == 2:
          best.fa = fb
          best.fb = fa
  return best


@wp.func
def _best_of_pair(
  a: ContactSide, b: ContactSide, pair: FeaturePair, rule: int, sought: SoughtContact, match: Match
) -> Match:
  """Takes two features by a rule of their own if they explain the contact better."""
  best = match
  if pair.score < best.score * BETTER:
    best.score = pair.score
    best.rule = rule
    best.fa = pair.fa
    best.fb = pair.fb
    best.hint.normal = sought.contact.frame[0]
  return best


@wp.func
def _best_match(a: ContactSide, b: ContactSide, s: Surfaces, sought: SoughtContact) -> Match:
  """Tries all rules, those that MJWarp prefers first; nothing beats a match within rounding."""
  kind_a = a.geom.kind
  kind_b = b.geom.kind
  match = Match()
  match.score = 1.0e30
  if is_flat(kind_a) and is_flat(kind_b):
    match = _best_clipped(a, b, s, sought, 0, match)
  if is_flat(kind_a) and match.score > 0.0:
    match = _best_clipped(a, b, s, sought, 1, match)
  if is_flat(kind_b) and match.score > 0.0:
    match = _best_clipped(b, a, s, sought, 2, match)
  if match.score > 0.0:
    match = _best_single(a, b, s, sought, match)
  if match.score > 0.0 and kind_a == GeomType.HFIELD and sought.contact.dist < 0.0:
    match = _best_of_pair(a, b, find_vertical(a, b, s, sought), VERTICAL, sought, match)
  if match.score > 0.0 and sought.contact.dist <= 0.0:
    match = _best_of_pair(a, b, find_triangle(a, b, s, sought), TRIANGLE, sought, match)
  worst = WORST
  if match.fa.kind >= RIM or match.fb.kind >= RIM:
    worst = WORST_CURVED
  if match.score > worst:
    match.rule = UNKNOWN
  return match


@wp.func
def _save_feature(frozen: Frozen, i: int, j: int, feature: Feature):
  """Writes a Feature to the arrays."""
  frozen.kind[i, j] = feature.kind
  frozen.point[i, j] = feature.point
  frozen.direction[i, j] = feature.direction
  frozen.normal[i, j] = feature.normal
  frozen.pad[i, j] = feature.pad


@wp.func
def _save(frozen: Frozen, i: int, match: Match):
  """Writes a Match to the arrays."""
  frozen.rule[i] = match.rule
  _save_feature(frozen, i, 0, match.fa)
  _save_feature(frozen, i, 1, match.fb)
  _save_feature(frozen, i, 2, match.hint.touched)
  _save_feature(frozen, i, 3, match.hint.touching)
  frozen.start[i] = match.hint.start
  frozen.inverse[i] = match.hint.inverse


@wp.kernel
def classify_contacts(
  # In:
  pool: ContactPool,
  surfaces: Surfaces,
  # Data in:
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
  # Model:
  geom_size: wp.array2d[wp.vec3],
  # In:
  first_rule: wp.array2d[int],
  # Out:
  frozen: Frozen,
):
  """Finds rule and features of the contacts whose types have SINGLE in `first_rule`."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  frozen.rule[i] = UNKNOWN
  g = pool.geom[i]
  if g[0] < 0 or g[1] < 0:  # a flex
    return
  kind_a = pool.geom_type[g[0]]
  kind_b = pool.geom_type[g[1]]
  frozen.rule[i] = first_rule[kind_a, kind_b]
  if first_rule[kind_a, kind_b] != SINGLE:
    return
  mesh_row = pool.world[i] % surfaces.geom_dataid.shape[0]
  ga = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 0)
  gb = load_geom(pool, geom_xpos, geom_xmat, geom_size, i, 1)
  sought = SoughtContact()
  sought.contact = make_contact(pool.dist[i], pool.pos[i], pool.frame[i])
  n = pool.frame[i][0]
  if kind_a == GeomType.HFIELD and pool.dist[i] > 0.0:
    n = -n
  half = n * (0.5 * pool.dist[i])
  margin = pool.margin[i]
  a = make_side(ga, surfaces.geom_dataid[mesh_row, g[0]], margin, pool.pos[i] - half, n)
  b = make_side(gb, surfaces.geom_dataid[mesh_row, g[1]], margin, pool.pos[i] + half, -n)
  sought.length = wp.length(b.w)
  if kind_a != GeomType.PLANE and kind_a != GeomType.HFIELD:
    sought.length = wp.min(sought.length, wp.length(a.w)) + 0.01 * sought.length
  depth = wp.max(wp.abs(pool.dist[i] - margin), 1.0e-9)
  sought.noise = wp.min(NOISE * sought.length / depth, 0.2)
  sought.depth_weight = 1.0
  if is_round(kind_a) or is_round(kind_b):
    sought.depth_weight = 0.1
  _save(frozen, i, _best_match(a, b, surfaces, sought))


@wp.kernel
def poison_unknown(
  # In:
  pool: ContactPool,
  frozen: Frozen,
  grad_dist: wp.array[float],
  grad_pos: wp.array[wp.vec3],
  grad_frame: wp.array[wp.mat33],
  # Out:
  grad_geom_xpos: wp.array2d[wp.vec3],
  grad_geom_xmat: wp.array2d[wp.mat33],
  grad_geom_size: wp.array2d[wp.vec3],
):
  """Makes NaN of the gradients of the geoms of contacts without a rule that have a gradient."""
  i = wp.tid()
  if i >= pool.nacon[0]:
    return
  if frozen.rule[i] != UNKNOWN:
    return
  frame = grad_frame[i]
  size = wp.abs(grad_dist[i]) + wp.length(grad_pos[i]) + wp.ddot(frame, frame)
  if size == 0.0:
    return
  g = pool.geom[i]
  for j in range(2):
    if g[j] >= 0:
      poison(pool.world[i], g[j], grad_geom_xpos, grad_geom_xmat, grad_geom_size)
