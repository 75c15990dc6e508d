"""The analytic derivative of a staged function: a backward call, which runs the adjoint of a step.

The call copies in the inputs of the step, the acceleration that it solved for and the cotangents,
computes again what the solver started from, and runs the adjoint, all in one graph.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.enums import EnableBit, IntegratorType, TrnType
from mjx_warp_ffi.mjx.data.smoothing import ContactSmoothing
from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.data.types import Model
from mjx_warp_ffi.mjx.warp.adjoint.outputs import inverse_dynamics, reactions
from mjx_warp_ffi.mjx.warp.adjoint.request import Settings
from mjx_warp_ffi.mjx.warp.adjoint.rules import sensor_rules
from mjx_warp_ffi.mjx.warp.adjoint.rules.parts import PARAMETERS
from mjx_warp_ffi.mjx.warp.adjoint.sensors import limit_sensors
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_outputs import DISTANCES, FORCE, GEOMETRY
from mjx_warp_ffi.mjx.warp.adjoint.step import OUTPUTS, REPORTS, STATE, Scope, StepAdjoint
from mjx_warp_ffi.mjx.warp.adjoint.tape import refusals
from mjx_warp_ffi.mjx.warp.ffi import Inputs
from mjx_warp_ffi.mjx.warp.gradient import unruled_outputs
from mjx_warp_ffi.mjx.warp.gradient.reverse_only import reverse_once
from mjx_warp_ffi.mjx.warp.staging.plan import Plan
from mjx_warp_ffi.mjx.warp.staging.staged_call import Built, StagedCall
from mjx_warp_ffi.mjx.warp.staging.workspace import Workspace
from mjx_warp_ffi.third_party.warp.process import guard

Results = dict[str, jax.Array]

_SOLVED = ("qfrc_constraint", *reactions.REPORTS)  # known only after the solve
_NEEDS_SOLVE = frozenset({"qacc", "qacc_smooth", FORCE, "sensordata", *_SOLVED})
_FURTHER = (FORCE, inverse_dynamics.NAME)
_ALTERNATIVE = "mjx.put_model(m, gradient='fd') differentiates everything by central differences"


@dataclasses.dataclass(frozen=True)
class Wanted:
  """What one backward call takes and gives, known when it is traced.

  Attributes:
    name: name of the function.
    scope: where in a step its results lie.
    leaves: model leaves that all worlds may share.
    parameters: model leaves that get a gradient.
    inputs: Data fields that are passed.
    cotangents: outputs that have a cotangent with a rule.
    unruled: outputs that have a cotangent without a rule, known to be zero or not only when run.
    smoothing: how contacts are smoothed, if they are.
  """

  name: str
  scope: Scope
  leaves: tuple[str, ...]
  parameters: tuple[str, ...]
  inputs: tuple[str, ...]
  cotangents: tuple[str, ...]
  unruled: tuple[str, ...]
  smoothing: ContactSmoothing | None

  @property
  def gradients(self) -> tuple[str, ...]:
    """Names of the gradients that come back."""
    return (*(n for n in (*STATE, "qacc") if n in self.inputs), *self.parameters)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Analytic:
  """The rule for gradients by the adjoint of a step.

  Attributes:
    wanted: what the backward call takes and gives.
  """

  wanted: Wanted

  @property
  def parameters(self) -> tuple[str, ...]:
    """Model leaves that get a gradient."""
    return self.wanted.parameters

  def gradients(
    self, m: Model, inputs: Inputs, *, qacc: jax.Array | None, cotangents: Results, in_loop: bool
  ) -> Results:
    """The gradients by name.

    Where contacts are smoothed, outputs that report contacts still get their exact gradient, by a
    pass without smoothing. In a loop they do not: there all outputs have a cotangent, and every
    backward call would take both passes.

    Raises:
      NotImplementedError: outside a loop, for the cotangent of a result without a rule.
    """
    exact, rest = _of_contacts(m, cotangents), dict(cotangents)
    if in_loop or not exact or self.wanted.smoothing is None:
      return self._gradients(m, inputs, qacc=qacc, cotangents=rest, in_loop=in_loop)
    plain = Analytic(dataclasses.replace(self.wanted, smoothing=None))
    gradients = plain._gradients(m, inputs, qacc=qacc, cotangents=exact, in_loop=False)
    rest = {n: ct for n, ct in cotangents.items() if n not in exact}
    if "sensordata" in exact:
      rest["sensordata"] = cotangents["sensordata"] - exact["sensordata"]
    if rest:
      smooth = self._gradients(m, inputs, qacc=qacc, cotangents=rest, in_loop=False)
      gradients = {n: x + smooth[n] for n, x in gradients.items()}
    return gradients

  def _gradients(
    self, m: Model, inputs: Inputs, *, qacc: jax.Array | None, cotangents: Results, in_loop: bool
  ) -> Results:
    """The gradients by one pass."""
    if qacc is None:
      qacc = jnp.zeros(m.nv, jnp.float32)
    given = _with_warmstart(m, cotangents)
    if not in_loop:
      self._check(m, given)
    # to the adjoint any acceleration is qacc
    renamed = {self.wanted.scope.acceleration: "qacc"}
    given = {renamed.get(n, n): ct for n, ct in given.items()}
    wanted = self._sort(m, given)
    _check_rules(_plan(m, inputs.sizes, wanted=wanted), wanted)
    wanted, nonzero = _with_silent_sensors(m, given, wanted)
    bad = [jnp.stack(nonzero).astype(jnp.int32)] if nonzero else []
    ruled = (given[n] for n in wanted.cotangents)
    gradients = _gradients(wanted, m, inputs, (qacc, *ruled, *bad))
    if bad:
      gradients = {n: jnp.where(jnp.any(bad[0]), jnp.nan, x) for n, x in gradients.items()}
    if "time" in given:
      gradients["time"] = given["time"] + gradients["time"]
    return gradients

  def _check(self, m: Model, given: Results) -> None:
    """Raises NotImplementedError if a result with a cotangent has no rule."""
    # the state that a rollout carries has cotangents throughout: its warm start is checked later
    carried = ("qacc_warmstart",) if "time" in given else ()
    asked = [n for n in given if n not in carried]
    check_outputs(asked, scope=self.wanted.scope, smoothed=self.wanted.smoothing is not None)
    if "qacc_smooth" in given and _lacks_smooth(m, self.wanted.scope):
      refusals.refuse(["qacc_smooth with the integrator discrete or run_qacc_smooth off"])

  def _sort(self, m: Model, given: Results) -> Wanted:
    """What is wanted, of the results that have a cotangent: those with a rule, and the others."""
    scope = self.wanted.scope
    rules = list(_rules(scope, self.wanted.smoothing is not None))
    if scope.acceleration in rules:
      rules[rules.index(scope.acceleration)] = "qacc"
    if _lacks_smooth(m, scope):
      rules.remove("qacc")
    ruled = tuple(n for n in rules if n in given)
    unruled = tuple(n for n in given if n not in rules)
    wanted = dataclasses.replace(self.wanted, cotangents=ruled, unruled=unruled)
    if scope is Scope.FORWARD and not _NEEDS_SOLVE.intersection(ruled):
      wanted = dataclasses.replace(wanted, scope=Scope.FORCES, smoothing=None)
    return wanted


def _with_warmstart(m: Model, cotangents: Results) -> Results:
  """The cotangents, with that of the warm start in that of the acceleration, which it equals.

  After a step of RK4 it is the acceleration of the last stage, which has no rule.
  """
  given = dict(cotangents)
  if "qacc_warmstart" in given and m.opt.integrator != IntegratorType.RK4:
    warmstart = given.pop("qacc_warmstart")
    given["qacc"] = given["qacc"] + warmstart if "qacc" in given else warmstart
  return given


def _lacks_smooth(m: Model, scope: Scope) -> bool:
  """Whether qacc_smooth has no rule: it has another matrix than M, or is not computed."""
  other = m.opt.integrator == IntegratorType.DISCRETE or not m.opt.run_qacc_smooth
  return other and scope is Scope.SMOOTH


def _with_silent_sensors(
  m: Model, given: Results, wanted: Wanted
) -> tuple[Wanted, list[jax.Array]]:
  """Adds sensordata to the unruled results if only some sensors have a rule.

  Returns:
    What is wanted, and of each unruled result whether its cotangent is not zero. The carry of a
    loop has a cotangent for everything: that it is zero shows only at run time.
  """
  nonzero = [jnp.any(given[n] != 0) for n in wanted.unruled]
  found = sensor_rules.unruled(m.spec.mj_model, smoothed=wanted.smoothing is not None)
  silent = sum(found.values(), [])
  if "sensordata" in wanted.cotangents and silent:
    nonzero.append(jnp.any(given["sensordata"][np.array(silent)] != 0))
    wanted = dataclasses.replace(wanted, unruled=(*wanted.unruled, "sensordata"))
  return wanted, nonzero


def _of_contacts(m: Model, cotangents: Results) -> Results:
  """The cotangents of outputs that report contacts."""
  found = {n: cotangents[n] for n in (*GEOMETRY, FORCE) if n in cotangents}
  columns = sensor_rules.of_contacts(m.spec.mj_model)
  if "sensordata" in cotangents and columns:
    kept = np.isin(np.arange(m.nsensordata), columns)
    found["sensordata"] = jnp.where(kept, cotangents["sensordata"], 0.0)
  return found


def _rules(scope: Scope, smoothed: bool) -> tuple[str, ...]:
  """The results whose cotangents have a rule."""
  if scope is Scope.INVERSE:
    return (
      inverse_dynamics.NAME,
      *(n for n in REPORTS if n not in (*reactions.REPORTS, "sensordata")),
    )
  if not scope.constrained:
    return tuple(n for n in REPORTS if n not in _SOLVED)
  rules = (*OUTPUTS, *REPORTS, FORCE)
  # smoothed contacts are more than those of the step, and in another order
  return tuple(n for n in rules if n not in (*GEOMETRY, FORCE)) if smoothed else rules


def _plan(
  m: Model,
  sizes: Sizes,
  *,
  wanted: Wanted,
  nworld: int = 1,
  batched: frozenset[str] = frozenset(),
) -> Plan:
  """The plan of an adjoint's workspace, with room for contacts and rows only if they matter."""
  statics = m.opt.statics
  if wanted.scope.acceleration != "qacc":
    # results before the solve depend neither on the integrator nor on the solver
    statics = statics._replace(integrator=int(IntegratorType.EULER), noslip_iterations=0)
  if not wanted.scope.constrained and not _touches(m, wanted):
    sizes = sizes.without_rows()
    statics = statics._replace(run_collision_detection=True)
  return Plan(m.spec, statics, sizes, nworld, batched)


