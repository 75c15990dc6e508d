"""The effective inertia of a discrete step, and the rows of constraints that it rescales.

With M replaced by H = M + h B + h^2 K for the dampers and drag B and the stiffnesses K that the
step integrates implicitly, MuJoCo divides the stiffness D of a row by

    (sum_c J_c^2 / H_cc) / (sum_c J_c^2 / M_cc)

with the sums over the dofs c. Its derivative needs each J_c as a function of the state: the rate of
the row along the velocity that is one at dof c. These unit velocities are fields of their own.
"""

import numpy as np
import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE, HINGE, SLIDE, Topology
from mjx_warp_ffi.mjx.warp.adjoint.actuation import transmissions
from mjx_warp_ffi.mjx.warp.adjoint.forces import tendons
from mjx_warp_ffi.mjx.warp.adjoint.forces.bodies import Inertia, kinetic
from mjx_warp_ffi.mjx.warp.adjoint.forces.dofs import Dofs, dof_parameters
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import (
  Rates,
  Slopes,
  graded,
  implicit_mass,
  make_rates,
  make_slopes,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected, reflected_on
from mjx_warp_ffi.mjx.warp.adjoint.forces.springs import Springs, spring_slope
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Frames, Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import magnitude, rotate
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world


@wp.struct
class Units:
  """The dofs and the tree."""

  node: wp.array[int]  # of the joint of each dof
  moves: wp.array2d[int]  # whether a dof moves a node
  first: wp.array[int]  # the bodies that a dof moves are those from here
  last: wp.array[int]  # to here, exclusive


@wp.kernel(module="unique")
def unit_fields(
  units: Units, tree: Tree, frames: Frames, nodes: Nodes, fields: wp.array3d[wp.spatial_vector]
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
  if kind == FREE or kind == BALL:
    e[i % 3] = 1.0
  else:
    e = of_world(frames.jnt_axis, world, j)
  r = nodes.xpos[world, n] - nodes.xpos[world, k]
  if kind != FREE:
    r = r - rotate(q, of_world(frames.jnt_pos, world, j))
  if kind == SLIDE:
    fields[c, world, n] = wp.spatial_vector(wp.vec3(0.0), rotate(q, e))
  elif kind == FREE and i < 3:
    fields[c, world, n] = wp.spatial_vector(wp.vec3(0.0), e)
  else:
    ang = rotate(q, e)
    fields[c, world, n] = wp.spatial_vector(ang, wp.cross(ang, r))


@wp.struct
class Diagonals:
  """The diagonals of M and of H, (nworld, nv)."""

  mass: wp.array2d[float]
  metric: wp.array2d[float]


@wp.struct
class Lengths:
  """Tendons and actuators with their rates along the unit velocities."""

  timestep: wp.array[float]
  ntendon: int
  nactuator: int
  tendon_actuatorid: wp.array[int]
  tendon_armature: wp.array2d[float]


@wp.struct
class Flags:
  """What there is."""

  spring: bool
  damper: bool
  actuators: bool  # that add to the damping and armature of joints


@wp.func
def _dof_terms(
  flags: Flags,
  dofs: Dofs,
  reflected: Reflected,
  springs: Springs,
  state: State,
  world: int,
  c: int,
  h: float,
):
  """What a dof adds to M and to H - M."""
  damping, poly, armature = dof_parameters(dofs, reflected, world, c, flags.actuators)
  more = wp.float32(0.0)
  if flags.damper:
    _factor, b = graded(damping, poly, magnitude(state.qvel[world, c]))
    if b >= 0.0:
      more = h * b
  if flags.spring:
    j = dofs.dof_jntid[c]
    k = spring_slope(springs, state.qpos, world, j, c - springs.jnt_dofadr[j])
    if k >= 0.0:
      more = more + h * h * k
  return armature, more


@wp.kernel(module="unique")
def diagonals(
  units: Units,
  flags: Flags,
  tree: Tree,
  nodes: Nodes,
  state: State,
  inertia: Inertia,
  dofs: Dofs,
  reflected: Reflected,
  springs: Springs,
  lengths: Lengths,
  tendons: Rates,
  tendon_slopes: Slopes,
  actuators: Rates,
  actuator_slopes: Slopes,
  drag: wp.array2d[float],
  out: Diagonals,
):
  """The diagonals, a thread per world and dof; `nodes` and the rates are of unit velocities."""
  world, c = wp.tid()
  h = of_world(lengths.timestep, world)
  mass, more = _dof_terms(flags, dofs, reflected, springs, state, world, c, h)
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


def _make_units(step, top: Topology) -> Units:
  mjm, nodes = step.mjm, top.arrays
  node = np.zeros(mjm.nv, dtype=int)
  for n, j in enumerate(nodes["jnt"]):
    if j >= 0:
      num = {FREE: 6, BALL: 3, SLIDE: 1, HINGE: 1}[int(mjm.jnt_type[j])]
      node[nodes["dofadr"][n] : nodes["dofadr"][n] + num] = n
  moves = np.zeros((mjm.nv, top.count), dtype=int)
  for n in range(top.count):
    k = n
    while k > 0:
      moves[node == k, n] = 1
      k = nodes["parent"][k]
  moves[:, 0] = 0
  # bodies are numbered depth first, so that those of a subtree follow one another
  last = np.arange(mjm.nbody) + 1
  for body in range(mjm.nbody - 1, 0, -1):
    last[mjm.body_parentid[body]] = max(last[mjm.body_parentid[body]], last[body])
  arrays = dict(node=node, moves=moves, first=mjm.dof_bodyid, last=last[mjm.dof_bodyid])
  return step.tape.struct(Units, **{k: step.constant(x) for k, x in arrays.items()})


class Metric:
  """The parts of H of a `StageAdjoint`.

  Attributes:
    tendons: the slopes of the forces of tendons that a discrete step integrates implicitly.
    actuators: those of actuators.
    unit: the unit velocities after `record`.
    unit_tendons: the rates of the tendons along these.
    diagonals: those of M and H.
  """

  def __init__(self, step):
    """Makes the arrays, before tendons and actuators are recorded."""
    m = step.m
    self.tendons = make_slopes(step.tape, max(1, m.ntendon))
    self.actuators = make_slopes(step.tape, max(1, m.nactuator))

  def record(self, step) -> None:
    """Records the unit velocities and the diagonals, after tendons and actuators."""
    m, tape, sweep = step.m, step.tape, step.sweep
    top = sweep.topology
    units = _make_units(step, top)
    fields = tape.stack(m.nv, top.count, dtype=wp.spatial_vector)
    unit = np.broadcast_to(np.eye(m.nv)[:, None], (m.nv, tape.nworld, m.nv))
    self.unit = Carried(
      nodes=tape.struct(Nodes, **(sweep.arrays | dict(fields=fields))),
      coords=wp.array(unit, dtype=float, device=tape.device),
      count=m.nv,
    )
    inputs = [units, sweep.tree, step.frames, sweep.nodes, fields]
    tape.launch(unit_fields, (tape.nworld, top.count, m.nv), inputs=inputs, outputs=[])
    none = make_rates(tape, nfield=1, count=1)
    self.unit_tendons = tendons.find_rates(step, self.unit) if m.ntendon else none
    actuated = step.actuator_rates is not None
    actuators = none
    if actuated:
      actuators = transmissions.find_rates(step, self.unit, tendons=self.unit_tendons)
    self.diagonals = tape.struct(Diagonals, mass=tape.array(m.nv), metric=tape.array(m.nv))
    lengths = tape.struct(
      Lengths,
      ntendon=m.ntendon,
      tendon_actuatorid=m.tendon_actuatorid,
      nactuator=m.nactuator if actuated else 0,
      **step.leaves("tendon_armature", "opt.timestep"),
    )
    inputs = [units, _make_flags(step), sweep.tree, self.unit.nodes, step.state, step.inertia]
    inputs += [step.dofs, step.reflected, step.springs, lengths, self.unit_tendons, self.tendons]
    drag = tape.array(m.nv)
    if step.fluid:
      step.fluid.record_metric(step, self.unit.nodes, out=drag)
    inputs += [actuators, self.actuators, drag, self.diagonals]
    tape.launch(diagonals, (tape.nworld, m.nv), inputs=inputs, outputs=[])


def _make_flags(step) -> Flags:
  m, flags = step.m, step.m.opt.disableflags
  return step.tape.struct(
    Flags,
    spring=not flags & DisableBit.SPRING,
    damper=not flags & DisableBit.DAMPER,
    actuators=bool(np.any(m.jnt_actuatorid.numpy() != -1)),
  )
