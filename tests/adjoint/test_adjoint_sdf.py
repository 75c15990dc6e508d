"""Gradients of contacts with SDFs: the derivative of MuJoCo Warp's search for them.

Differences of C MuJoCo's contacts in float64 are the truth where it searches alike, and those of
the same search in `sdf_reference` elsewhere. In float32 some searches take another turn: their
contacts are left out. With -s a table is printed: for each pair the error of the derivative along a
random motion and its 95th percentile, the contacts compared, and how many of them jump within 0.1
mm.
"""

import copy
import functools

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from support import sdf_reference

SHAPES = {
  "plane": 'type="plane" size="2 2 .1"',
  "sphere": 'type="sphere" size=".15"',
  "capsule": 'type="capsule" size=".08 .17"',
  "ellipsoid": 'type="ellipsoid" size=".15 .2 .25"',
  "cylinder": 'type="cylinder" size=".15 .2"',
  "box": 'type="box" size=".15 .2 .25"',
  "sdf": 'type="sdf" mesh="brick"',
}
SEARCHED_IN_C = ("sphere", "capsule", "ellipsoid", "cylinder", "sdf")
LENGTHS = (1e-7, 3e-7)  # of the differences; they agree where there is no kink between
JUMP = 1e-4  # how far geoms move to see which contacts jump, in metres
OTHER = 3e-4  # of distances in metres and of normals: a search that went another way in float32
STAGES = (
  "kinematics comPos tendon makeM factorM collision makeConstraint transmission fwdVelocity "
  "fwdActuation fwdAcceleration fwdConstraint Euler"
).split()


@functools.cache
def scene(partner: str) -> mujoco.MjModel:
  m = mujoco.MjModel.from_xml_string(f"""<mujoco>
  <option sdf_iterations="4" sdf_initpoints="6" timestep=".004" tolerance="1e-10" iterations="50"/>
  <asset><mesh name="brick" scale=".1 .15 .2" vertex="1 1 1  1 1 -1  1 -1 1  1 -1 -1  -1 1 1
    -1 1 -1  -1 -1 1  -1 -1 -1"/></asset>
  <default><geom solimp=".5 .95 .01" density="500"/></default>
  <worldbody><geom {SHAPES[partner]} pos=".01 .02 .03" euler="3 5 7"/>
    <body><freejoint/><geom type="sdf" mesh="brick" pos=".02 .01 .03" euler="7 9 11"/></body>
  </worldbody></mujoco>""")
  m.geom_sameframe[:] = 0
  return m


def states(partner: str, count: int, seed: int = 0) -> np.ndarray:
  """Random poses (count, 7) in which there are contacts."""
  m, rng, out = scene(partner), np.random.default_rng(seed), []
  while len(out) < count:
    way = np.array([0, 0, 1.0]) if partner == "plane" else rng.normal(size=3)
    quat = rng.normal(size=4)
    pos = way / np.linalg.norm(way) * rng.uniform(0.1, 0.3)
    qpos = np.concatenate([pos, quat / np.linalg.norm(quat)]).astype(np.float32).astype(float)
    if (searched(m, qpos)[:, 0] < -1e-3).sum() > 2:
      out.append(qpos)
  return np.array(out)


def moved(m: mujoco.MjModel, qpos: np.ndarray, way: np.ndarray) -> tuple:
  """The scene with the body moved by way[:6], the other geom by way[6:12], its size by the rest."""
  m, qpos = copy.copy(m), qpos.copy()
  mujoco.mj_integratePos(m, qpos, way[:6], 1)
  m.geom_pos[0] += way[6:9]
  mujoco.mju_quatIntegrate(m.geom_quat[0], way[9:12], 1)
  m.geom_size[0] += way[12:]
  return m, qpos


