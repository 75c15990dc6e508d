"""The sums over the dofs with which a discrete step rescales the rows of contacts."""

import warp as wp
from mujoco_warp._src.types import ConeType

from mjx_warp_ffi.mjx.warp.adjoint.constraints.discrete_inertia import Diagonals
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import Contacts, arms_of
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  point_velocity,
)


@wp.kernel(module="unique")
def contact_rows(
  contacts: Contacts,
  elliptic: bool,
  tree: Tree,
  nodes: Nodes,
  diagonals: Diagonals,
  mass_out: wp.array[float],
  metric_out: wp.array[float],
):
  """The first row of each contact, which all of its rows take; a thread per contact."""
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


def make_contact_sums(step) -> dict[str, wp.array]:
  """The sums of the contacts of a `StageAdjoint`."""
  count = step.d.naconmax if step.discrete else 1
  arrays = (wp.zeros(count, dtype=float, device=step.tape.device) for _ in range(2))
  return dict(zip(("mass", "metric"), map(step.tape.track, arrays), strict=True))


def record_contacts(step) -> None:
  """Records the sums of the contacts of a `StageAdjoint`."""
  if not step.discrete:
    return
  recorded, elliptic = step.contacts, step.m.opt.cone == ConeType.ELLIPTIC
  inputs = [recorded.struct, elliptic, step.sweep.tree]
  inputs += [step.metric.unit.nodes, step.metric.diagonals]
  outputs = [recorded.sums["mass"], recorded.sums["metric"]]
  step.tape.launch(contact_rows, step.d.naconmax, inputs=inputs, outputs=outputs)
