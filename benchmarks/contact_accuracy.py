"""The error of jax.grad through a contact against float64 differences of C MuJoCo, as a table.

The function is a random linear one of the next position and velocity of two bodies that touch, for
every pair of geoms, cone and condim. An entry has, over random states, the median and in brackets
the 95th percentile of the largest error of the gradient over its largest entry, of that by
positions or by velocities, whichever is worse. Left out are states at a kink, where two lengths of
the differences disagree, and those in which MuJoCo Warp finds other contacts than C MuJoCo; the
last column says how many of all remain.

Examples:
  python benchmarks/contact_accuracy.py
  python benchmarks/contact_accuracy.py --states 50 --condims 3 box-box hfield-mesh
  python benchmarks/contact_accuracy.py --unexplained --states 200 cylinder-box

With --unexplained it prints how many of the states have NaN: contacts of MuJoCo Warp that no
features of the geoms explain.
"""

import argparse
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from contact_scenes import (
  PAIRS,
  State,
  at_rest,
  error,
  exact,
  is_iterative,
  names_of,
  random_state,
  scene,
  truth,
)

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli.grad_check import tangent

_KINK = 1e-3  # disagreement of differences at two lengths
_OTHER = 1e-3  # of the velocities after a step, relative: MuJoCo Warp found other contacts
_OTHER_CURVED = 5e-3  # the same contacts of curved geoms, to the tolerance of its collision
_FIELDS = ("qpos", "qvel", "mocap_pos", "mocap_quat", "weight_qpos", "weight_qvel")
CONES = ("pyramidal", "elliptic")


def coordinates(m: mujoco.MjModel, pair: tuple[str, str]) -> tuple[list[int], list[int]]:
  """The places of a pair's free bodies in qpos and in qvel."""
  bodies = [m.body(name) for name in names_of(pair)]
  free = [body for body in bodies if body.mocapid[0] < 0]
  qpos = [m.jnt_qposadr[body.jntadr[0]] + i for body in free for i in range(7)]
  return qpos, [body.dofadr[0] + i for body in free for i in range(6)]


def embedded(m: mujoco.MjModel, s: State) -> State:
  """A state of a pair's own scene in that of all pairs."""
  out = at_rest(m, s.pair)
  qpos, qvel = coordinates(m, s.pair)
  out.qpos[qpos], out.weight_qpos[qpos] = s.qpos, s.weight_qpos
  out.qvel[qvel], out.weight_qvel[qvel] = s.qvel, s.weight_qvel
  if s.mocap_pos.size:
    out.place(m, s.pair[0], s.mocap_pos[0], s.mocap_quat[0])
  return out


def ours(m: mujoco.MjModel, states: Sequence[State]) -> tuple[dict[str, np.ndarray], np.ndarray]:
  """The gradients by JAX, those of qpos in coordinates, and the next velocities."""
  model, d = mjx.put_model(m), mjx.make_data(m, nconmax=32, njmax=160)

  def loss(moving: dict, s: dict) -> tuple[jax.Array, jax.Array]:
    fixed = {n: s[n] for n in ("mocap_pos", "mocap_quat")}
    after = mjx.step(model, d.replace(**moving, **fixed))
    value = jnp.vdot(s["weight_qpos"], after.qpos) + jnp.vdot(s["weight_qvel"], after.qvel)
    return value, after.qvel

  s = {n: jnp.asarray(np.stack([getattr(x, n) for x in states]), jnp.float32) for n in _FIELDS}
  moving = {n: s[n] for n in ("qpos", "qvel")}
  got, qvel = jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))(moving, s)
  return {n: np.asarray(x, float) for n, x in got.items()}, np.asarray(qvel, float)


def errors(
  cone: str, condim: int, *, pairs: Sequence[tuple[str, str]], count: int, seed: int = 0
) -> dict[tuple[str, str], list[float]]:
  """The errors of every pair in the states that remain."""
  own = {pair: exact(scene(cone, condim, (pair,))) for pair in pairs}
  states = []
  for pair in pairs:
    rng = np.random.default_rng([seed, PAIRS.index(pair)])
    states += [random_state(own[pair], pair, rng) for _ in range(count)]
  everything = scene(cone, condim, tuple(pairs))
  got, velocities = ours(everything, [embedded(everything, s) for s in states])
  found: dict[tuple[str, str], list[float]] = {pair: [] for pair in pairs}
  for i, s in enumerate(states):
    m = own[s.pair]
    want, noise, qvel = truth(m, s)
    at_q, at_v = coordinates(everything, s.pair)
    other = _OTHER_CURVED if is_iterative(s.pair) else _OTHER
    if noise > _KINK or error(velocities[i, at_v], qvel) > other:
      continue
    mine = {"qpos": tangent(m, s.qpos, gradient=got["qpos"][i, at_q]), "qvel": got["qvel"][i, at_v]}
    found[s.pair].append(max(error(mine[n], want[n]) for n in want))
  return found


def unexplained(pair: tuple[str, str], count: int) -> int:
  """How many of the states of a pair have NaN for a gradient."""
  m = scene("pyramidal", 3, (pair,))
  rng = np.random.default_rng(PAIRS.index(pair))
  got, _ = ours(m, [random_state(exact(m), pair, rng) for _ in range(count)])
  return int(np.isnan(got["qpos"]).any(axis=1).sum())


def cell(found: Sequence[float]) -> str:
  """The median and the 95th percentile."""
  return f"{np.median(found):.0e} ({np.percentile(found, 95):.0e})" if found else "-"


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--states", type=int, default=20, help="of every entry")
  parser.add_argument("--condims", type=int, nargs="+", default=[1, 3, 4, 6])
  parser.add_argument("--cones", nargs="+", default=list(CONES))
  parser.add_argument("--unexplained", action="store_true", help="count the NaN instead")
  parser.add_argument("pairs", nargs="*", help="such as box-mesh; all of them by default")
  args = parser.parse_args()
  pairs = [pair for pair in PAIRS if not args.pairs or "-".join(pair) in args.pairs]
  if args.unexplained:
    for pair in pairs:
      print(f"{'-'.join(pair)}: {unexplained(pair, args.states)} of {args.states}", flush=True)
    return
  columns = [(cone, condim) for cone in args.cones for condim in args.condims]
  table = [errors(*column, pairs=pairs, count=args.states) for column in columns]
  print("| pair |", " | ".join(f"{cone[:-2]} {condim}" for cone, condim in columns), "| states |")
  print("| --- " * (len(columns) + 2) + "|")
  for pair in pairs:
    cells = " | ".join(cell(found[pair]) for found in table)
    left = sum(len(found[pair]) for found in table)
    print(f"| {'-'.join(pair)} | {cells} | {left} of {args.states * len(columns)} |", flush=True)


if __name__ == "__main__":
  main()