def poses(m: mujoco.MjModel, qpos: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
  d = mujoco.MjData(m)
  d.qpos[:] = qpos
  mujoco.mj_kinematics(m, d)
  return [(d.geom_xpos[g].copy(), d.geom_xmat[g].reshape(3, 3).copy()) for g in (0, 1)]


def searched(m: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
  """The contacts of all starts in float64."""
  return sdf_reference.contacts(m, poses(m, qpos))


def in_c(m: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
  """C MuJoCo's contacts, on MuJoCo Warp's side of the points that it finds."""
  d = mujoco.MjData(m)
  d.qpos[:] = qpos
  mujoco.mj_kinematics(m, d)
  mujoco.mj_collision(m, d)
  rows = [np.concatenate([[c.dist], c.pos - c.frame[:3] * c.dist, c.frame[:3]]) for c in d.contact]
  return np.array(rows)


def slopes(partner: str, qpos: np.ndarray, way: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The contacts (count, 7) in float64 and their derivatives along a way; NaN at a kink."""
  m, find = scene(partner), in_c if partner in SEARCHED_IN_C else searched
  start, found = find(m, qpos), []
  for h in LENGTHS:
    ends = [find(*moved(m, qpos, sign * h * way)) for sign in (1, -1)]
    if any(len(end) != len(start) for end in ends):
      return start, np.full(start.shape, np.nan)
    found.append((ends[0] - ends[1]) / (2 * h))
  apart = np.abs(found[1] - found[0]).max(axis=1)
  kink = apart > 1e-5 * np.maximum(np.abs(found[0]).max(axis=1), 1)
  return start, np.where(kink[:, None], np.nan, found[0])


class Found:
  """MuJoCo Warp's contacts in some states, a world each, and their derivatives."""

  def __init__(self, partner: str, qpos: np.ndarray):
    self.m, self.qpos = scene(partner), qpos
    self.model = mjw.put_model(self.m)
    self.d = mjw.make_data(self.m, nworld=len(qpos), nconmax=20, njmax=100)
    self.d.qpos.assign(qpos.astype(np.float32))
    mjw.fwd_position(self.model, self.d)
    self.geometry = ContactGeometry(self.m, self.model, d=self.d)
    self.geometry.forward(self.d.geom_xpos, self.d.geom_xmat)
    contact, count = self.d.contact, int(self.d.nacon.numpy()[0])
    parts = (contact.dist.numpy()[:, None], contact.pos.numpy(), contact.frame.numpy()[:, 0])
    self.rows, self.world = np.hstack(parts)[:count], contact.worldid.numpy()[:count]

  def pulls(self, seeds: np.ndarray) -> list[np.ndarray]:
    """The gradients of sum(seeds * rows) by the geoms' positions, matrices and sizes."""
    d, model = self.d, self.model
    full = np.zeros((d.naconmax, 7), np.float32)
    full[: len(seeds)] = seeds
    frame = np.zeros((d.naconmax, 3, 3), np.float32)
    frame[:, 0] = full[:, 4:]
    out = [wp.zeros_like(x) for x in (d.geom_xpos, d.geom_xmat)]
    size = wp.zeros((d.nworld, model.ngeom), dtype=wp.vec3)
    self.geometry.backward(
      wp.array(full[:, 0].copy(), dtype=float),
      wp.array(full[:, 1:4].copy(), dtype=wp.vec3),
      grad_frame=wp.array(frame, dtype=wp.mat33),
      grad_geom_xpos=out[0],
      grad_geom_xmat=out[1],
      grad_geom_size=size,
    )
    return [x.numpy().astype(float) for x in (*out, size)]

  def along(self, way: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """The derivative of seeds . row of each contact."""
    motion = []
    for qpos in self.qpos:
      ends = [poses(*moved(self.m, qpos, sign * 1e-6 * way)) for sign in (1, -1)]
      motion.append(
        [[(a - b) / 2e-6 for a, b in zip(*g, strict=True)] for g in zip(*ends, strict=True)]
      )
    out = np.zeros(len(self.rows))
    rank = np.array([np.sum(self.world[:i] == w) for i, w in enumerate(self.world)])
    for k in range(rank.max() + 1):
      mine = rank == k
      pos, mat, size = self.pulls(np.where(mine[:, None], seeds, 0))
      for i in np.flatnonzero(mine):
        w = self.world[i]
        out[i] = sum(
          np.sum(pos[w, g] * motion[w][g][0]) + np.sum(mat[w, g] * motion[w][g][1]) for g in (0, 1)
        )
        out[i] += size[w % len(size), 0] @ way[12:]
    return out


@pytest.mark.parametrize("partner", SEARCHED_IN_C)
def test_the_reference_searches_as_c_mujoco_does(partner):
  m = scene(partner)
  apart = []
  for qpos in states(partner, 3):
    ours, theirs = searched(m, qpos), in_c(m, qpos)
    assert len(theirs) == (ours[:, 0] < 0).sum()
    apart += [np.abs(ours - row).max(axis=1).min() for row in theirs]
  assert np.mean(np.array(apart) < 1e-8) > 0.8  # a few turn elsewhere, at the edge of an octree


def jumps_within(partner: str, qpos: np.ndarray, way: np.ndarray, k: int) -> bool:
  """Whether a contact's search turns elsewhere on a way of some length."""
  m, find = scene(partner), in_c if partner in SEARCHED_IN_C else searched
  start, half, end = (find(*moved(m, qpos, share * way)) for share in (0, 0.5, 1))
  if len({len(x) for x in (start, half, end)}) > 1:
    return True
  bend = np.abs(start[k] - 2 * half[k] + end[k]).max()
  return bool(bend > 0.05 * np.abs(end[k] - start[k]).max())


@pytest.mark.parametrize("partner", SHAPES)
def test_a_contact_of_an_sdf_has_the_derivative_of_the_search(partner, rng):
  qpos = states(partner, 4)
  found = Found(partner, qpos)
  assert found.geometry.unsupported == ()
  np.testing.assert_allclose(found.geometry.dist.numpy()[: len(found.rows)], found.rows[:, 0])
  way, seeds = rng.normal(size=15), rng.normal(size=found.rows.shape)
  got, errors, jumps = found.along(way, seeds), [], []
  for w, q in enumerate(qpos):
    rows, want = slopes(partner, q, way)
    for i in np.flatnonzero(found.world == w):
      k = np.abs(rows - found.rows[i]).max(axis=1).argmin()
      if np.abs(rows[k] - found.rows[i]).max() < OTHER and np.isfinite(want[k]).all():
        errors.append(abs(got[i] - seeds[i] @ want[k]) / np.abs(seeds[i] * want[k]).max())
        jumps.append(jumps_within(partner, q, JUMP * way / np.linalg.norm(way), k))
  print(f"| {partner}-sdf | {np.median(errors):.0e} ({np.quantile(errors, 0.95):.0e})", end=" ")
  print(f"| {len(errors)} of {len(got)} | {np.sum(jumps)} of {len(errors)} |")
  assert len(errors) > len(got) / 2
  # the points of the search are as exact as float32 takes them, times what a step stretches
  assert np.median(errors) < 1e-3 and np.quantile(errors, 0.8) < 2e-2


def step_in_c(m: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
  """The next velocities, with the contacts on MuJoCo Warp's side of the points."""
  d = mujoco.MjData(m)
  d.qpos[:], d.qvel[:] = qpos, qvel
  for stage in STAGES:
    getattr(mujoco, f"mj_{stage}")(m, d)
    if stage == "collision":
      for c in d.contact:
        c.pos[:] -= c.frame[:3] * c.dist
  return d.qvel


def differences(m: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, weight: np.ndarray):
  """The gradient of weight . next velocities by the tangent of qpos, qvel, and the first size."""
  found = []
  for h in LENGTHS:
    out = []
    for way in h * np.eye(13):
      where = np.concatenate([way[:6], np.zeros(6), way[12:], np.zeros(2)])
      ends = [step_in_c(*moved(m, qpos, sign * where), qvel + sign * way[6:12]) for sign in (1, -1)]
      out.append(weight @ (ends[0] - ends[1]) / (2 * h))
    found.append(np.array(out))
  return found


@pytest.mark.parametrize("partner", ["sphere", "capsule", "sdf"])
def test_a_step_through_contacts_of_an_sdf_has_the_gradient_of_c_mujocos(partner, rng):
  m, start = scene(partner), states(partner, 6)
  model = mjx.put_model(m)
  d = mjx.make_data(m)
  qvel = rng.normal(size=(6, 6)).astype(np.float32).astype(float)
  weight = rng.normal(size=6)

  def loss(qpos, qvel, size):
    sized = model.replace(geom_size=model.geom_size.at[0, 0].set(size))
    after = mjx.step(sized, d.replace(qpos=qpos, qvel=qvel)).qvel
    return jnp.vdot(weight.astype(np.float32), after), after

  gradient = jax.jit(jax.vmap(jax.grad(loss, (0, 1, 2), has_aux=True), (0, 0, None)))
  size = np.float32(m.geom_size[0, 0])
  (by_qpos, *rest), after = gradient(start.astype(np.float32), qvel.astype(np.float32), size)
  errors = []
  for i in range(6):
    want = differences(m, start[i], qvel[i], weight)
    scale = np.abs(want[0]).max()
    exact = step_in_c(m, start[i], qvel[i])
    if np.abs(want[1] - want[0]).max() > 1e-3 * scale:
      continue
    if np.abs(after[i] - exact).max() > 1e-3 * np.abs(exact).max():
      continue
    tangent = []
    for way in 1e-6 * np.eye(6):
      ends = [start[i].copy(), start[i].copy()]
      for x, sign in zip(ends, (1, -1), strict=True):
        mujoco.mj_integratePos(m, x, sign * way, 1)
      tangent.append(np.asarray(by_qpos[i], float) @ (ends[0] - ends[1]) / 2e-6)
    got = np.concatenate([tangent, rest[0][i], rest[1][i : i + 1]])
    if partner == "sdf":  # its size is that of the mesh
      assert got[12] == 0
    errors.append(np.abs(got - want[0]).max() / scale)
  assert len(errors) >= 2
  assert np.median(errors) < 3e-3
