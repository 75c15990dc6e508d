"""The backward pass of one MJWarp step, whatever its integrator."""

from collections.abc import Callable

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src.types import DisableBit, IntegratorType

from mjx_warp_ffi.mjx.warp.adjoint import runge_kutta
from mjx_warp_ffi.mjx.warp.adjoint.request import DEFAULT
from mjx_warp_ffi.mjx.warp.adjoint.request import OUTPUTS as OUTPUTS
from mjx_warp_ffi.mjx.warp.adjoint.request import STATE as STATE
from mjx_warp_ffi.mjx.warp.adjoint.request import Settings as Settings
from mjx_warp_ffi.mjx.warp.adjoint.rules import conditional, refused_features, sensor_rules
from mjx_warp_ffi.mjx.warp.adjoint.rules.parts import REPORTS as REPORTS
from mjx_warp_ffi.mjx.warp.adjoint.rules.poison import Poison
from mjx_warp_ffi.mjx.warp.adjoint.sensors import delayed_samples
from mjx_warp_ffi.mjx.warp.adjoint.stage import StageAdjoint
from mjx_warp_ffi.mjx.warp.adjoint.tape.needs import Scope as Scope


class StepAdjoint:
  """Gradients of one step, or of `forward`, with respect to its inputs.

  Fill `cotangents` and the inputs of the step in `d` (the state before it, and in `d.qacc` the
  acceleration that it returned), call `launch()`, which a graph may capture, and read
  `gradients`. What the workspace `d` holds besides is overwritten.

  Args:
    mjm: the model, for its topology.
    m: the MJWarp model; its fields may have one row or one a world.
    d: the workspace.
    wrt: names of model fields that get a gradient too ("body_mass", "opt.gravity", ...), one row
      per row of the field: with one row, the sum over worlds. `rules/parts.py` has them all.
    outputs: names of outputs besides those, of `REPORTS`, that have a cotangent too; or
      "contact_force". The cotangents of contacts are by contact of the pool.
    scope: where in a step the outputs lie: those of `step`, `OUTPUTS`, or of `forward`.
    settings: the options.

  Attributes:
    cotangents: arrays by the name of the output, (nworld, ...), zero at first.
    gradients: arrays by the name of the input, overwritten by each launch.

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
    several = scope is Scope.STEP and m.opt.integrator == IntegratorType.RK4
    without = runge_kutta.refused(m, outputs) if several else []
    if without:
      raise NotImplementedError(f"no gradient from {', '.join(without)} of a step of RK4")
    off = bool(m.opt.disableflags & DisableBit.SENSOR)  # they read zero, whatever the state
    smoothed = settings.smoothing is not None
    found = {} if off else sensor_rules.unruled(mjm, smoothed=smoothed)
    silent = sum(found.values(), [])
    sampled = delayed_samples.any_in(mjm) and not off and len(silent) < mjm.nsensordata
    if sampled and scope is Scope.STEP:
      outputs = tuple(dict.fromkeys((*outputs, "sensordata")))  # the history has what they measure
    self.stage = StageAdjoint(
      mjm,
      m,
      d=d,
      wrt=wrt,
      outputs=tuple(n for n in outputs if not (off and n == "sensordata")),
      scope=Scope.STAGE if several else scope,
      settings=settings,
    )
    self._adjoint = runge_kutta.RungeKuttaAdjoint(m, self.stage) if several else self.stage
    self.cotangents = dict(self._adjoint.cotangents)
    if off and "sensordata" in outputs:
      self.cotangents["sensordata"] = wp.zeros_like(d.sensordata)
    if sampled and self.stage.given is not None and not several:
      self.cotangents["sensordata"] = self.stage.given
    self.gradients = self._adjoint.gradients
    self._device = d.qpos.device
    with wp.ScopedDevice(self._device):
      guarded = conditional.guarded(mjm, m) if refused_features.forces_act(scope, outputs) else []
      if "sensordata" in outputs and silent:
        guarded += [(self.cotangents["sensordata"], silent)]
      past = delayed_samples.places(mjm, silent)
      guarded += [(self.cotangents["history"], past)] if past else []
      soft = self._soft = self.stage.evaluation.soft
      guarded += [(soft.full, [0])] if soft else []
      reader = self.stage.collector and self.stage.collector.sensors
      self._unknown = reader.unknown if reader and reader.count else None
      guarded += [] if self._unknown is None else [(self._unknown, [0])]
      self._poison = Poison(d.nworld, guarded=guarded, gradients=self.gradients.values())

  def fill_cotangents(self, launch: Callable[[], None]) -> None:
    """Has cotangents of contacts written in each launch, when the contacts have been found.

    Args:
      launch: launches what writes them, by contact of the pool.
    """
    self.stage.rec.tape.fill_cotangents(launch)

  def launch(self) -> None:
    """Computes `gradients` from `cotangents` and the inputs in the workspace."""
    with wp.ScopedDevice(self._device):
      if self._soft:
        self._soft.begin()
      if self._unknown is not None:
        self._unknown.zero_()
      self._adjoint.launch()
      self._poison.launch()
