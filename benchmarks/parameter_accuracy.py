"""The error of gradients with respect to model parameters against differences of C MuJoCo.

The function is a random linear one of the next state and the acceleration. A row has, over random
states of a model of the tests, the median and the 95th percentile of the largest error of the
gradient over its largest entry. Left out are states at a kink, where two lengths of the float64
differences disagree.

Examples:
  python benchmarks/parameter_accuracy.py
  python benchmarks/parameter_accuracy.py --states 20 contacts
"""

import argparse
import pathlib
import sys

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.step import StepAdjoint
from mjx_warp_ffi.mjx.warp.adjoint.tape import leaves

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from support import adjoint_models as models  # noqa: E402
from support import adjoint_oracle as oracle  # noqa: E402

_KINK = 1e-4
_INERTIA = "body_mass body_inertia body_ipos body_iquat body_pos body_quat body_gravcomp"
_JOINTS = "jnt_pos jnt_axis jnt_stiffness qpos_spring qpos0 dof_armature dof_damping"
_OPTIONS = "opt.gravity opt.timestep"
_CONTACTS = "geom_size geom_pos geom_quat geom_friction geom_solref geom_solimp geom_solmix"
_ACTUATORS = "actuator_gear actuator_gainprm actuator_biasprm actuator_dynprm site_pos"
_TENDONS = "tendon_stiffness tendon_damping tendon_lengthspring tendon_armature"
_ROWS = "dof_frictionloss jnt_range jnt_margin jnt_solref jnt_solimp eq_data eq_solref eq_solimp"
_ROWS += " tendon_frictionloss tendon_range tendon_solref_lim dof_invweight0 body_invweight0"
GROUPS = {
  "smooth": (models.SMOOTH, f"{_INERTIA} {_JOINTS} {_OPTIONS}"),
  "actuated": (models.ACTUATED, f"{_ACTUATORS} {_TENDONS}"),
  "constrained": (models.CONSTRAINED, _ROWS),
  "contacts": (
    models.CONTACTS.format(condim=4),
    f"{_CONTACTS} body_mass body_inertia body_pos opt.impratio {_OPTIONS}",
  ),
}


def load(text: str) -> mujoco.MjModel:
  """A model without C MuJoCo's shortcuts, which ignore changes of some parameters."""
  m = oracle.tighten(mujoco.MjModel.from_xml_string(text))
  m.opt.impratio = 2.0
  for name in ("body_sameframe", "geom_sameframe", "site_sameframe", "body_simple"):
    getattr(m, name)[:] = 0
  m.dof_simplenum[:] = 0
  return m


def random_state(m: mujoco.MjModel, rng: np.random.Generator, *, contacts: bool) -> dict:
  """Random inputs; with contacts, five steps after bodies were moved a little."""
  state = oracle.random_state(m, rng, 0.0 if contacts else 0.3)
  if not contacts:
    return state
  d = mujoco.MjData(m)
  mujoco.mj_integratePos(m, d.qpos, 0.02 * rng.normal(size=m.nv), 1.0)
  d.qvel[:] = 0.3 * rng.normal(size=m.nv)
  for _ in range(5):
    mujoco.mj_step(m, d)
  state["qpos"], state["qvel"] = (x.astype(np.float32).astype(float) for x in (d.qpos, d.qvel))
  for name in ("qfrc_applied", "xfrc_applied"):
    state[name] = (0.1 * state[name]).astype(np.float32).astype(float)
  return state


def repeated(m: mjw.Model, name: str, count: int) -> None:
  """Gives a field of the model one row a world, so that every world has its own gradient."""
  owner = m.opt if name.startswith("opt.") else m
  field = leaves.stored(name).removeprefix("opt.")
  x = getattr(owner, field)
  rows = np.repeat(x.numpy()[:1], count, axis=0)
  setattr(owner, field, wp.array(rows, dtype=x.dtype))


def gradients(
  m: mujoco.MjModel, states: list[dict], names: list[str], *, weights: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """The analytic gradients of all states, (states, ...)."""
  count = len(states)
  model = mjw.put_model(m)
  for name in names:
    repeated(model, name, count)
  forward, d = (mjw.make_data(m, nworld=count, njmax=120, nconmax=30) for _ in range(2))
  for data in (forward, d):
    for name in oracle.INPUTS:
      if getattr(data, name).size:
        getattr(data, name).assign(np.stack([s[name] for s in states]).astype(np.float32))
  mjw.forward(model, forward)
  adjoint = StepAdjoint(m, model, d=d, wrt=tuple(names))
  for name, weight in weights.items():
    if weight.size:
      adjoint.cotangents[name].assign(np.repeat(weight[None], count, axis=0).astype(np.float32))
  wp.copy(d.qacc, forward.qacc)
  adjoint.launch()
  return {name: adjoint.gradients[name].numpy().astype(float) for name in names}


def error(x: np.ndarray, truth: np.ndarray) -> float:
  """The largest error over the largest entry."""
  return float(np.abs(x.ravel() - truth.ravel()).max() / max(np.abs(truth).max(), 1e-12))


def errors(group: str, count: int, seed: int = 0) -> dict[str, list[float]]:
  """The errors by parameter in the states that remain."""
  text, names = GROUPS[group]
  m, rng = load(text), np.random.default_rng(seed)
  states = [random_state(m, rng, contacts=group == "contacts") for _ in range(count)]
  sizes = dict(qpos=m.nq, qvel=m.nv, act=m.na, qacc=m.nv)
  weights = {n: rng.normal(size=k).astype(np.float32).astype(float) for n, k in sizes.items()}
  got = gradients(m, states, names.split(), weights=weights)
  found: dict[str, list[float]] = {name: [] for name in got}
  for i, state in enumerate(states):
    truth = oracle.Oracle(m, state, weights)
    for name, x in got.items():
      want, other = (truth.parameter(name, eps) for eps in (1e-6, 2.5e-7))
      if error(other, want) < _KINK and np.abs(want).max() > 0:
        found[name].append(error(compared(m, name, x[i]), compared(m, name, want)))
  return found


def compared(m: mujoco.MjModel, name: str, x: np.ndarray) -> np.ndarray:
  """What of a gradient has a meaning.

  The part across an axis or a quaternion; and that by losses of friction that are not zero, where
  a constraint appears.
  """
  if name.endswith("frictionloss"):
    return x[getattr(m, name) > 0]
  if name not in ("jnt_axis", "body_quat", "body_iquat", "geom_quat"):
    return x
  unit = getattr(m, name)
  x = x.reshape(unit.shape)
  return x - unit * np.sum(x * unit, axis=1, keepdims=True)


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--states", type=int, default=10)
  parser.add_argument("groups", nargs="*", default=[])
  args = parser.parse_args()
  print("| parameter | model | error | states |")
  print("| --- | --- | --- | --- |")
  for group in args.groups or GROUPS:
    for name, found in errors(group, args.states).items():
      text = f"{np.median(found):.0e} ({np.percentile(found, 95):.0e})" if found else "-"
      print(f"| `{name}` | {group} | {text} | {len(found)} of {args.states} |", flush=True)


if __name__ == "__main__":
  main()
