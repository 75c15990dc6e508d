"""Where everything is and how it moves, as all parts of the physics read it."""

import dataclasses
from collections.abc import Sequence

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import Topology
from mjx_warp_ffi.mjx.warp.adjoint.kinematics import attachments
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Geoms, Sites
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Frames, Nodes, State, Tree
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.sweep import Sweep
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried, Velocities
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording

PART = Part(
  parameters=(
    *("body_pos", "body_quat", "jnt_pos", "jnt_axis", "qpos0"),
    *("site_pos", "site_quat", "geom_pos", "geom_quat"),
  )
)


@dataclasses.dataclass(frozen=True)
class Kinematics:
  """The nodes of the tree and what is attached to its bodies.

  Attributes:
    sweep: what fills the nodes.
    frames: the offsets of bodies and joints.
    state: the state before the step, and the acceleration that it solved for.
    sites: the sites on their bodies.
    geoms: the geoms on their bodies.
  """

  sweep: Sweep
  frames: Frames
  state: State
  sites: Sites
  geoms: Geoms

  @property
  def topology(self) -> Topology:
    """Which nodes there are."""
    return self.sweep.topology

  @property
  def tree(self) -> Tree:
    """The topology, for kernels."""
    return self.sweep.tree

  @property
  def nodes(self) -> Nodes:
    """Poses, velocities and accelerations of the nodes."""
    return self.sweep.nodes

  @property
  def velocities(self) -> Velocities:
    """Which frozen velocities are carried."""
    return self.sweep.velocities

  @property
  def coords(self) -> wp.array:
    """The frozen velocities, (count, nworld, nv)."""
    return self.sweep.coords

  @property
  def slices(self) -> Sequence[wp.array]:
    """Each of the frozen velocities, (nworld, nv)."""
    return self.sweep.slices

  @property
  def carried(self) -> Carried:
    """The nodes with the fields of the frozen velocities."""
    return self.sweep.carried


def record(rec: Recording, *, qacc: wp.array, velocities: Velocities) -> Kinematics:
  """Records the sweep over the tree, with fields of these frozen velocities.

  Args:
    rec: the recording.
    qacc: the acceleration that the step solved for, with a gradient if one is wanted.
    velocities: which frozen velocities are carried.
  """
  names = ("body_pos", "body_quat", "jnt_pos", "jnt_axis", "qpos0")
  frames = rec.tape.struct(Frames, **rec.leaves(*names))
  inputs = {name: rec.inputs[name] for name in ("qpos", "qvel", "mocap_pos", "mocap_quat")}
  state = rec.tape.struct(State, qacc=qacc, **inputs)
  sweep = Sweep(
    rec.mjm,
    rec.tape,
    d=rec.d,
    frames=frames,
    state=state,
    velocities=velocities,
    track=rec.needs.row_forces or rec.needs.inverts,
    polar=rec.scheme.implicit_bias,
  )
  sites, geoms = attachments.make_sites(rec), attachments.make_geoms(rec)
  return Kinematics(sweep, frames, state, sites, geoms)
