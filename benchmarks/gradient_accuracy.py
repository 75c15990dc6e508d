"""The error of jax.grad of a step against float64 differences of C MuJoCo, as a Markdown table.

The function is a random linear one of the next state, or with --steps of the state after that many
steps under constant controls. A row has, over random states of a model, the median and the 95th
percentile of the largest error of the gradient over its largest entry, for every input. Left out
are states at a kink, where two lengths of the differences disagree, and states after which MuJoCo
Warp and C MuJoCo differ by more than rounding (they found other contacts). The last column says how
many were left. With --cosine a row has the median and the smallest cosine of the angle between
gradient and differences instead.

Examples:
  python benchmarks/gradient_accuracy.py                           # all models, without contacts
  python benchmarks/gradient_accuracy.py --contacts humanoid
  python benchmarks/gradient_accuracy.py --steps 50 cartpole arm
  python benchmarks/gradient_accuracy.py --contacts --steps 32 --cosine hopper hand
"""

import argparse
import copy
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli.grad_check import tangent

_MODELS = pathlib.Path(__file__).resolve().parents[1] / "models"
_SPEC = int(mujoco.mjtState.mjSTATE_INTEGRATION)
_INPUTS = ("qpos", "qvel", "act", "ctrl")
_STATE = ("qpos", "qvel", "act")
_EPS = 1e-6
_KINK = 1e-4  # disagreement of differences at two lengths
_OTHER = 1e-3  # of the velocities after a step, that of MuJoCo Warp and of C MuJoCo
_RULED = ("Euler", "implicitfast", "discrete", "RK4")
_INTEGRATORS = {int(getattr(mujoco.mjtIntegrator, f"mjINT_{n.upper()}")): n for n in _RULED}


def load(name: str, contacts: bool) -> tuple[str, mujoco.MjModel]:
  """A model of models/ with a solver that converges, and its name with what was changed."""
  m = mujoco.MjModel.from_xml_path(str(_MODELS / f"{name}.xml"))
  if m.opt.integrator not in _INTEGRATORS:
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    name = f"{name} (with implicitfast)"
  if not contacts:
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
  m.opt.iterations, m.opt.ls_iterations = 100, 100
  m.opt.tolerance = 1e-10
  return name, m


def tightened(m: mujoco.MjModel) -> mujoco.MjModel:
  """A copy for float64."""
  m = copy.copy(m)
  m.opt.tolerance, m.opt.iterations = 0, 200
  m.opt.ls_tolerance, m.opt.ls_iterations = 1e-12, 200
  return m


def random_state(m: mujoco.MjModel, rng: np.random.Generator, steps: int) -> mujoco.MjData:
  """A state some steps into constant random controls, rounded to float32."""
  d = mujoco.MjData(m)
  if m.nkey:
    mujoco.mj_resetDataKeyframe(m, d, rng.integers(m.nkey))
  mujoco.mj_integratePos(m, d.qpos, 0.1 * rng.normal(size=m.nv), 1)
  d.qvel[:] += 0.5 * rng.normal(size=m.nv)
  low, high = m.actuator_ctrlrange.T
  inside = low + rng.uniform(0.1, 0.9, m.nu) * (high - low)
  d.ctrl[:] = np.where(m.actuator_ctrllimited, inside, 0.3 * rng.normal(size=m.nu))
  for _ in range(steps):
    mujoco.mj_step(m, d)
  mujoco.mj_forward(m, d)
  d.qacc_warmstart[:] = d.qacc
  for name in (*_INPUTS, "qacc_warmstart"):
    getattr(d, name)[:] = getattr(d, name).astype(np.float32)
  return d


def differences(
  m: mujoco.MjModel, d: mujoco.MjData, weights: Sequence[np.ndarray], *, steps: int, eps: float
) -> dict[str, np.ndarray]:
  """The gradient by central differences, that of qpos in the tangent space."""
  start = np.zeros(mujoco.mj_stateSize(m, _SPEC))
  mujoco.mj_getState(m, d, start, _SPEC)

  def value(name: str, k: int, h: float) -> float:
    mujoco.mj_setState(m, d, start, _SPEC)
    if name == "qpos":
      mujoco.mj_integratePos(m, d.qpos, h * np.eye(m.nv)[k], 1)
    else:
      getattr(d, name)[k] += h
    for _ in range(steps):
      mujoco.mj_step(m, d)
    return sum(float(w @ getattr(d, n)) for n, w in zip(_STATE, weights, strict=True))

  sizes = dict(zip(_INPUTS, (m.nv, m.nv, m.na, m.nu), strict=True))
  out = {
    n: np.array([(value(n, k, eps) - value(n, k, -eps)) / (2 * eps) for k in range(size)])
    for n, size in sizes.items()
  }
  mujoco.mj_setState(m, d, start, _SPEC)
  return out


