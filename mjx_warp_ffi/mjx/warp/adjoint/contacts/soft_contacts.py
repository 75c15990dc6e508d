"""Contacts that fade in before bodies touch: the law of `ContactSmoothing`.

Let g be the gap of a contact, its distance less its margin, x = g / width, and d(g) its impedance.
The smoothed contact has

  the position   p = g - width / 2         the impedance  d(g)                      where x <= 0,
                 p = -(1 - x)^2 width / 2                 d(0) (1 - x)^2 (1 + 2 x)  where 0 < x < 1,

and is not there beyond. Both are continuous with their slopes, and tend to those of the contact as
it is as the width goes to zero. All else is as in MuJoCo: the reference -b J v - k d p, the
stiffness from the impedance, both cones. An impedance d means that a contact takes that share of
the way from the motion without it to its reference, so a contact that fades in does so evenly.

That a contact should act at a distance in the backward pass alone is the idea of Paulus, Geist et
al., Hard contacts with soft gradients (2025, arXiv:2506.14186); the law here is another.

The backward pass solves the smoothed dynamics at the state before the step. The gradient is then
that of one function, whose slope is continuous where bodies touch; at the acceleration of the step
itself it would be that of none, and jump.
"""

import dataclasses
from collections.abc import Collection

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.constraint import _contact_kbimp
from mujoco_warp._src.types import ConeType, IntegratorType, TrnType

from mjx_warp_ffi.mjx.data.smoothing import ContactSmoothing
from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import soft_law
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.tape import refusals
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world

_ITERATIONS = 30  # of Newton's method at least: the start is another solution


def _refused(m: mjw.Model, outputs: Collection[str]) -> list[str]:
  """Names of features and outputs that have no rule with smoothed contacts."""
  found = []
  if m.opt.integrator == IntegratorType.DISCRETE:
    found.append("the integrator discrete")
  if np.any(m.actuator_trntype.numpy() == TrnType.BODY):
    found.append("adhesion")  # on all contacts alike that the collision finds
  if np.any(m.geom_type.numpy() == mjw.GeomType.HFIELD):
    found.append("height fields")  # MJWarp raises them by the margin: other contacts
  if np.any(m.geom_type.numpy() == mjw.GeomType.SDF):
    found.append("SDFs")  # where the search stops says little of how far the surfaces are
  found += [name for name in outputs if name.startswith("contact")]  # by another numbering
  return [f"{name} with contact_smoothing" for name in found]


@wp.kernel(enable_backward=False)
def _add(x: wp.array2d[float], y: float, out: wp.array2d[float]):
  i, j = wp.tid()
  out[i, j] = x[i, j] + y


@wp.kernel(enable_backward=False)
def _scale(x: wp.array[float], y: float, out: wp.array[float]):
  i = wp.tid()
  out[i] = x[i] * y


@wp.kernel(enable_backward=False)
def _note_pools(naconmax: int, found: wp.array[int], pairs: wp.array[int], full: wp.array2d[float]):
  """Flags all worlds if the pools lost anything."""
  world = wp.tid()
  if found[0] > naconmax or pairs[0] > naconmax:
    full[world, 0] = 1.0


@wp.kernel(enable_backward=False)
def _note_rows(njmax: int, nefc: wp.array[int], overflow: wp.array[int], full: wp.array2d[float]):
  """Flags worlds that lost rows."""
  world = wp.tid()
  if nefc[world] > njmax or overflow[world] != 0:
    full[world, 0] = 1.0


@wp.kernel(enable_backward=False)
def _soften(
  # Model:
  timestep: wp.array[float],
  disableflags: int,
  elliptic: bool,
  # In:
  pool: ContactPool,
  width: float,
  # Data out:
  efc_D: wp.array2d[float],
  efc_aref: wp.array2d[float],
):
  """Gives the rows of a contact its smoothed law, a thread per contact of the pool."""
  c = wp.tid()
  if c >= pool.nacon[0]:
    return
  world = pool.world[c]
  h = of_world(timestep, world)
  made = pool.dist[c] - pool.margin[c]
  gap = made + width
  law = _contact_kbimp(disableflags, h, pool.solref[c], pool.solimp[c], made, False)
  pos, share, depth = soft_law(gap, width)
  imp = share * _contact_kbimp(disableflags, h, pool.solref[c], pool.solimp[c], depth, False)[2]
  scale = imp * (1.0 - law[2]) / (law[2] * (1.0 - imp))
  for i in range(pool.row.shape[1]):
    r = pool.row[c, i]
    if r >= 0 and r < efc_D.shape[1]:
      efc_D[world, r] = efc_D[world, r] * scale
      if i == 0 or not elliptic:
        efc_aref[world, r] = efc_aref[world, r] + law[0] * (law[2] * made - imp * pos)


