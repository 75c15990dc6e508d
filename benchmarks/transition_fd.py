"""The error of mjx.transition_fd against float64 differences of C MuJoCo, as a Markdown table.

Each row has, over random states of a model, the median and the worst relative error (Frobenius
norm) of A, B, C and D.

Examples:
  python benchmarks/transition_fd.py                            # all models, without contacts
  python benchmarks/transition_fd.py --contacts hopper humanoid
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from gradient_accuracy import random_state

from mjx_warp_ffi import mjx

_MODELS = pathlib.Path(__file__).resolve().parents[1] / "models"
_SPEC = int(mujoco.mjtState.mjSTATE_INTEGRATION)
# These differ between MuJoCo and MuJoCo Warp themselves: C keeps the energy of the last call, and
# Warp has no distance where contacts are off.
_OTHERWISE = ("E_KINETIC", "E_POTENTIAL", "GEOMDIST", "GEOMFROMTO", "GEOMNORMAL")


def load(name: str, contacts: bool) -> mujoco.MjModel:
  """A model of models/."""
  m = mujoco.MjModel.from_xml_path(str(_MODELS / f"{name}.xml"))
  if not contacts:
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
  return m


def exact(m: mujoco.MjModel, d: mujoco.MjData, eps: float = 1e-6) -> list[np.ndarray]:
  """A, B, C and D by central differences in float64, also with RK4."""
  n = 2 * m.nv + m.na
  start = np.zeros(mujoco.mj_stateSize(m, _SPEC))
  mujoco.mj_getState(m, d, start, _SPEC)

  def end(k: int, h: float) -> tuple[np.ndarray, np.ndarray]:
    mujoco.mj_setState(m, d, start, _SPEC)
    if k < m.nv:
      mujoco.mj_integratePos(m, d.qpos, h * np.eye(m.nv)[k], 1)
    else:
      at = np.cumsum([m.nv, m.nv, m.na])
      name = ("qvel", "act", "ctrl")[int(np.searchsorted(at[1:], k, side="right"))]
      first = {"qvel": at[0], "act": at[1], "ctrl": at[2]}[name]
      getattr(d, name)[k - first] += h
    mujoco.mj_step(m, d)
    return d.qpos.copy(), np.concatenate([d.qvel, d.act, d.sensordata])

  columns = []
  for k in range(n + m.nu):
    (q1, x1), (q0, x0) = end(k, eps), end(k, -eps)
    dq = np.zeros(m.nv)
    mujoco.mj_differentiatePos(m, dq, 1, q0, q1)
    columns.append(np.concatenate([dq, x1 - x0]) / (2 * eps))
  mujoco.mj_setState(m, d, start, _SPEC)
  t = np.transpose(columns)
  return [t[:n, :n], t[:n, n:], t[n:, :n], t[n:, n:]]


def errors(name: str, contacts: bool, count: int) -> list[str]:
  """Median and worst error of each matrix, as cells of a table."""
  rng = np.random.default_rng(0)
  m, reference = load(name, contacts), load(name, contacts)
  reference.opt.tolerance, reference.opt.iterations = 1e-15, 200
  reference.opt.ls_tolerance, reference.opt.ls_iterations = 1e-10, 100
  states = [random_state(m, rng, 150 if contacts else 5) for _ in range(count)]
  batch = jax.tree.map(lambda *x: jnp.stack(x), *[mjx.put_data(m, d) for d in states])
  results = jax.jit(jax.vmap(mjx.transition_fd, (None, 0)))(mjx.put_model(m), batch)
  kinds = [mujoco.mjtSensor(t).name.removeprefix("mjSENS_") for t in m.sensor_type]
  rows = np.repeat([kind not in _OTHERWISE for kind in kinds], m.sensor_dim)
  found: list[list[float]] = [[], [], [], []]
  for i, d in enumerate(states):
    for k, truth in enumerate(exact(reference, d)):
      ours = np.asarray(results[k][i], np.float64)
      if k > 1:
        ours, truth = ours[rows.astype(bool)], truth[rows.astype(bool)]
      if np.linalg.norm(truth) > 0:
        found[k].append(np.linalg.norm(ours - truth) / np.linalg.norm(truth))
  return [f"{np.median(x):.0e} ({np.max(x):.0e})" if x else "-" for x in found]


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--contacts", action="store_true", help="with contacts, 150 steps in")
  parser.add_argument("--states", type=int, default=10)
  parser.add_argument("models", nargs="*", default=[])
  args = parser.parse_args()
  print("| model | A | B | C | D |\n| --- | --- | --- | --- | --- |")
  for name in args.models or sorted(p.stem for p in _MODELS.glob("*.xml")):
    print(f"| {name} | {' | '.join(errors(name, args.contacts, args.states))} |", flush=True)


if __name__ == "__main__":
  main()
