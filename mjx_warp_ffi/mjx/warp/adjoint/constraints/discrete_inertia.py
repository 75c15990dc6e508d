"""The effective inertia H of a discrete step, of which constraints need the diagonal.

With M replaced by H = M + h B + h^2 K for the dampers and drag B and the stiffnesses K that the
step integrates implicitly, MuJoCo divides the stiffness D of a row by

    (sum_c J_c^2 / H_cc) / (sum_c J_c^2 / M_cc)

with the sums over the dofs c. Its derivative needs each J_c as a function of the state: the rate of
the row along the velocity that is one at dof c. These unit velocities are fields of their own.
"""

import dataclasses

import numpy as np
import warp as wp
from mujoco_warp._src.types import JointType

from mjx_warp_ffi.mjx.numerics import topology
from mjx_warp_ffi.mjx.numerics.topology import Topology
from mjx_warp_ffi.mjx.warp.adjoint.actuation import transmissions
from mjx_warp_ffi.mjx.warp.adjoint.forces import fluid, lengths, tendons
from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, kinetic
from mjx_warp_ffi.mjx.warp.adjoint.forces.dof_parameters import Dofs, dof_parameters
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import (
  Rates,
  Slopes,
  graded,
  implicit_mass,
  make_rates,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Mechanics
from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import dampers_act, springs_act
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected, reflected_on
from mjx_warp_ffi.mjx.warp.adjoint.forces.spring_law import Springs, spring_slope
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Frames, Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import magnitude, rotate
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class UnitVelocities:
  """The velocities that are one at one dof and zero at all others: what they move."""

  node: wp.array[int]  # of the joint of each dof
  moves: wp.array2d[int]  # whether a dof moves a node
  first: wp.array[int]  # the bodies that a dof moves are those from here
  last: wp.array[int]  # to here, exclusive


@wp.kernel(module="unique")
def unit_fields(
  units: UnitVelocities,
  tree: Tree,
  frames: Frames,
  nodes: Nodes,
  # Out:
  fields: wp.array3d[wp.spatial_vector],
):
  """The fields of the unit velocities, a thread per world, node and dof."""
  world, n, c = wp.tid()
  if units.moves[c, n] == 0:
    return
  k = units.node[c]
  kind = tree.kind[k]
  j = tree.jnt[k]
  q = nodes.xquat[world, k]
  i = c - tree.dofadr[k]
  e = wp.vec3(0.0)
  if kind == JointType.FREE or kind == JointType.BALL:
    e[i % 3] = 1.0
  else:
    e = of_world(frames.jnt_axis, world, j)
  r = nodes.xpos[world, n] - nodes.xpos[world, k]
  if kind != JointType.FREE:
    r = r - rotate(q, of_world(frames.jnt_pos, world, j))
  if kind == JointType.SLIDE:
    fields[c, world, n] = wp.spatial_vector(wp.vec3(0.0), rotate(q, e))
  elif kind == JointType.FREE and i < 3:
    fields[c, world, n] = wp.spatial_vector(wp.vec3(0.0), e)
  else:
    ang = rotate(q, e)
    fields[c, world, n] = wp.spatial_vector(ang, wp.cross(ang, r))


@struct
class Diagonals:
  """The diagonals of M and of H, (nworld, nv)."""

  mass: wp.array2d[float]
  metric: wp.array2d[float]


@struct
class LengthInertia:
  """How many tendons and actuators have an inertia, and what that of tendons is made of."""

  timestep: wp.array[float]
  ntendon: int
  nactuator: int
  tendon_actuatorid: wp.array[int]
  tendon_armature: wp.array2d[float]


@struct
class DofTerms:
  """What adds to the inertia along a dof besides masses and the armature of the dof itself."""

  spring: bool
  damper: bool
  actuators: bool  # whether some add to the damping and armature of joints


@wp.func
def _dof_terms(
  terms: DofTerms,
  dofs: Dofs,
  reflected: Reflected,
  springs: Springs,
  state: State,
  world: int,
  c: int,
  h: float,
):
  """What a dof adds to M and to H - M."""
  damping, poly, armature = dof_parameters(dofs, reflected, world, c, terms.actuators)
  more = wp.float32(0.0)
  if terms.damper:
    _factor, b = graded(damping, poly, magnitude(state.qvel[world, c]))
    if b >= 0.0:
      more = h * b
  if terms.spring:
    j = dofs.dof_jntid[c]
    k = spring_slope(springs, state.qpos, world, j, c - springs.jnt_dofadr[j])
    if k >= 0.0:
      more = more + h * h * k
  return armature, more


@wp.kernel(module="unique")
def diagonals(
  # In:
  units: UnitVelocities,
  terms: DofTerms,
  tree: Tree,
  nodes: Nodes,
  state: State,
  # Model:
  inertia: Inertia,
  dofs: Dofs,
  reflected: Reflected,
  springs: Springs,
  lengths: LengthInertia,
  # In:
  tendons: Rates,
  tendon_slopes: Slopes,
  actuators: Rates,
  actuator_slopes: Slopes,
  drag: wp.array2d[float],
  # Out:
  out: Diagonals,
):
  """The diagonals, a thread per world and dof; `nodes` and the rates are of unit velocities."""
  world, c = wp.tid()
  h = of_world(lengths.timestep, world)
  mass, more = _dof_terms(terms, dofs, reflected, springs, state, world, c, h)
  for b in range(units.first[c], units.last[c]):
    mass += kinetic(tree, nodes, inertia, world, b, c)
  for t in range(lengths.ntendon):
    x = tendons.fields[c, world, t]
    armature = of_world(lengths.tendon_armature, world, t)
    if lengths.tendon_actuatorid[t] != -1:
      _damping, _poly, extra = reflected_on(reflected, world, t, lengths.tendon_actuatorid[t], True)
      armature = armature + extra
    mass += armature * x * x
    more += implicit_mass(tendon_slopes, world, t, h) * x * x
  for i in range(lengths.nactuator):
    y = actuators.fields[c, world, i]
    more += implicit_mass(actuator_slopes, world, i, h) * y * y
  out.mass[world, c] = mass
  out.metric[world, c] = mass + more + drag[world, c]


@dataclasses.dataclass(frozen=True)
class ImplicitSlopes:
  """How forces along lengths change, as far as a discrete step integrates that implicitly.

  Attributes:
    tendons: the slopes of the forces of tendons.
    actuators: those of actuators.
  """

  tendons: Slopes
  actuators: Slopes


@dataclasses.dataclass(frozen=True)
class DiscreteInertia:
  """The diagonals of M and H, and the unit velocities of the dofs.

  Attributes:
    unit: the nodes with the fields of the unit velocities.
    unit_tendons: the rates of the tendons along these.
    diagonals: those of M and H.
  """

  unit: Carried
  unit_tendons: Rates
  diagonals: Diagonals


def make_slopes(rec: Recording) -> ImplicitSlopes:
  """The slopes that tendons and actuators write; only a discrete step has others than zero."""
  return ImplicitSlopes(
    tendons=lengths.make_slopes(rec.tape, max(1, rec.m.ntendon)),
    actuators=lengths.make_slopes(rec.tape, max(1, rec.m.nactuator)),
  )


def record(
  rec: Recording,
  kin: Kinematics,
  mech: Mechanics,
  *,
  slopes: ImplicitSlopes,
  actuated: bool,
  contacts: "ContactPool | None",
) -> DiscreteInertia:
  """Records the unit velocities and the diagonals, after tendons and actuators.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    mech: inertias, and the parameters of forces.
    slopes: those of the forces of tendons and actuators.
    actuated: whether actuators act.
    contacts: the contact pool, for actuators that act on what a body touches.
  """
  m, tape = rec.m, rec.tape
  units = _make_units(rec, kin.topology)
  unit = _record_unit_velocities(rec, kin, units)
  none = make_rates(tape, nfield=1, count=1)
  unit_tendons = tendons.find_rates(rec, kin, unit) if m.ntendon else none
  unit_actuators = none
  if actuated:
    unit_actuators = transmissions.find_rates(
      rec, kin, unit, tendons=unit_tendons, contacts=contacts
    )
  out = tape.struct(Diagonals, mass=tape.array(m.nv), metric=tape.array(m.nv))
  length_inertia = tape.struct(
    LengthInertia,
    ntendon=m.ntendon,
    nactuator=m.nactuator if actuated else 0,
    **rec.fixed("tendon_actuatorid"),
    **rec.leaves("tendon_armature", "opt.timestep"),
  )
  drag = tape.array(m.nv)
  if mech.fluid:
    fluid.record_metric(rec, kin, mech, nodes=unit.nodes, out=drag)
  inputs = [units, _make_terms(rec), kin.tree, unit.nodes, kin.state]
  inputs += [mech.inertia, mech.dofs, mech.reflected, mech.springs, length_inertia]
  inputs += [unit_tendons, slopes.tendons, unit_actuators, slopes.actuators, drag, out]
  tape.launch(diagonals, (tape.nworld, m.nv), inputs=inputs, outputs=[])
  return DiscreteInertia(unit=unit, unit_tendons=unit_tendons, diagonals=out)


def _make_units(rec: Recording, top: Topology) -> UnitVelocities:
  """Which nodes and bodies the dofs move."""
  mjm, body = rec.mjm, rec.mjm.dof_bodyid
  return rec.tape.struct(
    UnitVelocities,
    node=rec.constant(topology.dof_nodes(mjm, top)),
    moves=rec.constant(topology.moved_nodes(mjm, top).astype(int)),
    first=rec.constant(body),
    last=rec.constant(topology.body_ends(mjm)[body]),
  )


def _record_unit_velocities(rec: Recording, kin: Kinematics, units: UnitVelocities) -> Carried:
  """Records the fields of the unit velocities of all dofs."""
  tape, nv, count = rec.tape, rec.m.nv, kin.topology.count
  fields = tape.stack(nv, count, dtype=wp.spatial_vector)
  coords = np.broadcast_to(np.eye(nv)[:, None], (nv, tape.nworld, nv))
  unit = Carried(
    nodes=tape.struct(Nodes, **(kin.sweep.arrays | dict(fields=fields))),
    coords=wp.array(coords, dtype=float, device=tape.device),
    count=nv,
  )
  inputs = [units, kin.tree, kin.frames, kin.nodes, fields]
  tape.launch(unit_fields, (tape.nworld, count, nv), inputs=inputs, outputs=[])
  return unit


def _make_terms(rec: Recording) -> DofTerms:
  m = rec.m
  return rec.tape.struct(
    DofTerms,
    spring=springs_act(m),
    damper=dampers_act(m),
    actuators=bool(np.any(m.jnt_actuatorid.numpy() != -1)),
  )