class SoftContacts:
  """Smoothed contacts of a workspace: what the backward pass runs in place of MJWarp's.

  `begin`, then MJWarp's stages with `m` up to the rows, then `soften` and, once the smooth forces
  are there, `solve`.

  Attributes:
    m: the model, whose margins are wider by the width.
    width: see `ContactSmoothing`.
    looseness: what the root of 1 / impratio is multiplied by.
    full: (nworld, 1), not zero where capacities did not suffice for the contacts.
  """

  def __init__(self, m: mjw.Model, d: mjw.Data, *, smoothing: ContactSmoothing):
    """On the current Warp device."""
    self._exact, self._d = m, d
    self.width = smoothing.width
    self.looseness = smoothing.friction**-0.5
    self.full = wp.zeros((d.nworld, 1), dtype=float)
    opt = dataclasses.replace(
      m.opt,
      impratio_invsqrt=wp.zeros_like(m.opt.impratio_invsqrt),
      iterations=max(_ITERATIONS, m.opt.iterations),
    )
    self.m = dataclasses.replace(
      m,
      opt=opt,
      geom_margin=wp.zeros_like(m.geom_margin),
      pair_margin=wp.zeros_like(m.pair_margin),
      callback=dataclasses.replace(m.callback, contactfilter=self._collided),
    )
    pool, contact = ContactPool(), d.contact
    pool.nacon, pool.world, pool.dist = d.nacon, contact.worldid, contact.dist
    pool.margin, pool.row = contact.includemargin, contact.efc_address
    pool.solref, pool.solimp = contact.solref, contact.solimp
    self._pool = pool

  def begin(self) -> None:
    """Brings the model up to date."""
    m, exact = self.m, self._exact
    self.full.zero_()
    self._d.overflow.zero_()
    half = 0.5 * self.width  # the margin of a contact is the sum of those of its geoms
    inputs = [exact.geom_margin, half]
    wp.launch(_add, m.geom_margin.shape, inputs=inputs, outputs=[m.geom_margin])
    inputs = [exact.pair_margin, self.width]
    wp.launch(_add, m.pair_margin.shape, inputs=inputs, outputs=[m.pair_margin])
    ratio, out = exact.opt.impratio_invsqrt, m.opt.impratio_invsqrt
    wp.launch(_scale, ratio.shape, inputs=[ratio, self.looseness], outputs=[out])

  def _collided(self, m: mjw.Model, d: mjw.Data) -> None:
    """What belongs between the collisions and the rows."""
    inputs = [d.naconmax, d.nacon, d.ncollision]
    wp.launch(_note_pools, d.nworld, inputs=inputs, outputs=[self.full])
    if self._exact.callback.contactfilter:
      self._exact.callback.contactfilter(m, d)

  def soften(self) -> None:
    """Gives the rows of contacts the smoothed law."""
    d, opt = self._d, self._exact.opt
    elliptic = opt.cone == ConeType.ELLIPTIC
    inputs = [opt.timestep, int(opt.disableflags), elliptic, self._pool, self.width]
    wp.launch(_soften, d.naconmax, inputs=inputs, outputs=[d.efc.D, d.efc.aref])
    inputs = [d.njmax, d.nefc, d.overflow]
    wp.launch(_note_rows, d.nworld, inputs=inputs, outputs=[self.full])


def make(
  m: mjw.Model,
  d: mjw.Data,
  *,
  outputs: Collection[str],
  smoothing: ContactSmoothing | None,
  acts: bool,
) -> SoftContacts | None:
  """The smoothed contacts of a workspace, None if it has none or shall not smooth them.

  Args:
    m: the model.
    d: the workspace.
    outputs: names of what has a cotangent.
    smoothing: how to smooth contacts, None if they stay as they are.
    acts: whether contacts can act on the outputs.

  Raises:
    NotImplementedError: for what has no rule with them.
  """
  if not (smoothing and acts):
    return None
  refusals.refuse(_refused(m, outputs))
  return SoftContacts(m, d, smoothing=smoothing)
