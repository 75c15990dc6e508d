"""Cotangents of contacts: their geometry and forces, and the sensors that read them.

Before each backward pass the cotangents of the sensors are collected by contact of the pool. Those
of distance, point and frame start the gradients there; those of a force are a virtual velocity of
the two bodies in the frame of the contact, as those of their velocity are a force.
"""

import functools

import warp as wp
from mujoco_warp._src.types import ConeType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.contacts.contact_power import CONSTRAINT
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import (
  Contacts,
  arms_of,
  bodies_of,
  relative,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.sensors import contact_readers, contact_seeds
from mjx_warp_ffi.mjx.warp.adjoint.tape.sensed import with_cotangent

TOUCH = int(SensorType.TOUCH)
DISTANCE, NORMAL = int(SensorType.GEOMDIST), int(SensorType.GEOMNORMAL)
FROMTO = int(SensorType.GEOMFROMTO)
DISTANCES = (DISTANCE, NORMAL, FROMTO)
GEOMETRY = ("contact.dist", "contact.pos", "contact.frame")
FORCE = "contact_force"
_FAR = 1.0e30
_LAST = 2**30


@functools.cache
def _virtual_kernel(cut: bool) -> wp.Kernel:
  """The virtual velocity of each contact in its frame, a thread per contact of the pool."""

  @wp.kernel(module="unique")
  def contact_virtual(
    contacts: Contacts,
    tree: Tree,
    nodes: Nodes,
    of_forces: wp.array2d[wp.spatial_vector],
    seed: wp.array[wp.spatial_vector],
    out: wp.array[wp.spatial_vector],
  ):
    c = wp.tid()
    if c >= contacts.nacon[0]:
      return
    if (contacts.type[c] & CONSTRAINT) == 0:
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
  contacts: Contacts,
  tree: Tree,
  nodes: Nodes,
  seed: wp.array[wp.spatial_vector],
  power: wp.array[float],
):
  """The velocity of the second body against the first, a thread per contact of the pool."""
  c = wp.tid()
  if c >= contacts.nacon[0]:
    return
  if (contacts.type[c] & CONSTRAINT) == 0:
    return
  world = contacts.world[c]
  n0, n1, r0, r1 = arms_of(contacts, tree, nodes, c)
  v = relative(nodes.vel[world, n0], nodes.vel[world, n1], r0, r1, contacts.frame[c])
  power[c] = wp.dot(seed[c], v)


def _reads(step) -> tuple[list[bool], list[bool]]:
  """For each contact sensor with a cotangent whether it reads the geometry, and the forces."""
  which = with_cotangent(step, (contact_readers.KIND,))
  found = [contact_readers.reads(step.mjm, k) for k in which]
  return [geometry for geometry, _ in found], [forces for _, forces in found]


def of_forces(step) -> bool:
  """Whether forces of contacts have a cotangent."""
  return (
    FORCE in step.cotangents or bool(len(with_cotangent(step, (TOUCH,)))) or any(_reads(step)[1])
  )


def of_geometry(step, *, solves: bool) -> bool:
  """Whether distances, points, frames or velocities have one, of sensors too if `solves`."""
  found = not set(GEOMETRY).isdisjoint(step.cotangents)
  return found or bool(len(with_cotangent(step, DISTANCES))) or (solves and any(_reads(step)[0]))


