"""Compares the gradient of a step with finite differences, field by field, on a model of yours.

The loss is a random combination of the positions, velocities and activations after one step. Its
gradient by `jax.grad` through `mjx.step` (float32) stands beside central differences of C
MuJoCo's `mj_step` (float64, its solver run to convergence). The states are reached by C MuJoCo
from random positions and controls, so that contacts and limits occur.

The error of a field is the largest difference over its largest entry. Worlds where a contact or
a limit switches within rounding differ for good reason: the verdict is on the median state, the
worst is printed beside it. Convex and box-box contacts have other points in MuJoCo Warp than in
C MuJoCo, so that there the two functions differ, not only their gradients.

Examples:
  mjx-warp-grad-check humanoid
  mjx-warp-grad-check my_robot.xml --parameters body_mass,geom_friction --states 10
  mjx-warp-grad-check hand --gradient fd      # the same check of the finite-difference gradient
"""

import argparse
import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import rich.box
import rich.console
import rich.markup
import rich.table

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import common

INPUTS = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat")
OUTPUTS = ("qpos", "qvel", "act")
PARAMETERS = (
  "body_mass,body_inertia,body_ipos,dof_damping,dof_armature,jnt_stiffness,geom_friction,"
  "geom_size,actuator_gainprm,actuator_biasprm,opt.gravity"
)


@dataclasses.dataclass
class Result:
  """The comparison of one field.

  Attributes:
    field: its name.
    errors: one for each state, relative to the largest entry of the differences.
    largest: the largest entry of the differences over the states.
    note: why there is nothing to compare.
  """

  field: str
  errors: list[float] = dataclasses.field(default_factory=list)
  largest: float = 0.0
  note: str = ""


@dataclasses.dataclass(frozen=True)
class Check:
  """One model with its states and the weights of the loss.

  Attributes:
    mj_model: the model, as C MuJoCo differences it.
    m: the same in JAX.
    states: where the gradient is taken.
    weights: of the outputs, by name.
    coordinates: at most so many of a field are differenced.
  """

  mj_model: mujoco.MjModel
  m: mjx.Model
  states: list[mujoco.MjData]
  weights: dict[str, np.ndarray]
  coordinates: int

  def loss(self, m: mjx.Model, d: mjx.Data) -> jax.Array:
    """The loss in JAX."""
    out = mjx.step(m, d)
    terms = [jnp.vdot(jnp.asarray(w, jnp.float32), getattr(out, n)) for n, w in self.items()]
    return jnp.sum(jnp.stack(terms))

  def loss_in_c(self, mj_model: mujoco.MjModel, mj_data: mujoco.MjData) -> float:
    """The loss in double precision; steps the data."""
    mujoco.mj_step(mj_model, mj_data)
    return float(sum(w @ getattr(mj_data, n) for n, w in self.items()))

  def items(self) -> Iterator[tuple[str, np.ndarray]]:
    """The outputs that the model has, with their weights."""
    return ((name, weights) for name, weights in self.weights.items() if weights.size)


def make_states(
  mj_model: mujoco.MjModel, count: int, *, warmup: int, seed: int
) -> list[mujoco.MjData]:
  """States that C MuJoCo reaches from random positions under random controls."""
  rng = np.random.default_rng(seed)
  states = []
  limited = mj_model.actuator_ctrllimited.astype(bool)
  low = np.where(limited, mj_model.actuator_ctrlrange[:, 0], -1)
  high = np.where(limited, mj_model.actuator_ctrlrange[:, 1], 1)
  for _ in range(count):
    mj_data = mujoco.MjData(mj_model)
    mujoco.mj_integratePos(mj_model, mj_data.qpos, 0.05 * rng.normal(size=mj_model.nv), 1.0)
    # off the ends of the range, where clamping has a kink
    mj_data.ctrl[:] = low + (high - low) * rng.uniform(0.2, 0.8, mj_model.nu)
    for _ in range(warmup):
      mujoco.mj_step(mj_model, mj_data)
    for name in ("qpos", "qvel", "act", "ctrl"):  # both sides start from the same numbers
      getattr(mj_data, name)[:] = getattr(mj_data, name).astype(np.float32)
    states.append(mj_data)
  return states


