"""The backward pass of one evaluation of the dynamics, and of the step that takes it.

Given cotangents of the step's outputs, the gradient with respect to its inputs is that of one
scalar, the virtual power of all forces on a virtual velocity w that two linear solves give, with
the accelerations held fixed. The parts of that scalar are kernels, run by Warp's reverse mode.

`StageAdjoint` makes what is differentiated and launches it; `order.py` records the parts.
"""

import dataclasses

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint import order
from mjx_warp_ffi.mjx.warp.adjoint.actuation import control_delays
from mjx_warp_ffi.mjx.warp.adjoint.evaluation import Evaluation
from mjx_warp_ffi.mjx.warp.adjoint.kinematics import kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Velocities, make_velocities
from mjx_warp_ffi.mjx.warp.adjoint.outputs import generalised_forces
from mjx_warp_ffi.mjx.warp.adjoint.request import (
  DEFAULT,
  OUTPUTS,
  RATES,
  STATE,
  Settings,
  has_rows,
  needs_of,
  output,
)
from mjx_warp_ffi.mjx.warp.adjoint.rules import refused_features, sensor_rules
from mjx_warp_ffi.mjx.warp.adjoint.sensors import delayed_samples
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_outputs import Collector
from mjx_warp_ffi.mjx.warp.adjoint.solve import integration, integrators
from mjx_warp_ffi.mjx.warp.adjoint.tape import refusals, vectors
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import parameter
from mjx_warp_ffi.mjx.warp.adjoint.tape.needs import Scope
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape


