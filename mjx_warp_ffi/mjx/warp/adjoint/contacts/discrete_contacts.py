"""The sums over the dofs with which a discrete step rescales the rows of contacts."""

import warp as wp
from mujoco_warp._src.types import ConeType

from mjx_warp_ffi.mjx.warp.adjoint.constraints.discrete_inertia import Diagonals, DiscreteInertia
from mjx_warp_ffi.mjx.warp.adjoint.contacts.contact_power import RecordedContacts
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool, arms_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import point_velocity
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording


@wp.kernel(module="unique")
def contact_rows(
  contacts: ContactPool,
  elliptic: bool,
  tree: Tree,
  nodes: Nodes,
  diagonals: Diagonals,
  # Out:
  mass_out: wp.array[float],
  metric_out: wp.array[float],
):
  """The sums of the first row of a contact, which all of its rows take; a thread per contact."""
  c = wp.tid()
  if c >= contacts.nacon[0]:
    return
  if contacts.row[c, 0] < 0:
    return
  world = contacts.world[c]
  n0, n1, r0, r1 = arms_of(contacts, tree, nodes, c)
  frame = contacts.frame[c]
  along = wp.vec3(frame[0, 0], frame[0, 1], frame[0, 2])
  if not elliptic and contacts.dim[c] > 1:
    along = along + contacts.friction[c][0] * wp.vec3(frame[1, 0], frame[1, 1], frame[1, 2])
  mass = wp.float32(0.0)
  metric = wp.float32(0.0)
  for i in range(diagonals.mass.shape[1]):
    v0 = point_velocity(nodes.fields[i, world, n0], r0)
    v1 = point_velocity(nodes.fields[i, world, n1], r1)
    x = wp.dot(along, v1 - v0)
    mass += x * x / diagonals.mass[world, i]
    metric += x * x / diagonals.metric[world, i]
  mass_out[c] = mass
  metric_out[c] = metric


def record_contacts(
  rec: Recording, kin: Kinematics, contacts: RecordedContacts, *, inertia: DiscreteInertia
) -> None:
  """Records the sums of the contacts in a discrete step.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    contacts: the contacts, whose sums are written.
    inertia: the diagonals of M and H, and the unit velocities.
  """
  elliptic = rec.m.opt.cone == ConeType.ELLIPTIC
  inputs = [contacts.pool, elliptic, kin.tree, inertia.unit.nodes, inertia.diagonals]
  outputs = [contacts.sums["mass"], contacts.sums["metric"]]
  rec.tape.launch(contact_rows, rec.d.naconmax, inputs=inputs, outputs=outputs)