def make_check(mj_model: mujoco.MjModel, args: argparse.Namespace) -> Check:
  """The check that the arguments ask for.

  Raises:
    ToolError: nothing moves in the model.
  """
  if not mj_model.nv:
    raise common.ToolError("the model has no degree of freedom, so nothing to differentiate")
  converged = copy.copy(mj_model)
  converged.opt.tolerance = 0
  converged.opt.iterations = max(mj_model.opt.iterations, 100)
  converged.opt.ls_iterations = max(mj_model.opt.ls_iterations, 50)
  rng = np.random.default_rng(args.seed + 1)
  sizes = {"qpos": mj_model.nq, "qvel": mj_model.nv, "act": mj_model.na}
  return Check(
    converged,
    mjx.put_model(mj_model, gradient=args.gradient),
    make_states(converged, args.states, warmup=args.warmup, seed=args.seed),
    {name: rng.normal(size=size) for name, size in sizes.items()},
    args.coordinates,
  )


def central_difference(evaluate: Callable[[float], float], step: float) -> float:
  """The derivative at zero of a function of one displacement."""
  return (evaluate(step) - evaluate(-step)) / (2 * step)


def input_differences(
  check: Check, mj_data: mujoco.MjData, *, field: str, chosen: np.ndarray
) -> np.ndarray:
  """Differences of the loss for an input; those for qpos are in the tangent space."""

  def evaluate(index: int, shift: float) -> float:
    moved = copy.copy(mj_data)
    if field == "qpos":
      direction = np.zeros(check.mj_model.nv)
      direction[index] = 1
      mujoco.mj_integratePos(check.mj_model, moved.qpos, direction, shift)
    else:
      getattr(moved, field).flat[index] += shift
    return check.loss_in_c(check.mj_model, moved)

  return np.array(
    [central_difference(lambda x, i=i: evaluate(i, x), 1e-6) for i in chosen], np.float64
  )


def tangent(mj_model: mujoco.MjModel, qpos: np.ndarray, *, gradient: np.ndarray) -> np.ndarray:
  """A gradient for qpos as one for displacements in the tangent space, (nv,)."""
  out = np.empty(mj_model.nv)
  for index in range(mj_model.nv):
    direction = np.zeros(mj_model.nv)
    direction[index] = 1
    ends = [qpos.copy(), qpos.copy()]
    for end, shift in zip(ends, (1e-6, -1e-6), strict=True):
      mujoco.mj_integratePos(mj_model, end, direction, shift)
    out[index] = gradient @ (ends[0] - ends[1]) / 2e-6
  return out


def parameter_differences(
  check: Check, mj_data: mujoco.MjData, *, field: str, chosen: np.ndarray
) -> np.ndarray:
  """Differences of the loss for a leaf of the Model, such as "body_mass" or "opt.gravity"."""
  path = field.split(".")

  def evaluate(index: int, shift: float) -> float:
    model = copy.copy(check.mj_model)
    owner = model.opt if len(path) == 2 else model
    value = getattr(owner, path[-1])
    if np.ndim(value):
      value.flat[index] += shift
    else:
      setattr(owner, path[-1], value + shift)
    return check.loss_in_c(model, copy.copy(mj_data))

  values = np.ravel(_leaf(check.mj_model, field))
  steps = 1e-6 * np.maximum(np.abs(values), 1e-2)
  return np.array(
    [central_difference(lambda x, i=i: evaluate(i, x), steps[i]) for i in chosen], np.float64
  )


def _leaf(mj_model: mujoco.MjModel, field: str) -> np.ndarray:
  owner = mj_model.opt if field.startswith("opt.") else mj_model
  return np.asarray(getattr(owner, field.removeprefix("opt.")))


def _choose(size: int, most: int) -> np.ndarray:
  if size <= most:
    return np.arange(size)
  return np.sort(np.random.default_rng(0).choice(size, most, replace=False))


def _record(result: Result, gradient: np.ndarray, differences: np.ndarray) -> None:
  largest = float(np.abs(differences).max(initial=0))
  error = float(np.abs(gradient - differences).max(initial=0))
  result.largest = max(result.largest, largest)
  # Both zero agree; a NaN stays one.
  result.errors.append(error / largest if largest else error)


def check_inputs(check: Check) -> list[Result]:
  """Compares the gradients for all inputs that the model has."""
  fields = [name for name in INPUTS if getattr(check.states[0], name).size]
  results = {name: Result(name) for name in fields}
  gradient = jax.jit(jax.grad(lambda x, m, d: check.loss(m, d.replace(**x))))
  for mj_data in check.states:
    d = mjx.put_data(check.mj_model, mj_data)
    found = gradient({name: getattr(d, name) for name in fields}, check.m, d)
    for name in fields:
      g = np.asarray(found[name], np.float64).ravel()
      if name == "qpos":
        g = tangent(check.mj_model, mj_data.qpos, gradient=g)
      chosen = _choose(len(g), check.coordinates)
      exact = input_differences(check, mj_data, field=name, chosen=chosen)
      _record(results[name], g[chosen], exact)
  return list(results.values())


