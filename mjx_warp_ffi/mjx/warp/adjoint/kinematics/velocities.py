"""The frozen generalised velocities whose velocity fields the sweep carries, and their numbers."""

import dataclasses

import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import NONE
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes


@dataclasses.dataclass(frozen=True)
class Fields:
  """Where the frozen velocities stand in `coords` and `fields`; -1: not carried.

  w: the virtual velocity; field 0 is that of rows, w or their own. y, z: those of the implicit
  term, y . M z. a: qacc as a velocity (J qacc, without the Jdot qvel that `acc` has). i, x, p, u:
  the virtual velocities of inertia, of applied, passive and actuator forces, all w unless such
  forces have cotangents; n: see `forces`. m: u without the dofs whose total actuator force is at
  its limit. k, b, f: those of springs, dampers and fluid, p unless one alone has a cotangent. g:
  that of the compensation of gravity, p, or m at the dofs whose actuators compensate. s, t: the
  virtual velocity of the cotangent of qacc_smooth, and that acceleration.
  """

  w: int
  y: int
  z: int
  a: int
  i: int
  x: int
  p: int
  u: int
  n: int
  m: int
  k: int
  b: int
  f: int
  g: int
  s: int
  t: int
  count: int


def make_fields(
  *,
  second: bool,
  acceleration: bool,
  masked: bool,
  forces: bool,
  compensated: bool,
  smooth: bool,
  passive: tuple[str, ...],
  rows: bool,
) -> Fields:
  """The fields of a step with these needs beside w, of passive forces by their names here."""
  names = ["rows"] * rows + ["w"] + ["y", "z"] * second + ["a"] * (acceleration or forces)
  names += ["i", "x", "p", "u", "n"] * forces + ["m"] * masked
  if compensated and (masked or forces):
    passive = tuple(dict.fromkeys((*passive, "g")))
  names += [*passive] + ["s", "t"] * smooth
  at = {name: names.index(name) if name in names else NONE for name in "wyzaixpunmkbfgst"}
  if not forces:
    at |= dict.fromkeys("ixpu", at["w"])
  if "m" not in names:
    at["m"] = at["u"]
  at |= {name: at["p"] for name in "kbfg" if name not in names}
  return Fields(**at, count=len(names))


@dataclasses.dataclass(frozen=True)
class Carried:
  """Nodes with the fields of some generalised velocities, `coords`, and how many there are."""

  nodes: Nodes
  coords: wp.array
  count: int
