"""Friction and solver parameters of contacts as functions of those of the geoms and pairs.

Where MuJoCo takes the larger or the smaller of two equal values, as in every model that leaves the
friction at its default, each geom gets half of the gradient: the central difference, which moves
both. Warp's reverse mode of `max` would give nothing to either.
"""

import warp as wp
from mujoco_warp._src.collision_core import contact_material_params
from mujoco_warp._src.math import upper_tri_index
from mujoco_warp._src.types import MJ_MINMU, vec5

GEOM = ("geom_solmix", "geom_solref", "geom_solimp", "geom_friction")
PAIR = ("pair_solref", "pair_solreffriction", "pair_solimp", "pair_friction")


@wp.struct
class Materials:
  """Model fields that a contact's parameters come from."""

  ngeom: int
  pairid: wp.array[wp.vec2i]
  geom_condim: wp.array[int]
  geom_priority: wp.array[int]
  geom_solmix: wp.array2d[float]
  geom_solref: wp.array2d[wp.vec2]
  geom_solimp: wp.array2d[vec5]
  geom_friction: wp.array2d[wp.vec3]
  geom_adhesion: wp.array2d[float]
  pair_dim: wp.array[int]
  pair_solref: wp.array2d[wp.vec2]
  pair_solreffriction: wp.array2d[wp.vec2]
  pair_solimp: wp.array2d[vec5]
  pair_adhesion: wp.array2d[float]
  pair_friction: wp.array2d[vec5]


@wp.func
def _larger(a: float, b: float) -> float:
  """The larger of two numbers, their mean where they are equal."""
  y = 0.5 * (a + b)
  if a > b:
    y = a
  elif a < b:
    y = b
  return y


@wp.func
def _clamped_larger(a: float, b: float) -> float:
  """The friction of two geoms along one direction."""
  y = _larger(a, b)
  if y < MJ_MINMU:
    y = MJ_MINMU
  return y


@wp.func
def _friction(a: wp.vec3, b: wp.vec3) -> vec5:
  """The friction of two geoms of the same priority."""
  slide = _clamped_larger(a[0], b[0])
  spin = _clamped_larger(a[1], b[1])
  roll = _clamped_larger(a[2], b[2])
  return vec5(slide, slide, spin, roll, roll)


@wp.kernel(module="unique")
def mix_materials(
  m: Materials,
  nacon: wp.array[int],
  geom: wp.array[wp.vec2i],
  worldid: wp.array[int],
  friction: wp.array[vec5],
  solref: wp.array[wp.vec2],
  solreffriction: wp.array[wp.vec2],
  solimp: wp.array[vec5],
):
  """The parameters of a contact, a thread per contact of the pool."""
  c = wp.tid()
  if c >= nacon[0]:
    return
  g = geom[c]
  pair = m.pairid[upper_tri_index(m.ngeom, wp.min(g[0], g[1]), wp.max(g[0], g[1]))][0]
  condim, mu, ref, reffriction, imp, adhesion = contact_material_params(
    m.geom_condim,
    m.geom_priority,
    m.geom_solmix,
    m.geom_solref,
    m.geom_solimp,
    m.geom_friction,
    m.geom_adhesion,
    m.pair_dim,
    m.pair_solref,
    m.pair_solreffriction,
    m.pair_solimp,
    m.pair_adhesion,
    m.pair_friction,
    g,
    pair,
    worldid[c],
  )
  if pair < 0:
    if m.geom_priority[g[0]] == m.geom_priority[g[1]]:
      row = worldid[c] % m.geom_friction.shape[0]
      mu = _friction(m.geom_friction[row, g[0]], m.geom_friction[row, g[1]])
    rowref = worldid[c] % m.geom_solref.shape[0]
    ref0 = m.geom_solref[rowref, g[0]]
    ref1 = m.geom_solref[rowref, g[1]]
    if ref0[0] <= 0.0 or ref1[0] <= 0.0:
      ref = -wp.vec2(_larger(-ref0[0], -ref1[0]), _larger(-ref0[1], -ref1[1]))
  friction[c] = mu
  solref[c] = ref
  solreffriction[c] = reffriction
  solimp[c] = imp


def record(step) -> dict[str, wp.array]:
  """The parameters of the contacts, with gradients if a field that they come from is wanted."""
  tape, m, contact = step.tape, step.m, step.d.contact
  arrays = {f: getattr(contact, f) for f in ("friction", "solref", "solreffriction", "solimp")}
  if not set(GEOM + PAIR) & set(step.wrt):
    return arrays
  twins = {f: tape.twin(x) for f, x in arrays.items()}
  names = ("geom_condim", "geom_priority", "geom_adhesion", "pair_dim", "pair_adhesion")
  fixed = {f: getattr(m, f) for f in names}
  materials = tape.struct(
    Materials, ngeom=m.ngeom, pairid=m.nxn_pairid, **fixed, **step.leaves(*GEOM, *PAIR)
  )
  inputs = [materials, step.d.nacon, contact.geom, contact.worldid]
  dim = (step.d.naconmax,)
  tape.launch(mix_materials, dim, inputs=inputs, outputs=list(twins.values()), forward=False)
  return twins