class Collector:
  """Collects the cotangents by contact, before each backward pass of a `StageAdjoint`.

  Attributes:
    seeds: the cotangents.
    sensors: the contact sensors.
  """

  def __init__(self, step):
    """Allocates them, and has them collected."""
    self._step, count = step, step.d.naconmax
    self.seeds = contact_seeds.Seeds()
    self.seeds.dist = wp.zeros(count, dtype=float)
    self.seeds.pos = wp.zeros(count, dtype=wp.vec3)
    self.seeds.frame = wp.zeros(count, dtype=wp.mat33)
    self.seeds.force = wp.zeros(count, dtype=wp.spatial_vector)
    self.seeds.velocity = wp.zeros(count, dtype=wp.spatial_vector)
    self._touch, self._near = (self._sensed(x) for x in ((TOUCH,), DISTANCES))
    shape = (step.d.nworld, self._near.which.size)
    self._best = wp.zeros(shape, dtype=float)
    self._first = wp.zeros(shape, dtype=int)
    self._pool = self._make_pool()
    self.sensors = contact_readers.ContactSensors(step, pool=self._pool, seeds=self.seeds)
    step.after_recompute.append(self._collect)

  def _sensed(self, kinds: tuple[int, ...]) -> contact_seeds.Sensed:
    step, s = self._step, contact_seeds.Sensed()
    s.which = step.constant(with_cotangent(step, kinds))
    for name in ("type", "objtype", "objid", "reftype", "refid", "adr", "cutoff"):
      setattr(s, name, getattr(step.m, f"sensor_{name}"))
    for name in ("body_geomnum", "body_geomadr", "geom_type", "geom_bodyid", "site_bodyid"):
      setattr(s, name, getattr(step.m, name))
    s.site_type, s.site_size = step.m.site_type, step.m.site_size
    s.pyramidal = step.m.opt.cone == ConeType.PYRAMIDAL
    return s

  def _make_pool(self) -> contact_seeds.Pool:
    d, pool = self._step.d, contact_seeds.Pool()
    pool.nacon, pool.world, pool.slot = d.nacon, d.contact.worldid, d.contact.geomcollisionid
    pool.row, pool.force = d.contact.efc_address, d.efc.force
    for name in ("type", "geom", "dim", "dist", "pos", "frame"):
      setattr(pool, name, getattr(d.contact, name))
    return pool

  def _collect(self) -> None:
    step, seeds, d = self._step, self.seeds, self._step.d
    names = dict(zip((*GEOMETRY, FORCE), ("dist", "pos", "frame", "force"), strict=True))
    for name, field in names.items():
      array = getattr(seeds, field)
      if name in step.cotangents:
        wp.copy(array, step.cotangents[name])
      else:
        array.zero_()
    seeds.velocity.zero_()
    if self._touch.which.size:
      inputs = [self._touch, self._pool, d.site_xpos, d.site_xmat, step.weights, seeds]
      wp.launch(contact_seeds.touch, (d.naconmax, self._touch.which.size), inputs=inputs)
    if self._near.which.size:
      dim = (d.naconmax, self._near.which.size)
      self._best.fill_(_FAR)
      self._first.fill_(_LAST)
      wp.launch(contact_seeds.nearest, dim, inputs=[self._near, self._pool], outputs=[self._best])
      inputs = [self._near, self._pool, self._best]
      wp.launch(contact_seeds.first, dim, inputs=inputs, outputs=[self._first])
      inputs += [self._first, step.weights, seeds]
      wp.launch(contact_seeds.distance, dim, inputs=inputs)
    self.sensors.collect()


def record_geometry(step) -> None:
  """Records the cotangents of distances, points, frames and velocities, after the geometry."""
  grads, seeds, d = step.contacts.arrays, step.collector.seeds, step.d

  def backward() -> None:
    inputs = [d.nacon, seeds]
    wp.launch(contact_seeds.add_seeds, d.naconmax, inputs=inputs, outputs=[x.grad for x in grads])

  step.tape.call(backward=backward)
  if step.needs.solves and any(_reads(step)[0]):
    inputs = [step.contacts.struct, step.sweep.tree, step.sweep.nodes, seeds.velocity]
    step.tape.power(_velocity_power, (d.naconmax,), inputs=inputs)


def record_virtual(step, of_forces: wp.array | None) -> wp.array:
  """Records the virtual velocity of each contact: `of_forces` of the bodies, and its own."""
  tape = step.tape
  out = tape.track(wp.zeros(step.d.naconmax, dtype=wp.spatial_vector))
  none = wp.zeros((1, 1), dtype=wp.spatial_vector)
  inputs = [step.contacts.struct, step.sweep.tree, step.sweep.nodes]
  inputs += [none if of_forces is None else of_forces, step.collector.seeds.force]
  kernel = _virtual_kernel(of_forces is not None)
  tape.launch(kernel, (step.d.naconmax,), inputs=inputs, outputs=[out])
  return out
