"""Friction and solver parameters of contacts as functions of those of the geoms and pairs."""

import warp as wp
from mujoco_warp._src.collision_core import contact_material_params
from mujoco_warp._src.math import upper_tri_index
from mujoco_warp._src.types import vec5

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
