"""What the parts of the physics read of the forces that need no actuator and no row."""

import dataclasses
from collections.abc import Callable

import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.warp.adjoint.forces.body_inertia import Inertia, make_inertia
from mjx_warp_ffi.mjx.warp.adjoint.forces.dof_parameters import Dofs, make_dofs
from mjx_warp_ffi.mjx.warp.adjoint.forces.fluid_shapes import Immersed, make_fluid
from mjx_warp_ffi.mjx.warp.adjoint.forces.reflected_inertia import Reflected, make_reflected
from mjx_warp_ffi.mjx.warp.adjoint.forces.spring_law import Springs, make_springs
from mjx_warp_ffi.mjx.warp.adjoint.forces.tendon_forces import Tendons, make_tendons
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording


@dataclasses.dataclass(frozen=True)
class Mechanics:
  """Inertias, springs, dampers and the fluid, for kernels.

  Attributes:
    inertia: the masses of the bodies.
    dofs: dampers and armatures of the dofs.
    reflected: the damping and armature that actuators add to joints and tendons.
    springs: the springs of the joints.
    tendons: springs, dampers and armatures of the tendons.
    fluid: the fluid and what it acts on, None without one.
    gravity: the acceleration of gravity, zero where it is disabled.
    free_qacc: accelerations of free bodies, numbers at those that a discrete step solves apart.
  """

  inertia: Inertia
  dofs: Dofs
  reflected: Reflected
  springs: Springs
  tendons: Tendons
  fluid: Immersed | None
  gravity: wp.array
  free_qacc: wp.array


def make(rec: Recording, *, free_qacc: wp.array) -> Mechanics:
  """Makes what the parts of the physics read of these forces.

  Args:
    rec: the recording.
    free_qacc: (nworld, nv), as in `Mechanics`.
  """
  gravity = rec.leaf("opt.gravity")
  off = rec.m.opt.disableflags & DisableBit.GRAVITY
  return Mechanics(
    inertia=make_inertia(rec),
    dofs=make_dofs(rec),
    reflected=make_reflected(rec),
    springs=make_springs(rec),
    tendons=make_tendons(rec),
    fluid=make_fluid(rec),
    gravity=wp.zeros_like(gravity) if off else gravity,
    free_qacc=free_qacc,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Force(Part):
  """A force whose power is recorded on the tape.

  Attributes:
    record: records it.
  """

  record: Callable[[Recording, Kinematics, Mechanics], None]
