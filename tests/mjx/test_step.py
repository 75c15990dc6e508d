"""The step against C MuJoCo, for every model, alone and in batches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers

STEPS = 100


@dataclasses.dataclass(frozen=True)
class Case:
  """A model and what its comparison with C MuJoCo allows.

  Attributes:
    model: name of the model.
    nconmax: contacts of a world.
    njmax: constraint rows of a world.
    steps: how long C MuJoCo and MuJoCo Warp see the same contacts; after that their collisions
      differ (box-box and convex pairs have other points), and with them the motion.
    tolerance: largest error of positions and velocities, relative to the largest of them.
  """

  model: str
  nconmax: int = 16
  njmax: int = 96
  steps: int = STEPS
  tolerance: float = 2e-5


# float32 has 6e-8; over 100 steps of smooth motion errors of 2e-5 are some hundred roundings.
CASES = (
  Case("arm"),
  Case("cartpole"),
  Case("double_pendulum"),
  Case("drives", tolerance=2e-4),
  # mujoco_warp's `implicit` leaves a fluid term of ellipsoids out of the derivative of velocity
  Case("gyroscope", tolerance=2e-3),
  # stiff tendons and limits: the solver's tolerance of 1e-6 shows
  Case("hand", tolerance=2e-4),
  Case("hopper", tolerance=2e-4),
  # contacts: an error of 1e-6 at the start grows 100 times in C MuJoCo itself
  Case("humanoid", nconmax=24, tolerance=5e-4),
  Case("muscle_arm"),
  # box-box contacts from the first step on: see the tests of contacts below
  Case("pile", nconmax=48, njmax=192, steps=1, tolerance=2e-2),
  # CG stops at a tolerance of 1e-6, C MuJoCo at 1e-8
  Case("point_mass", tolerance=1e-3),
  Case("quadruped", tolerance=2e-4),
  Case("quadruped_terrain", nconmax=32, njmax=192, tolerance=2e-4),
  Case("terrain", nconmax=48, njmax=256, steps=10),
  Case("throw", tolerance=2e-4),
)
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)


@functools.cache
def load(name: str) -> mujoco.MjModel:
  """A model of the project."""
  return mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))


def start(mj_model: mujoco.MjModel, seed: int) -> mujoco.MjData:
  """A state near the first keyframe, or the default, with small velocities and controls."""
  rng = np.random.default_rng(seed)
  d = mujoco.MjData(mj_model)
  if mj_model.nkey:
    mujoco.mj_resetDataKeyframe(mj_model, d, 0)
  d.qvel += 0.1 * rng.standard_normal(mj_model.nv)
  d.ctrl += 0.1 * rng.uniform(-1, 1, mj_model.nu)
  return d


def put(case: Case, d: mujoco.MjData) -> mjx.Data:
  """The Data of a state, with the capacities of the case."""
  data = mjx.make_data(load(case.model), nconmax=case.nconmax, njmax=case.njmax)
  names = ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat", "eq_active", "time")
  return data.replace(**{n: getattr(d, n) for n in names})


def trajectory_c(mj_model: mujoco.MjModel, d: mujoco.MjData, steps: int) -> np.ndarray:
  """Positions, velocities and activations of C MuJoCo, (steps, nq + nv + na)."""
  rows = []
  for _ in range(steps):
    mujoco.mj_step(mj_model, d)
    rows.append(np.concatenate([d.qpos, d.qvel, d.act]))
  return np.array(rows)


def scan(m: mjx.Model, d: mjx.Data, steps: int) -> tuple[mjx.Data, jax.Array]:
  """The same of one world of this package."""

  def body(d: mjx.Data, _: None) -> tuple[mjx.Data, jax.Array]:
    d = mjx.step(m, d)
    return d, jnp.concatenate([d.qpos, d.qvel, d.act])

  return jax.lax.scan(body, d, None, length=steps)


def relative_error(got: jax.Array, expected: np.ndarray) -> float:
  """The largest error, relative to the largest entry or to 1."""
  return float(np.max(np.abs(np.asarray(got) - expected)) / max(1.0, np.abs(expected).max()))


@by_name
def test_one_world_follows_c_mujoco(case: Case):
  mj_model = load(case.model)
  c = start(mj_model, seed=0)
  m, d = mjx.put_model(mj_model), put(case, c)
  final, got = jax.jit(scan, static_argnums=2)(m, d, case.steps)
  expected = trajectory_c(mj_model, c, case.steps)
  assert relative_error(got, expected) <= case.tolerance
  assert int(final.warning) == 0
  assert float(final.time) == pytest.approx(c.time, rel=1e-5)  # a sum of 100 float32 steps


@by_name
def test_a_batch_of_sixteen_follows_sixteen_runs_of_c_mujoco(case: Case):
  mj_model = load(case.model)
  steps = min(case.steps, 20)
  states = [start(mj_model, seed) for seed in range(16)]
  m = mjx.put_model(mj_model)
  batch = jax.tree.map(lambda *x: jnp.stack(x), *[put(case, c) for c in states])
  _, got = jax.jit(jax.vmap(scan, in_axes=(None, 0, None)), static_argnums=2)(m, batch, steps)
  expected = np.array([trajectory_c(mj_model, c, steps) for c in states])
  assert relative_error(got, expected) <= case.tolerance


@by_name
def test_a_world_in_a_batch_equals_the_same_world_alone(case: Case):
  mj_model = load(case.model)
  steps = min(case.steps, 5)
  m = mjx.put_model(mj_model)
  worlds = [put(case, start(mj_model, seed)) for seed in range(16)]
  batch = jax.tree.map(lambda *x: jnp.stack(x), *worlds)
  many, _ = jax.jit(jax.vmap(scan, in_axes=(None, 0, None)), static_argnums=2)(m, batch, steps)
  one, _ = jax.jit(scan, static_argnums=2)(m, worlds[3], steps)
  third = jax.tree.map(lambda x: x[3], many)
  scale = max(1.0, float(jnp.abs(one.qvel).max()))
  # the order in which threads add to a sum is the only difference
  np.testing.assert_allclose(third.qpos, one.qpos, atol=1e-5 * scale)
  np.testing.assert_allclose(third.qvel, one.qvel, atol=1e-4 * scale)
  assert int(third.ncon) == int(one.ncon)


# What C MuJoCo computes in a different order or only for its own use.
_NOT_COMPARED = ("solver_niter", "overflow", "qacc_warmstart", "history", "tree_asleep")
# Accelerations and forces are sums of large terms.
_RELATIVE = 2e-3


@by_name
def test_no_field_of_data_is_stale(case: Case):
  mj_model = load(case.model)
  c = start(mj_model, seed=1)
  m, d = mjx.put_model(mj_model), put(case, c)
  for _ in range(min(case.steps, 3)):
    mujoco.mj_step(mj_model, c)
    d = jax.jit(mjx.step)(m, d)
  c_again = mjx.put_data(mj_model, c, nconmax=case.nconmax, njmax=case.njmax)
  contacts_agree = int(d.ncon) == c.ncon
  for name in type(d).__dataclass_fields__:
    if name in ("sizes", "contact", "warning", *_NOT_COMPARED):
      continue
    expected, got = np.asarray(getattr(c_again, name)), np.asarray(getattr(d, name))
    if got.dtype == np.int32 and not contacts_agree:
      continue  # counts of contacts and rows that the two find differently
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(got, expected, atol=_RELATIVE * scale, err_msg=name)


def test_a_pile_settles_where_that_of_c_mujoco_does():
  mj_model = load("pile")
  case = next(c for c in CASES if c.model == "pile")
  c = start(mj_model, seed=0)
  m, d = mjx.put_model(mj_model), put(case, c)
  d, _ = jax.jit(scan, static_argnums=2)(m, d, 200)
  trajectory_c(mj_model, c, 200)
  # boxes of 10 cm: other contact points, found a step earlier or later, move them by under 1 mm
  np.testing.assert_allclose(d.xpos, c.xpos, atol=1e-3)
  mujoco.mj_forward(mj_model, c)
  same = mjx.forward(m, put(case, c))
  scale = float(np.linalg.norm(c.qfrc_constraint))
  assert np.linalg.norm(np.asarray(same.qfrc_constraint) - c.qfrc_constraint) < 0.05 * scale


def test_contacts_equal_those_of_c_mujoco_as_a_set():
  mj_model = load("humanoid")
  c = mujoco.MjData(mj_model)
  for _ in range(60):
    mujoco.mj_step(mj_model, c)
  mujoco.mj_forward(mj_model, c)
  m = mjx.put_model(mj_model)
  d = mjx.forward(m, mjx.make_data(m, nconmax=24, njmax=96).replace(qpos=c.qpos, qvel=c.qvel))
  n = int(d.ncon)
  assert n == c.ncon > 4
  order = np.lexsort(np.column_stack([np.round(c.contact.pos, 4), c.contact.geom]).T[::-1])
  rows = np.column_stack([np.round(d.contact.pos[:n], 4), d.contact.geom[:n]])
  ours = np.lexsort(rows.T[::-1])
  for name in ("dist", "pos", "includemargin", "friction", "solref", "solimp", "dim", "geom"):
    got = np.asarray(getattr(d.contact, name))[:n][ours]
    np.testing.assert_allclose(got, getattr(c.contact, name)[order], atol=2e-6, err_msg=name)
  frame = np.asarray(d.contact.frame)[:n][ours].reshape(n, 9)
  np.testing.assert_allclose(frame, c.contact.frame[order], atol=2e-5)
  assert np.all(np.asarray(d.contact.dist)[n:] == 1)
  assert np.all(np.asarray(d.contact.geom)[n:] == -1)


def test_box_contacts_have_the_depth_and_normal_of_c_mujoco():
  mj_model = load("pile")
  c = start(mj_model, seed=0)
  for _ in range(200):
    mujoco.mj_step(mj_model, c)
  mujoco.mj_forward(mj_model, c)
  m = mjx.put_model(mj_model)
  d = mjx.forward(m, mjx.make_data(m, nconmax=48, njmax=192).replace(qpos=c.qpos, qvel=c.qvel))
  deepest = {}
  for con in c.contact:
    pair = tuple(con.geom)
    deepest[pair] = min(deepest.get(pair, (np.inf, None)), (con.dist, tuple(con.frame[:3])))
  n, checked = int(d.ncon), 0
  for pair, (dist, normal) in deepest.items():
    mine = [i for i in range(n) if tuple(np.asarray(d.contact.geom[i])) == pair]
    if not mine or dist > -1e-4:
      continue
    i = min(mine, key=lambda i: float(d.contact.dist[i]))
    assert float(d.contact.dist[i]) == pytest.approx(dist, abs=2e-4), pair  # EPA's tolerance
    assert float(np.dot(d.contact.frame[i, 0], normal)) > 0.999, pair
    checked += 1
  assert checked >= 3