def _touches(m: Model, wanted: Wanted) -> bool:
  """Whether contacts or rows have an effect before the solve."""
  mj_model, found = m.spec.mj_model, not set(GEOMETRY).isdisjoint(wanted.cotangents)
  if "sensordata" in wanted.cotangents:
    found |= bool(np.isin(mj_model.sensor_type, (*limit_sensors.KINDS, *DISTANCES)).any())
  return found or bool(np.any(mj_model.actuator_trntype == int(TrnType.BODY)))


def check_outputs(
  names: Iterable[str], *, scope: Scope = Scope.STEP, smoothed: bool = False
) -> None:
  """Raises NotImplementedError if a result that has a cotangent has no analytic rule.

  Fewer have one where contacts are smoothed.
  """
  rules = _rules(scope, smoothed)
  unruled = [n for n in names if n not in rules]
  if unruled:
    known = ", ".join(n for n in rules if n != FORCE)
    where = " with contact_smoothing" if smoothed else ""
    raise NotImplementedError(
      f"no analytic gradient from {', '.join(unruled)}{where}; these have one: {known}."
      f" {_ALTERNATIVE}"
    )


def rule_of(
  name: str, m: Model, *, inputs: Inputs, parameters: tuple[str, ...], scope: Scope
) -> Analytic:
  """The rule of a function; checks at trace time that there is one."""
  unruled = sorted(set(parameters) - PARAMETERS)
  if unruled:
    ruled = sorted(PARAMETERS)
    raise NotImplementedError(
      f"no analytic gradient with respect to {', '.join(unruled)}; these leaves of Model have one:"
      f" {', '.join(ruled)}. Differentiate with respect to those alone, or: {_ALTERNATIVE}"
    )
  if scope is Scope.INVERSE:
    _check_inverse(m)
  leaves = (f.name for f in fields.model_leaves() if fields.lookup(m, f.name).size)
  wanted = Wanted(
    name=name,
    scope=scope,
    leaves=tuple(n for n in leaves if n not in parameters),
    parameters=parameters,
    inputs=tuple(inputs.arrays),
    cotangents=(),
    unruled=(),
    smoothing=m.contact_smoothing if scope.acceleration == "qacc" else None,
  )
  _check_rules(_plan(m, inputs.sizes, wanted=wanted), wanted)
  return Analytic(wanted)


