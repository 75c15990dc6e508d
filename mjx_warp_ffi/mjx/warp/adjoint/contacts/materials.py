"""Friction and solver parameters of contacts as functions of those of the geoms and pairs.

Where MuJoCo takes the larger or the smaller of two equal values, as in every model that leaves the
friction at its default, each geom gets half of the gradient: the central difference, which moves
both. Warp's reverse mode of `max` would give nothing to either.
"""

from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src.collision_core import contact_material_params
from mujoco_warp._src.math import upper_tri_index
from mujoco_warp._src.types import MJ_MINMU, vec5

from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

GEOM = ("geom_solmix", "geom_solref", "geom_solimp", "geom_friction")
PAIR = ("pair_solref", "pair_solreffriction", "pair_solimp", "pair_friction")


@struct
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
  # Data in:
  nacon: wp.array[int],
  geom: wp.array[wp.vec2i],
  worldid: wp.array[int],
  # In:
  materials: Materials,
  # Out:
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
  world = worldid[c]
  both = upper_tri_index(materials.ngeom, wp.min(g[0], g[1]), wp.max(g[0], g[1]))
  pair = materials.pairid[both][0]
  condim, mu, ref, reffriction, imp, adhesion = contact_material_params(
    materials.geom_condim,
    materials.geom_priority,
    materials.geom_solmix,
    materials.geom_solref,
    materials.geom_solimp,
    materials.geom_friction,
    materials.geom_adhesion,
    materials.pair_dim,
    materials.pair_solref,
    materials.pair_solreffriction,
    materials.pair_solimp,
    materials.pair_adhesion,
    materials.pair_friction,
    g,
    pair,
    world,
  )
  if pair < 0:
    if materials.geom_priority[g[0]] == materials.geom_priority[g[1]]:
      friction0 = of_world(materials.geom_friction, world, g[0])
      friction1 = of_world(materials.geom_friction, world, g[1])
      mu = _friction(friction0, friction1)
    ref0 = of_world(materials.geom_solref, world, g[0])
    ref1 = of_world(materials.geom_solref, world, g[1])
    if ref0[0] <= 0.0 or ref1[0] <= 0.0:
      ref = -wp.vec2(_larger(-ref0[0], -ref1[0]), _larger(-ref0[1], -ref1[1]))
  friction[c] = mu
  solref[c] = ref
  solreffriction[c] = reffriction
  solimp[c] = imp


def record(rec: Recording) -> dict[str, wp.array]:
  """The parameters of the contacts, with gradients if a field that they come from is wanted."""
  tape, contact = rec.tape, rec.d.contact
  arrays = {f: getattr(contact, f) for f in ("friction", "solref", "solreffriction", "solimp")}
  if not set(GEOM + PAIR) & set(rec.wrt):
    return arrays
  twins = {f: tape.twin(x) for f, x in arrays.items()}
  names = ("geom_condim", "geom_priority", "geom_adhesion", "pair_dim", "pair_adhesion")
  materials = tape.struct(
    Materials,
    ngeom=rec.m.ngeom,
    pairid=rec.m.nxn_pairid,
    **rec.fixed(*names),
    **rec.leaves(*GEOM, *PAIR),
  )
  inputs = [rec.d.nacon, contact.geom, contact.worldid, materials]
  dim = (rec.d.naconmax,)
  tape.launch(mix_materials, dim, inputs=inputs, outputs=list(twins.values()), forward=False)
  return twins


def missing(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal for materials whose contacts pull or move along."""
  if m.flg_adhesion or m.flg_surfacevel:
    yield "adhesion or surface velocity of geoms"


PART = Part(parameters=GEOM + PAIR, missing=missing)