def check_parameter(check: Check, field: str) -> Result:
  """Compares the gradient for one leaf of the Model.

  Raises:
    ToolError: the Model has no such leaf.
  """
  try:
    size = _leaf(check.mj_model, field).size
    check.m.tree_replace({field: _leaf(check.mj_model, field).astype(np.float32)})
  except (AttributeError, TypeError, ValueError) as error:
    raise common.ToolError(f"--parameters: {error}") from error
  result = Result(field)
  if not size:
    result.note = "the model has none"
    return result
  gradient = jax.jit(jax.grad(lambda x, m, d: check.loss(m.tree_replace({field: x}), d)))
  chosen = _choose(size, check.coordinates)
  for mj_data in check.states:
    d = mjx.put_data(check.mj_model, mj_data)
    value = jnp.asarray(_leaf(check.mj_model, field), jnp.float32)
    try:
      g = np.asarray(gradient(value, check.m, d), np.float64).ravel()
    except NotImplementedError as error:
      if "no analytic gradient" not in str(error):
        raise
      result.note = "no analytic gradient (--gradient fd has one)"
      return result
    exact = parameter_differences(check, mj_data, field=field, chosen=chosen)
    _record(result, g[chosen], exact)
  return result


def show(results: Sequence[Result], console: rich.console.Console, *, tolerance: float) -> bool:
  """Prints the table.

  Returns:
    True when the median error of every field is within the tolerance.
  """
  table = rich.table.Table(box=rich.box.SIMPLE)
  for name in ("field", "largest entry", "median error", "worst error", ""):
    table.add_column(name, justify="right" if "e" in name[1:] and name != "field" else "left")
  good = True
  for result in results:
    if result.note:
      continue
    median = float(np.median(result.errors))
    agrees = median <= tolerance  # false for NaN
    good &= agrees
    numbers = (result.largest, median, max(result.errors, key=lambda e: (e != e, e)))
    mark = "[green]agrees[/]" if agrees else "[bold red]differs[/]"
    table.add_row(result.field, *(f"{x:.2g}" for x in numbers), mark)
  console.print(table)
  for note in dict.fromkeys(result.note for result in results if result.note):
    fields = ", ".join(result.field for result in results if result.note == note)
    console.print(f"{note}: {fields}", markup=False)
  return good


def make_parser() -> argparse.ArgumentParser:
  """The parser of the arguments."""
  parser = common.make_parser("mjx-warp-grad-check", __doc__)
  add = parser.add_argument
  add("model", nargs="?", default="humanoid", help="a bundled model's name, or an MJCF file")
  add("--states", type=common.positive, default=5, help="at how many states")
  add("--warmup", type=int, default=60, help="steps of C MuJoCo to reach them")
  add("--parameters", default=PARAMETERS, help="leaves of the Model, with commas")
  add("--coordinates", type=common.positive, default=48, help="of a field, at most")
  add("--gradient", choices=("analytic", "fd"), default="analytic", help="of mjx.put_model")
  add("--tolerance", type=float, default=1e-2, help="of the median error")
  add("--seed", type=int, default=0, help="of the states and the loss")
  return parser


def _run(argv: Sequence[str] | None) -> int:
  args = make_parser().parse_args(argv)
  console = rich.console.Console(highlight=False)
  check = make_check(common.load_model(args.model), args)
  parameters = [name for name in args.parameters.split(",") if name]
  with common.make_progress(console) as progress:
    task = progress.add_task("checking", total=1 + len(parameters), note="inputs")
    try:
      results = check_inputs(check)
    except NotImplementedError as error:
      raise common.ToolError(f"{error} (here: --gradient fd)") from error
    for name in parameters:
      progress.update(task, advance=1, note=name)
      results.append(check_parameter(check, name))
    progress.update(task, advance=1, note="done")
  return int(not show(results, console, tolerance=args.tolerance))


def main(argv: Sequence[str] | None = None) -> int:
  """The entry point of `mjx-warp-grad-check`.

  Returns:
    The exit status: 1 when a gradient differs.
  """
  return common.run_tool(_run, argv)


if __name__ == "__main__":
  sys.exit(main())
