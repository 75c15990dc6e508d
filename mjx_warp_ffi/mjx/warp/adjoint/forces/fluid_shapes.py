"""The fluid and what it acts on: the bodies that are taken for boxes, and the fluid shapes."""

import dataclasses

import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.forces.passive import passive_act
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct


@struct
class Fluid:
  """The fluid: model fields."""

  timestep: wp.array[float]
  density: wp.array[float]
  viscosity: wp.array[float]
  wind: wp.array[wp.vec3]


@struct
class FluidShapes:
  """The ellipsoids on which the fluid acts: which geoms they are, and model fields."""

  geom: wp.array[int]
  geom_type: wp.array[int]
  geom_fluid: wp.array2d[float]
  geom_size: wp.array2d[wp.vec3]


@dataclasses.dataclass(frozen=True)
class Immersed:
  """The fluid, and what it acts on.

  Attributes:
    fluid: its density, viscosity and wind.
    boxes: the bodies without fluid shapes, each of which is the box of its inertia.
    shapes: the fluid shapes of the other bodies.
    count: how many fluid shapes there are.
  """

  fluid: Fluid
  boxes: wp.array
  shapes: FluidShapes
  count: int


def acts(m: mjw.Model) -> bool:
  """Whether forces of a fluid are computed."""
  return bool(m.has_fluid and passive_act(m))


def make_fluid(rec: Recording) -> Immersed | None:
  """The fluid and what it acts on, None without a force of a fluid that has a power."""
  m, mjm = rec.m, rec.mjm
  if not (rec.needs.powers and acts(m)):
    return None
  names = ("opt.timestep", "opt.density", "opt.viscosity", "opt.wind")
  fluid = rec.tape.struct(Fluid, **rec.leaves(*names))
  boxes = rec.constant(np.array(m.body_fluid_box_adr.numpy()))
  found = mjm.geom_fluid.reshape(mjm.ngeom, -1)[:, 0] > 0
  found &= np.isin(mjm.geom_bodyid, m.body_fluid_ellipsoid_adr.numpy())
  shapes = rec.tape.struct(
    FluidShapes,
    geom=rec.constant(np.flatnonzero(found)),
    geom_size=rec.leaf("geom_size"),
    **rec.fixed("geom_type", "geom_fluid"),
  )
  return Immersed(fluid, boxes, shapes, int(found.sum()))