def _check_inverse(m: Model) -> None:
  """Raises NotImplementedError for inverse dynamics without a rule."""
  discrete = m.opt.integrator == IntegratorType.DISCRETE
  discrete = discrete or m.opt.enableflags & EnableBit.INVDISCRETE
  if discrete:
    raise NotImplementedError(f"no analytic gradient of the discrete inverse. {_ALTERNATIVE}")


@functools.lru_cache(maxsize=64)
def _check_rules(plan: Plan, wanted: Wanted) -> None:
  """Builds the adjoint on the CPU, which refuses what it has no rule for, by name."""
  with guard.tracing():
    w = Workspace(plan)
    _adjoint(w, wanted)


def _adjoint(w: Workspace, wanted: Wanted) -> StepAdjoint:
  return StepAdjoint(
    w.plan.spec.mj_model,
    w.m,
    d=w.d,
    wrt=wanted.parameters,
    outputs=tuple(n for n in wanted.cotangents if n in REPORTS or n in _FURTHER),
    scope=wanted.scope,
    settings=Settings(smoothing=wanted.smoothing),
  )


def _cotangent(w: Workspace, adjoint: StepAdjoint, *, name: str) -> wp.array:
  """The array that a cotangent of all worlds is copied to."""
  array = adjoint.cotangents[name]
  if not name.startswith("contact"):
    return array
  # JAX has it by world, the adjoint by the place of the contact in mujoco_warp's pool
  words = array.capacity // 4 // max(1, array.shape[0])
  by_world = wp.zeros((w.d.nworld, w.contacts.nconmax, words), dtype=float)
  adjoint.fill_cotangents(lambda: w.contacts.to_pool(by_world, array))
  return by_world


