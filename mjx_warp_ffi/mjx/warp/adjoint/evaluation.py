"""The dynamics at the state before a step, evaluated once more, and the backward solves there."""

import dataclasses
from collections.abc import Container

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import constraint
from mujoco_warp._src import support as mjw_support

from mjx_warp_ffi.mjx.warp.adjoint.contacts import soft_contacts
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.outputs import generalised_forces
from mjx_warp_ffi.mjx.warp.adjoint.outputs.cameras import CAMERAS, LIGHTS
from mjx_warp_ffi.mjx.warp.adjoint.request import Settings
from mjx_warp_ffi.mjx.warp.adjoint.solve import implicit_solve, integration, integrators, newton
from mjx_warp_ffi.mjx.warp.adjoint.tape import vectors
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording


def _without_views(m: mjw.Model, cotangents: Container[str]) -> mjw.Model:
  """The model without cameras and lights, unless cotangents depend on where these are."""
  if any(name in cotangents for name in ("sensordata", *CAMERAS, *LIGHTS)):
    return m
  return dataclasses.replace(m, ncam=0, nlight=0)


def has_welds(rec: Recording) -> bool:
  """Whether connects or welds can have rows."""
  return rec.needs.constrained and rec.m.eq_connect_adr.size + rec.m.eq_wld_adr.size > 0


class Evaluation:
  """What the backward pass runs of MuJoCo Warp, and its two linear solves.

  `recompute`, and then, if outputs depend on the acceleration, `solve`.

  Args:
    rec: what is differentiated.
    geometry: the differentiable geometry of the contacts, None if there can be none.
    settings: whether contacts are smoothed and the acceleration polished.
    masked: whether saturated forces of actuators have to be known.
    measures: whether sensors are measured anew, which takes the forces.

  Attributes:
    soft: the smoothed contacts, None if contacts are as they are.
    newton: the solve for the acceleration.
  """

  def __init__(
    self,
    rec: Recording,
    *,
    geometry: ContactGeometry | None,
    settings: Settings,
    masked: bool,
    measures: bool,
  ):
    """On the current Warp device."""
    m, d, needs, scheme = rec.m, rec.d, rec.needs, rec.scheme
    self._rec, self._geometry, self._welds = rec, geometry, has_welds(rec)
    self.soft = soft_contacts.make(
      m,
      d,
      outputs=tuple(rec.cotangents),
      smoothing=settings.smoothing,
      acts=needs.constrained and geometry is not None,
    )
    self._refines = geometry is not None and geometry.refines
    polish = settings.polish
    if polish is None:
      # A row's force has the error of the acceleration times the stiffness of the row. The solve of
      # the discrete step may be iterative. One that starts anew is as good as the forward solve.
      polish = scheme.discrete or needs.row_forces
    self._restarts = self.soft is not None or (
      needs.constrained and (self._refines or integrators.stops_early(m))
    )
    polish = needs.solves and polish
    self._needs_forces = any(
      (
        polish or (needs.solves and self._restarts),
        scheme.implicitfast,
        self._welds,
        masked,
        scheme.discrete,
        needs.senses_forces,
        measures,
        needs.smooth,
      )
    )
    model = _without_views(self.soft.m if self.soft else m, rec.cotangents)
    rows = needs.constrained or scheme.discrete
    self.newton = newton.Newton(model, d, rows=rows, polish=polish)
    self._implicit = implicit_solve.Implicit(m, d) if scheme.second else None
    vector = (d.nworld, m.nv)
    self._ma, self._next_qacc, self._g, self._total = (
      wp.zeros(vector, dtype=float) for _ in range(4)
    )
    qacc = self._next_qacc if self._implicit else d.qacc
    self._integration = integration.make_integration(rec, qacc) if rec.integrates else None

  def recompute(self) -> None:
    """Runs the stages before the solver, polishes the acceleration and prepares both solves."""
    m, d, geometry = self.newton.m, self._rec.d, self._geometry
    solves, constrained = self._rec.needs.solves, self._rec.needs.constrained
    if not (solves or self._needs_forces or geometry or "sensordata" in self._rec.cotangents):
      mjw.kinematics(m, d)  # whose poses the sweep starts from
      return
    mjw.fwd_position(m, d, factorize=solves and not self.newton.rows)
    if self._needs_forces:
      mjw.fwd_velocity(m, d)
    if geometry is not None and self._refines:
      geometry.forward(d.geom_xpos, d.geom_xmat)
      geometry.refine()
    if self._welds or (self._refines and constrained):
      # MJWarp makes the rows before it has the velocities that Jdot qvel of welds needs
      constraint.make_constraint(m, d)
    if self.soft:
      self.soft.soften()
    if self._needs_forces:
      mjw.fwd_actuation(m, d)
    if not solves:
      if constrained:
        self.newton.begin()
      return
    if self._needs_forces:
      mjw.fwd_acceleration(m, d)
    self._prepare_solves()

  def _prepare_solves(self) -> None:
    m, d = self.newton.m, self._rec.d
    if self._restarts:
      self.newton.restart()
    self.newton.begin()
    self.newton.polish()
    if self._implicit:
      ma = d.efc.Ma if self.newton.rows else self._ma
      if not self.newton.rows:
        mjw_support.mul_m(m, d, ma, d.qacc)
      self._implicit.prepare(ma, self._next_qacc)

  def solve(self, kin: Kinematics, early: wp.array | None = None) -> None:
    """Writes the frozen velocities of the sweep, and the gradients of what integrates.

    Args:
      kin: the sweep.
      early: (nworld, nv), the cotangent of the acceleration by outputs of the same evaluation.
    """
    rec, at, coords = self._rec, kin.velocities, kin.slices
    g = rec.cotangents["qacc"]
    if early is not None:
      g = self._add(g, early)
    differs = "qfrc_constraint" in rec.cotangents and not rec.needs.constraint
    if differs and self.newton.rows:
      generalised_forces.acceleration_cotangent(rec, self._ma)
      g = self._add(g, self._ma)
    if self._integration is not None:
      integration.differentiate(rec, self._integration, out=self._g)
      if self._implicit:
        left, right = coords[at.implicit_left], coords[at.implicit_right]
        self._solve_implicit(self._implicit, virtual=left, change=right)
      g = self._add(g, self._g)
    else:
      for name in ("qpos", "qvel", "act"):
        wp.copy(rec.gradients[name], rec.cotangents[name])
    self.newton.solve(g, coords[at.virtual])
    self.newton.solve_again(coords[at.virtual])
    if at.acceleration >= 0:
      wp.copy(coords[at.acceleration], rec.d.qacc)

  def _add(self, a: wp.array, b: wp.array) -> wp.array:
    """The sum, in a buffer that `a` may be already."""
    wp.launch(vectors.add, self._total.shape, inputs=[a, b], outputs=[self._total])
    return self._total

  def _solve_implicit(
    self, solve: implicit_solve.Implicit, *, virtual: wp.array, change: wp.array
  ) -> None:
    """Turns the cotangent of the integrated acceleration into that of the one before the solve.

    It writes the virtual velocity of the second solve, and by how much that changes the
    acceleration.
    """
    m, d = self._rec.m, self._rec.d
    solve.solve_transposed(self._g, virtual)
    mjw_support.mul_m(m, d, self._g, virtual)
    inputs = [d.qacc, self._next_qacc]
    wp.launch(vectors.subtract, change.shape, inputs=inputs, outputs=[change])