class StageAdjoint:
  """Gradients of a step that evaluates the dynamics once, or of `forward`.

  Fill `cotangents` and the inputs of the step in `d` (the state before it, and in `d.qacc` the
  acceleration that it solved for), call `launch()`, which a graph may capture, and read
  `gradients`. What the workspace `d` holds besides is overwritten. The arguments are those of
  `StepAdjoint`.

  Attributes:
    rec: what is differentiated, and the tape.
    cotangents: arrays by the name of the output, (nworld, ...), zero at first.
    gradients: arrays by the name of the input, overwritten by each launch.
    given: the cotangent of what sensors report, where they measure something else: delayed ones.
    evaluation: what is run of MuJoCo Warp.
    geometry: the differentiable geometry of the contacts, None where outputs depend on none.

  Raises:
    NotImplementedError: the model has a feature without a rule; the message names it.
  """

  def __init__(
    self,
    mjm: mujoco.MjModel,
    m: mjw.Model,
    *,
    d: mjw.Data,
    wrt: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    scope: Scope = Scope.STEP,
    settings: Settings = DEFAULT,
  ):
    """See the class."""
    refused_features.check(mjm, m, wrt=wrt, outputs=outputs, scope=scope)
    device = d.qpos.device
    fastest = device.is_cuda if settings.world_fastest is None else settings.world_fastest
    with wp.ScopedDevice(device):
      tape = Tape(d.nworld, device, world_fastest=fastest)
      needs = needs_of(mjm, m, outputs=outputs, scope=scope, rows=has_rows(m, d))
      exist = needs.contacts or needs.constrained
      self.geometry = refused_features.contact_geometry(mjm, m, d=d) if exist else None
      touched = needs.touched and self.geometry is not None
      names = dict.fromkeys((*(OUTPUTS if scope is Scope.STEP else RATES), *outputs))
      inputs = {name: tape.twin(getattr(d, name)) for name in STATE}
      inputs |= {name: tape.twin(parameter(m, name)) for name in wrt}
      self.rec = Recording(
        mjm=mjm,
        m=m,
        d=d,
        tape=tape,
        scope=scope,
        needs=dataclasses.replace(needs, touched=touched),
        scheme=integrators.scheme_of(m, integrates=scope is Scope.STEP, solves=needs.solves),
        wrt=wrt,
        inputs=inputs,
        cotangents={name: wp.zeros_like(output(d, name)) for name in names},
      )
      self.cotangents = self.rec.cotangents
      self._record(settings)
      tape.finish()
    self.gradients = dict(self.rec.gradients)
    if needs.inverts:
      self.gradients["qacc"] = self._of_acceleration

  def _record(self, settings: Settings) -> None:
    rec, geometry = self.rec, self.geometry
    self.given = delayed_samples.begin(rec)
    sensed = "sensordata" in rec.cotangents
    weights = sensor_rules.weights(rec) if sensed else wp.zeros((1, 1), dtype=float)
    if rec.scheme.discrete and rec.d.njmax == 0:
      refusals.refuse(["integrator DISCRETE without room for constraint rows (njmax=0)"])
    masked = rec.needs.powers and bool(rec.m.jnt_actfrclimited.numpy().any())
    velocities = velocities_of(rec, masked=masked)
    self.evaluation = Evaluation(
      rec,
      geometry=geometry,
      settings=settings,
      masked=masked,
      measures=rec.tape.waits_for_recompute,
    )
    self._of_acceleration = wp.zeros((rec.d.nworld, rec.m.nv), dtype=float)
    self._qacc = rec.tape.twin(rec.d.qacc) if rec.needs.of_acceleration else rec.d.qacc
    self._kin = kinematics.record(rec, qacc=self._qacc, velocities=velocities)
    self._recorded = order.record(
      rec,
      self._kin,
      geometry=geometry,
      evaluation=self.evaluation,
      weights=weights,
      given=self.given,
    )

  @property
  def collector(self) -> Collector | None:
    """What collects the cotangents of outputs that read contacts, None without such outputs."""
    return self._recorded.collector

  def launch(self) -> None:
    """Computes `gradients` from `cotangents` and the inputs in the workspace."""
    rec, tape = self.rec, self.rec.tape
    with wp.ScopedDevice(rec.d.qpos.device):
      tape.clear()
      self.evaluation.recompute()
      tape.run_recomputed()
      if rec.needs.solves:
        if rec.needs.early:
          self._differentiate_early()
        control_delays.write(rec, self._recorded.delays)
        self.evaluation.solve(self._kin, self._of_acceleration if rec.needs.early else None)
      tape.run_before_sweep()
      tape.forward()
      tape.backward()
      if rec.needs.inverts:
        self._add_acceleration_gradients()
      self._convert()

  def _differentiate_early(self) -> None:
    """The cotangents of the acceleration from the outputs of the solve that depend on it."""
    rec, kin, tape = self.rec, self._kin, self.rec.tape
    kin.coords.zero_()
    if kin.velocities.acceleration >= 0:
      wp.copy(kin.slices[kin.velocities.acceleration], rec.d.qacc)
    if rec.needs.constraint:
      wp.copy(kin.slices[0], rec.cotangents["qfrc_constraint"])
    tape.forward(self._recorded.early_count)
    tape.backward(self._recorded.early_count)
    self._add_acceleration_gradients()
    tape.clear()

  def _add_acceleration_gradients(self) -> None:
    """The gradient of the acceleration: as that of the nodes, and as that of the rows."""
    total, kin = self._of_acceleration, self._kin
    wp.copy(total, self._qacc.grad)
    if kin.coords.grad is not None:
      inputs = [total, kin.coords.grad[kin.velocities.acceleration]]
      wp.launch(vectors.add, total.shape, inputs=inputs, outputs=[total])

  def _convert(self) -> None:
    """Turns gradients with respect to what MJWarp stores into those of the parameters."""
    if "opt.impratio" in self.rec.wrt:
      grad, stored = self.gradients["opt.impratio"], self.rec.m.opt.impratio_invsqrt
      wp.launch(integration.impratio_gradient, grad.size, inputs=[stored], outputs=[grad])


def velocities_of(rec: Recording, *, masked: bool) -> Velocities:
  """The frozen velocities that a recording needs.

  Args:
    rec: the recording.
    masked: whether saturated forces of actuators have to be known.
  """
  needs, scheme, passive = rec.needs, rec.scheme, generalised_forces.PASSIVE
  return make_velocities(
    second=scheme.second,
    acceleration=needs.rows or scheme.implicitfast or scheme.discrete,
    masked=masked,
    forces=needs.forces,
    compensated=bool(np.any(rec.mjm.jnt_actgravcomp)),
    smooth=needs.smooth,
    passive=tuple(x for name, x in passive.items() if name in rec.cotangents),
    rows=needs.constraint,
  )