def _gradients(wanted: Wanted, m: Model, inputs: Inputs, further: Sequence[jax.Array]) -> Results:
  """One backward call.

  `further` are the solved acceleration, the cotangents, and where there are results without a
  rule, which of theirs are not zero.
  """
  moving = {n: fields.lookup(m, n) for n in wanted.parameters} | inputs.arrays
  call = StagedCall(
    f"{wanted.name}_adjoint",
    leaves=wanted.leaves,
    parameters=wanted.parameters,
    inputs=wanted.inputs,
    results=tuple(jax.ShapeDtypeStruct(moving[n].shape, np.float32) for n in wanted.gradients),
    build=functools.partial(_build, wanted),
    content=dataclasses.astuple(wanted),
  )

  def plan(nworld: int, batched: frozenset[str]) -> Plan:
    return _plan(m, inputs.sizes, wanted=wanted, nworld=nworld, batched=batched)

  results = call(m, inputs.arrays, further=further, plan=plan, through=reverse_once)
  return dict(zip(wanted.gradients, results, strict=True))


def _build(wanted: Wanted, w: Workspace) -> Built:
  """The adjoint on a workspace, and the arrays of what it takes and gives."""
  adjoint = _adjoint(w, wanted)
  further = [w.d.qacc, *(_cotangent(w, adjoint, name=n) for n in wanted.cotangents)]
  notes = unruled_outputs.Notes(wanted.unruled, w.plan.nworld) if wanted.unruled else None
  if notes:
    further.append(notes.nonzero)

  def body() -> None:
    w.begin()
    adjoint.launch()
    if notes:
      notes.launch()

  return Built(further, [adjoint.gradients[n] for n in wanted.gradients], body)
