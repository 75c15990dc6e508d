"""The dynamics at the state before a step, evaluated once more, and the backward solves there."""

import dataclasses
from collections.abc import Container

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import constraint
from mujoco_warp._src import support as mjw_support

from mjx_warp_ffi.mjx.warp.adjoint.actuation import control_delays
from mjx_warp_ffi.mjx.warp.adjoint.contacts import soft_contacts
from mjx_warp_ffi.mjx.warp.adjoint.outputs import generalised_forces
from mjx_warp_ffi.mjx.warp.adjoint.outputs.cameras import CAMERAS, LIGHTS
from mjx_warp_ffi.mjx.warp.adjoint.request import Settings
from mjx_warp_ffi.mjx.warp.adjoint.solve import implicit_solve, integration, integrators, newton
from mjx_warp_ffi.mjx.warp.adjoint.tape import vectors


def _without_views(m: mjw.Model, cotangents: Container[str]) -> mjw.Model:
  """The model without cameras and lights, unless cotangents depend on where these are."""
  if any(name in cotangents for name in ("sensordata", *CAMERAS, *LIGHTS)):
    return m
  return dataclasses.replace(m, ncam=0, nlight=0)


class Evaluation:
  """What a `StageAdjoint` runs of MJWarp, and the virtual velocities by two linear solves.

  `recompute`, and then, if the step needs solves, `solve`.

  Args:
    step: the `StageAdjoint`, which knows what it needs and the fields of its sweep.
    settings: whether contacts are smoothed and the acceleration polished.
    masked: whether saturated forces of actuators have to be known.

  Attributes:
    soft: the smoothed contacts, None if contacts are as they are.
    newton: the solve for the acceleration.
    implicit: the solve after it, None where the integrator has none.
  """

  def __init__(self, step, *, settings: Settings, masked: bool):
    """On the current Warp device."""
    m, d, needs = step.m, step.d, step.needs
    self._step = step
    self.soft = soft_contacts.make(step, settings.smoothing)
    self._refines = step.geometry is not None and step.geometry.refines
    polish = settings.polish
    if polish is None:
      # A row's force has the error of the acceleration times the stiffness of the row. The solve of
      # the discrete step may be iterative. One that starts anew is as good as the forward solve.
      polish = step.discrete or needs.row_forces
    self._restarts = self.soft is not None or (
      step.has_rows and (self._refines or integrators.stops_early(m))
    )
    polish = needs.solves and polish
    self._needs_forces = any(
      (
        polish or (needs.solves and self._restarts),
        step.implicitfast,
        step.has_welds,
        masked,
        step.discrete,
        needs.senses_forces,
        step.after_recompute,
        needs.smooth,
      )
    )
    model = _without_views(self.soft.m if self.soft else m, step.cotangents)
    self.newton = newton.Newton(model, d, rows=step.has_rows or step.discrete, polish=polish)
    second = step.integrate and integrators.has_second_solve(m)
    self.implicit = implicit_solve.Implicit(m, d) if second else None
    vector = (d.nworld, m.nv)
    self._ma, self._next_qacc, self._g, self._total = (
      wp.zeros(vector, dtype=float) for _ in range(4)
    )
    if step.integrate:
      qacc = self._next_qacc if self.implicit else d.qacc
      self._integration = integration.make_integration(step, qacc)

  def recompute(self) -> None:
    """Runs the stages before the solver, polishes the acceleration and prepares both solves."""
    step, m, d, soft = self._step, self.newton.m, self._step.d, self.soft
    solves = step.needs.solves
    if not (solves or self._needs_forces or step.geometry or "sensordata" in step.cotangents):
      mjw.kinematics(m, d)  # whose poses the sweep starts from
      return
    mjw.fwd_position(m, d, factorize=solves and not self.newton.rows)
    if self._needs_forces:
      mjw.fwd_velocity(m, d)
    if self._refines:
      step.geometry.forward(d.geom_xpos, d.geom_xmat)
      step.geometry.refine()
    if step.has_welds or (self._refines and step.has_rows):
      # MJWarp makes the rows before it has the velocities that Jdot qvel of welds needs
      constraint.make_constraint(m, d)
    if soft:
      soft.soften()
    if self._needs_forces:
      mjw.fwd_actuation(m, d)
    if not solves:
      if step.has_rows:
        self.newton.begin()
      return
    if self._needs_forces:
      mjw.fwd_acceleration(m, d)
    if self._restarts:
      self.newton.restart()
    self.newton.begin()
    self.newton.polish()
    if self.implicit:
      ma = d.efc.Ma if self.newton.rows else self._ma
      if not self.newton.rows:
        mjw_support.mul_m(m, d, ma, d.qacc)
      self.implicit.prepare(ma, self._next_qacc)

  def solve(self, early: wp.array | None = None) -> None:
    """Writes the virtual velocities into the sweep, and the gradients of what integrates.

    Args:
      early: (nworld, nv), the cotangent of the acceleration by outputs of the same evaluation.
    """
    step, d, f = self._step, self._step.d, self._step.fields
    coords = step.sweep.slices
    control_delays.write(step)
    g = step.cotangents["qacc"]
    if early is not None:
      g = self._add(g, early)
    differs = "qfrc_constraint" in step.cotangents and not step.needs.constraint
    if differs and self.newton.rows:
      generalised_forces.acceleration_cotangent(step, self._ma)
      g = self._add(g, self._ma)
    if step.integrate:
      integration.differentiate(step, self._integration, out=self._g)
      if self.implicit:
        self._solve_implicit(coords[f.y], coords[f.z])
      g = self._add(g, self._g)
    else:
      for name in ("qpos", "qvel", "act"):
        wp.copy(step.gradients[name], step.cotangents[name])
    self.newton.solve(g, coords[f.w])
    self.newton.solve_again(coords[f.w])
    if f.a >= 0:
      wp.copy(coords[f.a], d.qacc)

  def _add(self, a: wp.array, b: wp.array) -> wp.array:
    """The sum, in a buffer that `a` may be already."""
    wp.launch(vectors.add, self._total.shape, inputs=[a, b], outputs=[self._total])
    return self._total

  def _solve_implicit(self, virtual: wp.array, change: wp.array) -> None:
    """Turns the cotangent of the integrated acceleration into that of the one before the solve.

    It writes the virtual velocity of the second solve, and by how much that changes the
    acceleration.
    """
    m, d = self._step.m, self._step.d
    self.implicit.solve_transposed(self._g, virtual)
    mjw_support.mul_m(m, d, self._g, virtual)
    inputs = [d.qacc, self._next_qacc]
    wp.launch(vectors.subtract, change.shape, inputs=inputs, outputs=[change])