def velocity(m: mujoco.MjModel, d: mujoco.MjData, *, steps: int) -> np.ndarray:
  """The velocity after some steps of C MuJoCo."""
  after = copy.copy(d)
  for _ in range(steps):
    mujoco.mj_step(m, after)
  return after.qvel


def ours(
  m: mujoco.MjModel, states: Sequence[mujoco.MjData], weights: Sequence[np.ndarray], *, steps: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
  """The gradients by JAX in all states, those of qpos in coordinates, and the next velocities."""
  model = mjx.put_model(m)
  batch = jax.tree.map(lambda *x: jnp.stack(x), *[mjx.put_data(m, d) for d in states])

  def loss(moving: dict[str, jax.Array], d: mjx.Data) -> tuple[jax.Array, jax.Array]:
    d = d.replace(**moving)
    if steps == 1:
      after = mjx.step(model, d)
    else:
      _, after = mjx.rollout(model, d, jnp.broadcast_to(d.ctrl, (steps, model.nu)))
    terms = (jnp.vdot(w, getattr(after, n)) for n, w in zip(_STATE, single, strict=True))
    return sum(terms, jnp.zeros(())), after.qvel

  single = [jnp.asarray(w, jnp.float32) for w in weights]
  moving = {n: getattr(batch, n) for n in _INPUTS if getattr(batch, n).shape[1]}
  out, qvel = jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))(moving, batch)
  return {n: np.asarray(x, np.float64) for n, x in out.items()}, np.asarray(qvel, np.float64)


def _error(x: np.ndarray, truth: np.ndarray) -> float:
  return float(np.abs(x - truth).max() / max(np.abs(truth).max(), 1e-12))


def errors(
  m: mujoco.MjModel,
  states: Sequence[mujoco.MjData],
  *,
  steps: int,
  seed: int = 1,
  measure: Callable[[np.ndarray, np.ndarray], float] = _error,
) -> dict[str, list[float]]:
  """The relative errors by input, or another measure, for each state that is away from kinks."""
  rng = np.random.default_rng(seed)
  weights = [rng.normal(size=n).astype(np.float32).astype(float) for n in (m.nq, m.nv, m.na)]
  reference = tightened(m)
  got, qvel = ours(m, states, weights, steps=steps)
  found: dict[str, list[float]] = {n: [] for n in got}
  for i, d in enumerate(states):
    if _error(qvel[i], velocity(reference, d, steps=steps)) > _OTHER:
      continue
    want, other = (
      differences(reference, d, weights, steps=steps, eps=eps) for eps in (_EPS, _EPS / 4)
    )
    if any(_error(other[n], want[n]) > _KINK for n in got):
      continue
    for n, x in got.items():
      x = tangent(m, d.qpos, gradient=x[i]) if n == "qpos" else x[i]
      found[n].append(measure(x, want[n]))
  return found


def cosine(x: np.ndarray, truth: np.ndarray) -> float:
  """The cosine of the angle between two gradients; 1 of an empty one or zeros."""
  size = np.linalg.norm(x) * np.linalg.norm(truth)
  return float(x @ truth / size) if size > 0 else 1.0


def row(name: str, *, contacts: bool, steps: int, count: int, cosines: bool = False) -> str:
  """A row of the table."""
  shown, m = load(name, contacts)
  rng = np.random.default_rng(0)
  states = [random_state(m, rng, 150 if contacts else 5) for _ in range(count)]
  try:
    found = errors(m, states, steps=steps, measure=cosine if cosines else _error)
  except NotImplementedError as error:
    reason = str(error).split(". ")[0].removeprefix("no analytic gradient for: ")
    return f"| {shown} | refused: {reason} | | | | |"
  cells = []
  for n in _INPUTS:
    e = found.get(n, [])
    text = f"{np.median(e):.0e} ({np.percentile(e, 95):.0e})" if e else "-"
    cells.append(f"{np.median(e):.6f} ({min(e):.6f})" if e and cosines else text)
  left = len(found["qpos"])
  return f"| {shown} | {' | '.join(cells)} | {left} of {count} |"


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--contacts", action="store_true", help="with contacts, 150 steps in")
  parser.add_argument("--steps", type=int, default=1, help="steps of the rollout")
  parser.add_argument("--states", type=int, default=20)
  parser.add_argument("--cosine", action="store_true", help="instead of the error")
  parser.add_argument("models", nargs="*", default=[])
  args = parser.parse_args()
  print("| model | qpos | qvel | act | ctrl | states |")
  print("| --- | --- | --- | --- | --- | --- |")
  for name in args.models or sorted(p.stem for p in _MODELS.glob("*.xml")):
    options = dict(contacts=args.contacts, steps=args.steps, count=args.states)
    text = row(name, **options, cosines=args.cosine)
    print(text, flush=True)


if __name__ == "__main__":
  main()
