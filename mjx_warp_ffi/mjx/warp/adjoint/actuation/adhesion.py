"""Transmissions to a body: a force on all of its contacts, shared equally, along their normals.

A positive force pulls the bodies together. Which contacts there are, those in a gap among them,
stays as the collision found it.
"""

import functools

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import TrnType

from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool, arms_of, bodies_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import point_velocity
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel, struct


@struct
class Pads:
  """The actuators of bodies."""

  which: wp.array[int]
  body: wp.array[int]  # of each


@wp.func
def _touches(pads: Pads, contacts: ContactPool, c: int, k: int) -> bool:
  """Whether a contact is one of the body of the k-th actuator."""
  b0, b1 = bodies_of(contacts, c)
  return b0 == pads.body[k] or b1 == pads.body[k]


@wp.kernel(enable_backward=False)
def _count(pads: Pads, contacts: ContactPool, count: wp.array2d[int]):
  """The number of contacts of each, a thread per contact of the pool."""
  c = wp.tid()
  if c >= contacts.nacon[0]:
    return
  for k in range(pads.which.shape[0]):
    if _touches(pads, contacts, c, k):
      wp.atomic_add(count, contacts.world[c], k, 1)


@wp.func
def _normal_rate(
  f0: wp.spatial_vector, f1: wp.spatial_vector, r0: wp.vec3, r1: wp.vec3, n: wp.vec3
):
  """The rate at which two bodies part."""
  return wp.dot(n, point_velocity(f1, r1) - point_velocity(f0, r0))


@functools.cache
def body_kernel(nfield: int) -> Kernel:
  """Adds up the rates of the contacts, a thread per contact of the pool and actuator."""

  @wp.kernel(module="unique")
  def body_transmission(
    # Model:
    pads: Pads,
    tree: Tree,
    # In:
    contacts: ContactPool,
    count: wp.array2d[int],
    nodes: Nodes,
    # Out:
    out: Rates,
  ):
    c, k = wp.tid()
    if c >= contacts.nacon[0]:
      return
    if not _touches(pads, contacts, c, k):
      return
    world = contacts.world[c]
    i = pads.which[k]
    share = -1.0 / float(count[world, k])
    n0, n1, r0, r1 = arms_of(contacts, tree, nodes, c)
    frame = contacts.frame[c]
    normal = wp.vec3(frame[0, 0], frame[0, 1], frame[0, 2])
    v = _normal_rate(nodes.vel[world, n0], nodes.vel[world, n1], r0, r1, normal)
    wp.atomic_add(out.velocity, world, i, share * v)
    for f in range(wp.static(nfield)):
      x = _normal_rate(nodes.fields[f, world, n0], nodes.fields[f, world, n1], r0, r1, normal)
      wp.atomic_add(out.fields, f, world, i, share * x)

  return body_transmission


def any_body(m: mjw.Model) -> bool:
  """Whether an actuator acts on a body."""
  return bool(np.any(m.actuator_trntype.numpy() == TrnType.BODY))


def record(
  rec: Recording, kin: Kinematics, over: Carried, *, rates: Rates, contacts: "ContactPool | None"
) -> None:
  """Records the transmissions to bodies, which act on the contacts of these.

  Args:
    rec: the recording.
    kin: the kinematics.
    over: the velocities along which rates are wanted.
    rates: where they go; the rates of these actuators are zero there before.
    contacts: the pool, None where there can be no contact.
  """
  if contacts is None:
    return
  tape, m, naconmax = rec.tape, rec.m, rec.d.naconmax
  which = np.flatnonzero(m.actuator_trntype.numpy() == TrnType.BODY)
  body = m.actuator_trnid.numpy()[which, 0]
  pads = tape.struct(Pads, which=rec.constant(which), body=rec.constant(body))
  count = wp.zeros((tape.nworld, len(which)), dtype=int, device=tape.device)

  def find() -> None:
    count.zero_()
    wp.launch(_count, naconmax, inputs=[pads, contacts], outputs=[count])

  tape.call(forward=find)
  inputs = [pads, kin.tree, contacts, count, over.nodes, rates]
  tape.launch(body_kernel(over.count), (naconmax, len(which)), inputs=inputs, outputs=[])


PART = Part()
