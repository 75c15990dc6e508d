"""Cotangents of what bodies exert on each other: force and torque sensors, `cacc`, `cfrc_int`.

The force that a subtree transmits is the sum of its inertial forces, less the external ones: of
`xfrc_applied`, of contacts, connects, welds and spatial tendons. Its cotangent is a rigid velocity
of that subtree, and zero elsewhere; so the products of forces and cotangents add up to a virtual
power, on a field that is rigid in each body alone. As all outputs that depend on the acceleration,
they take part in the solves too: see `stage.py`.
"""

import functools
from collections.abc import Collection

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src.types import SensorType

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, inertia_of
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Sites, site_frame
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import (
  point_acceleration,
  point_velocity,
  rotate,
  unrotate,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried, Velocities
from mjx_warp_ffi.mjx.warp.adjoint.outputs import subtrees
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording, of_kinds
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel, struct

KINDS = (int(SensorType.FORCE), int(SensorType.TORQUE))
REPORTS = ("cacc", "cfrc_int", "cfrc_ext")


@struct
class Cuts:
  """Where the sensors cut the tree, and the subtrees."""

  which: wp.array[int]
  type: wp.array[int]
  objid: wp.array[int]
  adr: wp.array[int]
  body_rootid: wp.array[int]
  body_subtreenum: wp.array[int]


@wp.func
def _about(c: wp.spatial_vector, x: wp.vec3) -> wp.spatial_vector:
  """The field at x from the point of a field whose value at that point is c."""
  return wp.spatial_vector(wp.spatial_top(c), wp.spatial_bottom(c) + wp.cross(wp.spatial_top(c), x))


@functools.cache
def _cut_kernel(sensed: bool, internal: bool, external: bool) -> Kernel:
  """The virtual velocities of bodies, a thread per world and body."""

  @wp.kernel(module="unique")
  def cut_velocity(
    # In:
    cuts: Cuts,
    sites: Sites,
    tree: Tree,
    nodes: Nodes,
    com: wp.array2d[wp.vec3],
    cot: wp.array2d[float],
    cot_int: wp.array2d[wp.spatial_vector],
    cot_ext: wp.array2d[wp.spatial_vector],
    # Out:
    of_inertia: wp.array2d[wp.spatial_vector],
    of_forces: wp.array2d[wp.spatial_vector],
  ):
    world, it = wp.tid()
    b = it + 1
    x = nodes.xpos[world, tree.of_body[b]]
    u = wp.spatial_vector()
    if wp.static(sensed):
      for i in range(cuts.which.shape[0]):
        k = cuts.which[i]
        s = cuts.objid[k]
        body = sites.site_bodyid[s]
        if body <= b and b < body + cuts.body_subtreenum[body]:
          n, r, q = site_frame(sites, tree, nodes, world, s)
          arm = x - nodes.xpos[world, n] - r
          a = cuts.adr[k]
          g = rotate(q, wp.vec3(cot[world, a], cot[world, a + 1], cot[world, a + 2]))
          if cuts.type[k] == SensorType.FORCE:
            u += wp.spatial_vector(wp.vec3(0.0), g)
          else:
            u += wp.spatial_vector(g, wp.cross(g, arm))
    if wp.static(internal):
      for c in range(cuts.body_rootid.shape[0]):
        if c <= b and b < c + cuts.body_subtreenum[c]:
          # each about the centre of its own tree; those of all trees are added up as they are
          u += _about(cot_int[world, c], x - com[world, cuts.body_rootid[b]])
    of_inertia[world, b] = u
    v = -u
    if wp.static(external):
      v = v + _about(cot_ext[world, b], x - com[world, cuts.body_rootid[b]])
    of_forces[world, b] = v

  return cut_velocity


@wp.kernel(module="unique")
def _cut_power(
  # In:
  tree: Tree,
  nodes: Nodes,
  # Model:
  inertia: Inertia,
  gravity: wp.array[wp.vec3],
  # Data in:
  xfrc_applied: wp.array2d[wp.spatial_vector],
  # In:
  of_inertia: wp.array2d[wp.spatial_vector],
  of_forces: wp.array2d[wp.spatial_vector],
  # Out:
  power: wp.array2d[float],
):
  """Inertial and applied forces, a thread per world and body."""
  world, it = wp.tid()
  b = it + 1
  n = tree.of_body[b]
  om = wp.spatial_top(nodes.vel[world, n])
  acc = nodes.acc[world, n]
  mass, moments, c, qi = inertia_of(tree, nodes, inertia, world, b)
  force = mass * (point_acceleration(acc, om, c) - of_world(gravity, world))
  lo = unrotate(qi, om)
  torque = wp.cw_mul(moments, unrotate(qi, wp.spatial_top(acc)))
  torque = torque + wp.cross(lo, wp.cw_mul(moments, lo))
  u = of_inertia[world, b]
  v = of_forces[world, b]
  p = wp.dot(force, point_velocity(u, c)) + wp.dot(torque, unrotate(qi, wp.spatial_top(u)))
  p = p + wp.dot(wp.spatial_top(xfrc_applied[world, b]), point_velocity(v, c))
  power[world, it] = p + wp.dot(wp.spatial_bottom(xfrc_applied[world, b]), wp.spatial_top(v))


@wp.kernel(module="unique")
def _cacc_power(
  # In:
  cuts: Cuts,
  tree: Tree,
  nodes: Nodes,
  com: wp.array2d[wp.vec3],
  # Model:
  gravity: wp.array[wp.vec3],
  # In:
  cot: wp.array2d[wp.spatial_vector],
  # Out:
  power: wp.array2d[float],
):
  """Accelerations of the bodies' frames as they pass the centre of mass of the tree."""
  world, it = wp.tid()
  b = it + 1
  n = tree.of_body[b]
  r = com[world, cuts.body_rootid[b]] - nodes.xpos[world, n]
  f = nodes.vel[world, n]
  om = wp.spatial_top(f)
  acc = nodes.acc[world, n]
  a = point_acceleration(acc, om, r) - of_world(gravity, world)
  a = a - wp.cross(om, point_velocity(f, r))
  c = cot[world, b]
  power[world, it] = wp.dot(wp.spatial_top(c), wp.spatial_top(acc)) + wp.dot(
    wp.spatial_bottom(c), a
  )


@functools.cache
def _pull_kernel(velocities: Velocities) -> Kernel:
  """The fields of the bodies, a thread per world and body: the virtual ones with the cuts'."""

  @wp.kernel(module="unique")
  def pull(
    tree: Tree,
    nodes: Nodes,
    of_forces: wp.array2d[wp.spatial_vector],
    out: wp.array3d[wp.spatial_vector],
  ):
    world, b = wp.tid()
    n = tree.of_body[b]
    for f in range(wp.static(velocities.count)):
      x = nodes.fields[f, world, n]
      virtual = f == 0 or f == wp.static(velocities.inertial) or f == wp.static(velocities.springs)
      virtual = virtual or f == wp.static(velocities.dampers) or f == wp.static(velocities.actuated)
      if virtual or f == wp.static(velocities.unlimited):
        x = x + of_forces[world, b]
      out[f, world, n] = x

  return pull


def wanted(mjm: mujoco.MjModel, outputs: Collection[str]) -> bool:
  """Whether some of these outputs are forces between bodies, or `cacc`."""
  sensed = "sensordata" in outputs and len(of_kinds(mjm, KINDS)) > 0
  return sensed or not set(REPORTS).isdisjoint(outputs)


def record(
  rec: Recording, kin: Kinematics, mech: Mechanics, *, weights: wp.array
) -> wp.array | None:
  """Records the outputs but for the forces of rows; gives the velocity on which those act.

  Args:
    rec: the recording, of which such outputs are wanted.
    kin: where everything is and how it moves.
    mech: inertias and gravity.
    weights: the cotangents of sensordata.

  Returns:
    The virtual velocity of every body at its origin, (nworld, nbody); None if forces have no
    cotangent.
  """
  tape, m, cot = rec.tape, rec.m, rec.cotangents
  which = rec.sensors(KINDS)
  fixed = {f: getattr(m, f"sensor_{f}") for f in ("type", "objid", "adr")}
  fixed |= rec.fixed("body_rootid", "body_subtreenum")
  cuts = tape.struct(Cuts, which=rec.constant(which), **fixed)
  if set(REPORTS).isdisjoint(cot):
    com = tape.array(1, dtype=wp.vec3)
  else:
    com = subtrees.record_centres(rec, kin, mech.inertia)[0]
  nodes = [kin.tree, kin.nodes]
  dim = (tape.nworld, m.nbody - 1)
  if "cacc" in cot:
    inputs = [cuts, *nodes, com, mech.gravity, cot["cacc"]]
    tape.power(_cacc_power, dim, inputs=inputs)
  internal, external = ("cfrc_int" in cot), ("cfrc_ext" in cot)
  if not (len(which) or internal or external):
    return None
  none = wp.zeros((1, 1), dtype=wp.spatial_vector)
  of_inertia, of_forces = (tape.array(m.nbody, dtype=wp.spatial_vector) for _ in range(2))
  inputs = [cuts, kin.sites, *nodes, com, weights]
  inputs += [cot.get("cfrc_int", none), cot.get("cfrc_ext", none)]
  kernel = _cut_kernel(bool(len(which)), internal, external)
  tape.launch(kernel, dim, inputs=inputs, outputs=[of_inertia, of_forces])
  inputs = [*nodes, mech.inertia, mech.gravity, rec.inputs["xfrc_applied"], of_inertia, of_forces]
  tape.power(_cut_power, dim, inputs=inputs)
  return of_forces


def has_pull(m: mjw.Model) -> bool:
  """Whether spatial tendons pull at bodies."""
  return m.wrap_site_pair_adr.size + m.wrap_geom_adr.size > 0


def record_pull(rec: Recording, kin: Kinematics, of_forces: wp.array) -> Carried:
  """Records the fields that spatial tendons see: `of_forces` is added to the virtual velocities.

  So every force of a tendon, of springs, actuators or rows, has the power of its pull at the bodies
  together with that on the motion. Fixed tendons act on joints, and see the same as without.
  """
  tape, velocities = rec.tape, kin.velocities
  out = tape.stack(velocities.count, kin.topology.count, dtype=wp.spatial_vector)
  inputs = [kin.tree, kin.nodes, of_forces]
  dim = (tape.nworld, rec.m.nbody)
  tape.launch(_pull_kernel(velocities), dim, inputs=inputs, outputs=[out])
  nodes = tape.struct(Nodes, **(kin.sweep.arrays | {"fields": out}))
  return Carried(nodes, kin.coords, velocities.count)


PART = Part(parameters=subtrees.LEAVES, reports=REPORTS, sensors=KINDS)
