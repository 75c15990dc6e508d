"""Cotangents of contacts: their geometry and forces, and the sensors that read them.

Before each backward pass the cotangents of the sensors are collected by contact of the pool. Those
of distance, point and frame start the gradients there; those of a force are a virtual velocity of
the two bodies in the frame of the contact, as those of their velocity are a force.
"""

import functools
from collections.abc import Collection, Iterable

import mujoco
import numpy as np
import warp as wp
from mujoco_warp._src.types import ConeType, ContactType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.contacts.contact_power import RecordedContacts
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import (
  ContactPool,
  arms_of,
  bodies_of,
  relative,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.sensors import contact_readers, contact_seeds
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_seeds import (
  ContactSeeds,
  TouchAndDistanceSensors,
)
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording, of_kinds
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel

TOUCH = SensorType.TOUCH
DISTANCES = (SensorType.GEOMDIST, SensorType.GEOMNORMAL, SensorType.GEOMFROMTO)
GEOMETRY = ("contact.dist", "contact.pos", "contact.frame")
FORCE = "contact_force"
PART = Part(reports=GEOMETRY, sensors=(TOUCH, *DISTANCES, contact_readers.KIND))
_FAR = 1.0e30
_LAST = 2**30


@functools.cache
def _virtual_kernel(cut: bool) -> Kernel:
  """The virtual velocity of each contact in its frame, a thread per contact of the pool."""

  @wp.kernel(module="unique")
  def contact_virtual(
    # In:
    contacts: ContactPool,
    tree: Tree,
    nodes: Nodes,
    of_forces: wp.array2d[wp.spatial_vector],
    seed: wp.array[wp.spatial_vector],
    # Out:
    out: wp.array[wp.spatial_vector],
  ):
    c = wp.tid()
    if c >= contacts.nacon[0]:
      return
    if (contacts.type[c] & ContactType.CONSTRAINT) == 0:
      return
    w = seed[c]
    if wp.static(cut):
      world = contacts.world[c]
      b0, b1 = bodies_of(contacts, c)
      _n0, _n1, r0, r1 = arms_of(contacts, tree, nodes, c)
      w = w + relative(of_forces[world, b0], of_forces[world, b1], r0, r1, contacts.frame[c])
    out[c] = w

  return contact_virtual


@wp.kernel(module="unique")
def _velocity_power(
  # In:
  contacts: ContactPool,
  tree: Tree,
  nodes: Nodes,
  seed: wp.array[wp.spatial_vector],
  # Out:
  power: wp.array[float],
):
  """The velocity of the second body against the first, a thread per contact of the pool."""
  c = wp.tid()
  if c >= contacts.nacon[0]:
    return
  if (contacts.type[c] & ContactType.CONSTRAINT) == 0:
    return
  world = contacts.world[c]
  n0, n1, r0, r1 = arms_of(contacts, tree, nodes, c)
  v = relative(nodes.vel[world, n0], nodes.vel[world, n1], r0, r1, contacts.frame[c])
  power[c] = wp.dot(seed[c], v)


def _sensors(mjm: mujoco.MjModel, outputs: Collection[str], kinds: Iterable[int]) -> np.ndarray:
  """Ids of the sensors of these kinds, none if sensordata is no output."""
  return of_kinds(mjm, kinds) if "sensordata" in outputs else np.zeros(0, int)


def _reads(mjm: mujoco.MjModel, outputs: Collection[str]) -> tuple[bool, bool]:
  """Whether any contact sensor reads the geometry of contacts, and whether any reads forces."""
  found = [contact_readers.reads(mjm, k) for k in _sensors(mjm, outputs, (contact_readers.KIND,))]
  return any(geometry for geometry, _ in found), any(forces for _, forces in found)


def of_forces(mjm: mujoco.MjModel, outputs: Collection[str]) -> bool:
  """Whether forces of contacts are among the outputs, or sensors read them.

  Args:
    mjm: the model.
    outputs: names of what has a cotangent.
  """
  touch = len(_sensors(mjm, outputs, (TOUCH,))) > 0
  return FORCE in outputs or touch or _reads(mjm, outputs)[1]


def of_geometry(mjm: mujoco.MjModel, outputs: Collection[str], *, solves: bool) -> bool:
  """Whether distances, points, frames or velocities of contacts are, or sensors read them.

  Args:
    mjm: the model.
    outputs: names of what has a cotangent.
    solves: whether an acceleration is solved for: without, contact sensors have no cotangent.
  """
  near = len(_sensors(mjm, outputs, DISTANCES)) > 0
  found = near or not set(GEOMETRY).isdisjoint(outputs)
  return found or (solves and _reads(mjm, outputs)[0])


class Collector:
  """Collects the cotangents by contact, as soon as the contacts have been found once more.

  Args:
    rec: the recording.
    weights: the cotangents of sensordata, zero where a sensor is at its cutoff.

  Attributes:
    seeds: the cotangents by contact.
    sensors: the contact sensors.
  """

  def __init__(self, rec: Recording, weights: wp.array):
    """Allocates them, and has them collected."""
    self._rec, self._weights, count = rec, weights, rec.d.naconmax
    self.seeds = ContactSeeds()
    self.seeds.dist = wp.zeros(count, dtype=float)
    self.seeds.pos = wp.zeros(count, dtype=wp.vec3)
    self.seeds.frame = wp.zeros(count, dtype=wp.mat33)
    self.seeds.force = wp.zeros(count, dtype=wp.spatial_vector)
    self.seeds.velocity = wp.zeros(count, dtype=wp.spatial_vector)
    self._touch, self._near = (_make_sensors(rec, kinds) for kinds in ((TOUCH,), DISTANCES))
    shape = (rec.d.nworld, self._near.which.size)
    self._best = wp.zeros(shape, dtype=float)
    self._first = wp.zeros(shape, dtype=int)
    self._pool = _make_pool(rec)
    self.sensors = contact_readers.ContactSensors(
      rec, pool=self._pool, seeds=self.seeds, weights=weights
    )
    rec.tape.when_recomputed(self._collect)

  def _collect(self) -> None:
    rec, seeds, d = self._rec, self.seeds, self._rec.d
    names = dict(zip((*GEOMETRY, FORCE), ("dist", "pos", "frame", "force"), strict=True))
    for name, field in names.items():
      array, cotangent = getattr(seeds, field), rec.cotangent(name)
      if cotangent is not None:
        wp.copy(array, cotangent)
      else:
        array.zero_()
    seeds.velocity.zero_()
    if self._touch.which.size:
      inputs = [d.site_xpos, d.site_xmat, d.efc.force, self._touch, self._pool, self._weights]
      dim = (d.naconmax, self._touch.which.size)
      wp.launch(contact_seeds.touch, dim, inputs=[*inputs, seeds])
    if self._near.which.size:
      dim = (d.naconmax, self._near.which.size)
      self._best.fill_(_FAR)
      self._first.fill_(_LAST)
      wp.launch(contact_seeds.nearest, dim, inputs=[self._near, self._pool], outputs=[self._best])
      inputs = [self._near, self._pool, self._best]
      wp.launch(contact_seeds.first, dim, inputs=inputs, outputs=[self._first])
      inputs += [self._first, self._weights, seeds]
      wp.launch(contact_seeds.distance, dim, inputs=inputs)
    self.sensors.collect()


def _make_sensors(rec: Recording, kinds: tuple[int, ...]) -> TouchAndDistanceSensors:
  """The sensors of these kinds that have a cotangent."""
  m, s = rec.m, TouchAndDistanceSensors()
  s.which = rec.constant(rec.sensors(kinds))
  for name in ("type", "objtype", "objid", "reftype", "refid", "adr", "cutoff"):
    setattr(s, name, getattr(m, f"sensor_{name}"))
  for name in ("body_geomnum", "body_geomadr", "geom_type", "geom_bodyid", "site_bodyid"):
    setattr(s, name, getattr(m, name))
  s.site_type, s.site_size = m.site_type, m.site_size
  s.pyramidal = m.opt.cone == ConeType.PYRAMIDAL
  return s


def _make_pool(rec: Recording) -> ContactPool:
  """The contacts as MJWarp found them."""
  d, pool = rec.d, ContactPool()
  pool.nacon, pool.world, pool.slot = d.nacon, d.contact.worldid, d.contact.geomcollisionid
  pool.row = d.contact.efc_address
  for name in ("type", "geom", "dim", "dist", "pos", "frame", "friction"):
    setattr(pool, name, getattr(d.contact, name))
  return pool


def record_geometry(
  rec: Recording, kin: Kinematics, contacts: RecordedContacts, *, collector: Collector
) -> None:
  """Records the cotangents of distances, points, frames and velocities, after the geometry."""
  grads, seeds, d = contacts.arrays, collector.seeds, rec.d

  def backward() -> None:
    inputs = [d.nacon, seeds]
    wp.launch(contact_seeds.add_seeds, d.naconmax, inputs=inputs, outputs=[x.grad for x in grads])

  rec.tape.call(backward=backward)
  if rec.needs.solves and _reads(rec.mjm, rec.cotangents)[0]:
    inputs = [contacts.pool, kin.tree, kin.nodes, seeds.velocity]
    rec.tape.power(_velocity_power, (d.naconmax,), inputs=inputs)


def record_virtual(
  rec: Recording,
  kin: Kinematics,
  contacts: RecordedContacts,
  *,
  collector: Collector,
  of_forces: wp.array | None,
) -> wp.array:
  """Records the virtual velocity of each contact, in its frame.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    contacts: the contacts.
    collector: the cotangents of their forces.
    of_forces: virtual velocities of the bodies, which are added; None for none.
  """
  out = rec.tape.track(wp.zeros(rec.d.naconmax, dtype=wp.spatial_vector))
  none = wp.zeros((1, 1), dtype=wp.spatial_vector)
  inputs = [contacts.pool, kin.tree, kin.nodes]
  inputs += [none if of_forces is None else of_forces, collector.seeds.force]
  kernel = _virtual_kernel(of_forces is not None)
  rec.tape.launch(kernel, (rec.d.naconmax,), inputs=inputs, outputs=[out])
  return out
