"""The backward pass of one evaluation of the dynamics, and of the step that takes it.

Given cotangents of the step's outputs, the gradient with respect to its inputs is that of one
scalar, the virtual power of all forces on a virtual velocity w that two linear solves give, with
the accelerations held fixed. The parts of that scalar are kernels, run by Warp's reverse mode.
"""

import dataclasses

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.types import DisableBit

from mjx_warp_ffi.mjx.warp.adjoint.actuation import (
  actuators,
  adhesion,
  control_delays,
  transmissions,
)
from mjx_warp_ffi.mjx.warp.adjoint.constraints import (
  discrete_inertia,
  discrete_rows,
  law,
  rows,
  welds,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts import contact_power, discrete_contacts
from mjx_warp_ffi.mjx.warp.adjoint.evaluation import Evaluation
from mjx_warp_ffi.mjx.warp.adjoint.forces import (
  bodies,
  dofs,
  fluid,
  reflected_inertia,
  springs,
  tendons,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics import attachments, nodes, sweep, velocities
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.velocities import Carried
from mjx_warp_ffi.mjx.warp.adjoint.outputs import (
  cameras,
  energy,
  generalised_forces,
  inverse_dynamics,
  motion_axes,
  poses,
  reactions,
)
from mjx_warp_ffi.mjx.warp.adjoint.request import DEFAULT, Needs, Scope, Settings, needs_of
from mjx_warp_ffi.mjx.warp.adjoint.rules import parameters, refused_features, sensor_rules
from mjx_warp_ffi.mjx.warp.adjoint.sensors import (
  actuator_forces,
  camera_projection,
  contact_outputs,
  delayed_samples,
  frames,
  limits,
)
from mjx_warp_ffi.mjx.warp.adjoint.solve import integration, integrators
from mjx_warp_ffi.mjx.warp.adjoint.tape import refusals, vectors
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape


def record(step) -> tuple[wp.array | None, Carried | None]:
  """Records the outputs of a `StageAdjoint` that depend on the acceleration, but for rows.

  Returns:
    The virtual velocities of bodies on which forces act, and the fields that tendons see, if these
    are not those of the sweep. Then outputs depend on the acceleration by the forces of tendons
    too, which are recorded later.
  """
  if step.needs.accelerations:
    frames.record_accelerations(step)
  cut = reactions.record(step) if step.needs.reactions else None
  tense = cut is not None and reactions.has_pull(step.m)
  return cut, reactions.record_pull(step, cut) if tense else None


def record_rows(step) -> None:
  """Records the outputs of a `StageAdjoint` that depend on rows."""
  needs, cut = step.needs, step.cut
  if needs.row_forces and needs.solves:
    if step.geometry:
      step.make_contacts()
      virtual = contact_outputs.record_virtual(step, cut)
      step.contacts.record_power(step, step.rows, virtual=virtual)
    if step.has_welds and cut is not None:
      welds.record(step, step.rows, equalities=step.equalities, virtual=cut)
  if needs.limits:
    limits.record(step)


STATE = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat")
STATE += ("history", "time")  # by which delays have gradients
OUTPUTS = ("qpos", "qvel", "act", "history", "time", "qacc")  # of a step
RATES = (*OUTPUTS, "act_dot")  # of `forward`: some pass through


class StageAdjoint:
  """Gradients of a step that evaluates the dynamics once, or of `forward`.

  Fill `cotangents` and the inputs of the step in `d` (the state before it, and in `d.qacc` the
  acceleration that it solved for), call `launch()`, which a graph may capture, and read
  `gradients`. What the workspace `d` holds besides is overwritten.

  The arguments are those of `StepAdjoint`. It is built by the `record(step)` of many modules, where
  `step` is this object. Besides those below they find here what they share: the structs of
  `_make_structs`, the `sweep`, its `fields`, the `state`, the `weights` of sensordata, and what
  others have recorded before them (`tendon_rates`, `actuator_rates`, `contacts`, ...).

  Attributes:
    cotangents: arrays by the name of the output, (nworld, ...), zero at first.
    gradients: arrays by the name of the input, overwritten by each launch.
    inputs: arrays by the name of the input, which have gradients.
    tape: where kernels are recorded.
    needs: what has to be computed.
    after_recompute: functions that launch what reads the recomputed stages, once they are there.
    before_sweep: functions that launch what makes or reads the virtual velocities.

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
    self.mjm, self.m, self.d, self.wrt = mjm, m, d, wrt
    self.integrate, self.outputs = scope is Scope.STEP, outputs
    self.writes = scope in (Scope.STAGE, Scope.STEP)  # controls and measurements into the history
    with wp.ScopedDevice(device):
      self.tape = Tape(d.nworld, device, world_fastest=fastest)
      self._allocate(scope, settings)
      self._record()
      self.tape.finish()
    self.gradients = {
      name: wp.zeros_like(x) if x.grad is None else x.grad for name, x in self.inputs.items()
    }
    if self.needs.inverts:
      self.gradients["qacc"] = self._of_acceleration

  def _allocate(self, scope: Scope, settings: Settings) -> None:
    m, d = self.m, self.d
    names = OUTPUTS if self.integrate else RATES
    names = dict.fromkeys((*names, *self.outputs))
    self.cotangents = {name: wp.zeros_like(parameters.output(d, name)) for name in names}
    self.before_sweep, self.after_recompute = [], []
    self.given = delayed_samples.begin(self)
    self._read_needs(needs_of(self, scope=scope, rows=refused_features.has_rows(m, d)))
    second = self.integrate and integrators.has_second_solve(m)
    self.implicitfast = second and integrators.implicitfast(m)
    self.implicit_bias = second and integrators.implicit(m)
    self.discrete = self.needs.solves and integrators.discrete(m)
    if self.discrete and d.njmax == 0:
      refusals.refuse(["integrator DISCRETE without room for constraint rows (njmax=0)"])
    masked = self.needs.powers and bool(m.jnt_actfrclimited.numpy().any())
    self.fields = velocities.make_fields(
      second=second,
      acceleration=self.needs.rows or self.implicitfast or self.discrete,
      masked=masked,
      forces=self.needs.forces,
      compensated=bool(np.any(self.mjm.jnt_actgravcomp)),
      smooth=self.needs.smooth,
      passive=tuple(x for name, x in generalised_forces.PASSIVE.items() if name in self.outputs),
      rows=self.needs.constraint,
    )
    self.evaluation = Evaluation(self, settings=settings, masked=masked)
    self.inputs = {name: self.tape.twin(getattr(d, name)) for name in STATE}
    for name in self.wrt:
      self.inputs[name] = self.tape.twin(parameters.parameter(m, name))
    self._of_acceleration = wp.zeros((d.nworld, m.nv), dtype=float)

  def _read_needs(self, needs: Needs) -> None:
    """What the outputs depend on decides which parts there are."""
    exist = needs.contacts or needs.constrained
    self.geometry = refused_features.contact_geometry(self.mjm, self.m, d=self.d) if exist else None
    self.needs = needs = dataclasses.replace(needs, touched=bool(needs.touched and self.geometry))
    self.has_rows, m = needs.constrained, self.m
    self.has_welds = self.has_rows and m.eq_connect_adr.size + m.eq_wld_adr.size > 0
    sensed = "sensordata" in self.cotangents
    self.weights = sensor_rules.weights(self) if sensed else wp.zeros((1, 1), dtype=float)

  def constant(self, x: np.ndarray) -> wp.array:
    """An array of the topology, int or float."""
    dtype = float if x.dtype.kind == "f" else int
    return wp.array(x, dtype=dtype, device=self.tape.device)

  def leaf(self, name: str) -> wp.array:
    """A model field: the twin that has a gradient if it was asked for."""
    return self.inputs[name] if name in self.wrt else parameters.parameter(self.m, name)

  def _convert(self) -> None:
    """Turns gradients with respect to what MJWarp stores into those of the parameters."""
    if "opt.impratio" in self.wrt:
      grad, stored = self.gradients["opt.impratio"], self.m.opt.impratio_invsqrt
      wp.launch(integration.impratio_gradient, grad.size, inputs=[stored], outputs=[grad])

  def leaves(self, *names: str) -> dict[str, wp.array]:
    """Model fields by their names without "opt."."""
    return {parameters.stored(name).removeprefix("opt."): self.leaf(name) for name in names}

  def reports(self, names: tuple[str, ...]) -> list[tuple[wp.array, wp.array | None]]:
    """These fields of the workspace with their cotangents, or nothing if none has one."""
    pairs = [(getattr(self.d, name), self.cotangents.get(name)) for name in names]
    return pairs if any(cotangent is not None for _, cotangent in pairs) else []

  def _record(self) -> None:
    tape, x = self.tape, self.inputs
    self._qacc = tape.twin(self.d.qacc) if self.needs.of_acceleration else self.d.qacc
    frames = self.frames = tape.struct(
      nodes.Frames, **self.leaves("body_pos", "body_quat", "jnt_pos", "jnt_axis", "qpos0")
    )
    self.state = tape.struct(
      nodes.State,
      qpos=x["qpos"],
      qvel=x["qvel"],
      qacc=self._qacc,
      mocap_pos=x["mocap_pos"],
      mocap_quat=x["mocap_quat"],
    )
    self.sweep = sweep.Sweep(
      self.mjm,
      tape,
      d=self.d,
      frames=frames,
      state=self.state,
      fields=self.fields,
      track=self.needs.row_forces or self.needs.inverts,
      polar=self.implicit_bias,
    )
    self._make_structs()
    self.cut, self.pulled = record(self)
    if not self.discrete:
      record_rows(self)
    self._early_count = tape.count
    self.cot_force, cot_qfrc_actuator = actuator_forces.record(self)
    generalised_forces.record(self, cot_qfrc_actuator)
    if self.needs.inverts:
      inverse_dynamics.record(self)
    tape.muted = not self.needs.powers
    self._record_forces()
    tape.muted = False
    poses.record(self)
    energy.record(self)
    motion_axes.record(self)
    cameras.record(self)
    if "sensordata" in self.cotangents:
      frames.record(self)
      camera_projection.record(self)
    if self.pulled or (self.discrete and self.needs.row_forces):
      self._early_count = tape.count

  def _record_forces(self) -> None:
    """Records the forces, and the lengths of what they act along."""
    # contacts are apart unless actuators or the metric depend on them
    apart = not (self.discrete or adhesion.any_body(self.m))
    self.tape.begin_section()
    bodies.record(self)
    if self.geometry and adhesion.any_body(self.m):
      self.make_contacts()
    self.springs = springs.record(self)
    self.fluid = fluid.record(self) if self.needs.powers else None
    self.metric = discrete_inertia.Metric(self)
    self.tendon_rates, moving = tendons.record(self) if self.needs.lengths else (None, None)
    self.actuator_rates = None
    self.controls = control_delays.record(self)
    if self.m.nactuator and self.needs.lengths:
      over = self.sweep.carried
      self.actuator_rates = transmissions.find_rates(self, over, tendons=self.tendon_rates)
      off = self.m.opt.disableflags & DisableBit.ACTUATION
      if off:
        actuators.record_kept(self)
      elif self.needs.powers and not self.needs.inverts:
        own = self.actuator_rates
        if moving is not self.tendon_rates:
          own = transmissions.find_rates(self, over, tendons=moving)
        actuators.record(self, self.actuator_rates, moving=own)
    if self.has_rows:
      if self.discrete:
        self.metric.record(self)
      discrete_rows.record(self, self.rows, equalities=self.equalities)
      rows.record(self, self.rows, equalities=self.equalities, apart=apart)
      if self.has_welds:
        welds.record(self, self.rows, equalities=self.equalities)
    with self.tape.beside(apart):
      if self.geometry:
        self.make_contacts()
        if self.has_rows:
          discrete_contacts.record_contacts(self)
          self.contacts.record_power(self, self.rows)
    self.tape.begin_section()
    if self.discrete:
      record_rows(self)  # which it rescales

  def _make_structs(self) -> None:
    """What several parts of the power read."""
    self.sites, self.geoms = attachments.make_sites(self), attachments.make_geoms(self)
    self.inertia, self.dofs = bodies.make_inertia(self), dofs.make_dofs(self)
    self.reflected, self.tendons = (
      reflected_inertia.make_reflected(self),
      tendons.make_tendons(self),
    )
    self.delays = control_delays.make_delays(self)
    self.contacts = self.collector = None
    if self.needs.rows:
      self.rows, self.equalities = law.make_rows(self), law.make_equalities(self)
    off = self.m.opt.disableflags & DisableBit.GRAVITY
    gravity = self.leaf("opt.gravity")
    self.gravity = wp.zeros_like(gravity) if off else gravity

  def make_contacts(self) -> None:
    """Records the geometry of the contacts, once."""
    if self.contacts is None:
      self.contacts = contact_power.Recorded(self)
      located = contact_outputs.of_geometry(self, solves=self.needs.solves)
      if located or self.needs.row_forces:
        self.collector = contact_outputs.Collector(self)
        contact_outputs.record_geometry(self)

  def launch(self) -> None:
    """Computes `gradients` from `cotangents` and the inputs in the workspace."""
    with wp.ScopedDevice(self.d.qpos.device):
      self.tape.clear()
      self.evaluation.recompute()
      for launch in self.after_recompute:
        launch()
      if self.needs.solves:
        if self.needs.early:
          self._differentiate_early()
        self.evaluation.solve(self._of_acceleration if self.needs.early else None)
      for launch in self.before_sweep:
        launch()
      self.tape.forward()
      self.tape.backward()
      if self.needs.inverts:
        self._add_acceleration_gradients()
      self._convert()

  def _differentiate_early(self) -> None:
    """The cotangents of the acceleration from the outputs of the solve that depend on it."""
    self.sweep.coords.zero_()
    if self.fields.a >= 0:
      wp.copy(self.sweep.slices[self.fields.a], self.d.qacc)
    if self.needs.constraint:
      wp.copy(self.sweep.slices[0], self.cotangents["qfrc_constraint"])
    self.tape.forward(self._early_count)
    self.tape.backward(self._early_count)
    self._add_acceleration_gradients()
    self.tape.clear()

  def _add_acceleration_gradients(self) -> None:
    """The gradient of the acceleration: as that of the nodes, and as that of the rows."""
    total, coords = self._of_acceleration, self.sweep.coords
    wp.copy(total, self._qacc.grad)
    if coords.grad is not None:
      inputs = [total, coords.grad[self.fields.a]]
      wp.launch(vectors.add, total.shape, inputs=inputs, outputs=[total])
