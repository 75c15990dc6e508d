"""Contacts of bodies that rest on each other, where faces are parallel within a thousandth."""

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from support.helpers import model_path

STEP = 5e-5  # of the differences, in metres: MJWarp's distances are good to 1e-8


class Rest:
  """Worlds in which the bodies of a model came to rest, and the contacts that MJWarp finds."""

  def __init__(self, mjm: mujoco.MjModel, count: int, *, steps: int, sink: float = 0.0):
    rng = np.random.default_rng(0)
    states = []
    for _ in range(count):
      data = mujoco.MjData(mjm)
      mujoco.mj_integratePos(mjm, data.qpos, 0.1 * rng.normal(size=mjm.nv), 1)
      data.qvel[:] = 0.5 * rng.normal(size=mjm.nv)
      for _ in range(steps):
        mujoco.mj_step(mjm, data)
      data.qpos[2::7] -= sink
      states.append(data.qpos.copy())
    self.m = mjw.put_model(mjm)
    self.d = mjw.make_data(mjm, nworld=count, nconmax=60, njmax=300)
    self.d.qpos.assign(np.stack(states))
    mjw.fwd_position(self.m, self.d)
    self.geometry = ContactGeometry(mjm, self.m, self.d)
    self.geometry.forward(self.d.geom_xpos, self.d.geom_xmat)
    self.geom, self.world, self.rows = self.found()
    dist, pos = self.geometry.dist.numpy(), self.geometry.pos.numpy()
    self.recomputed = np.concatenate([dist[:, None], pos], axis=1)[: len(self.rows)]

  def found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The geoms, the world and (dist, pos) of MJWarp's contacts."""
    contact, count = self.d.contact, int(self.d.nacon.numpy()[0])
    rows = np.concatenate([contact.dist.numpy()[:, None], contact.pos.numpy()], axis=1)
    world, geom = contact.worldid.numpy()[:count].copy(), contact.geom.numpy()[:count].copy()
    return geom, world, rows[:count]

  def moved(self, way: np.ndarray, length: float) -> np.ndarray:
    """The same contacts (n, 4) with all geoms moved along `way`; NaN where they are others."""
    start = self.d.geom_xpos.numpy().copy()
    self.d.geom_xpos.assign((start + length * way).astype(np.float32))
    mjw.collision(self.m, self.d)
    geom, world, rows = self.found()
    self.d.geom_xpos.assign(start)
    result = np.full(self.rows.shape, np.nan)
    for i, row in enumerate(self.rows):
      same = rows[(world == self.world[i]) & (geom == self.geom[i]).all(axis=1)]
      away = np.linalg.norm(same[:, 1:] - row[1:], axis=1)
      if len(away) and away.min() < 20 * abs(length):
        result[i] = same[away.argmin()]
    return result

  def along(self, way: np.ndarray) -> np.ndarray:
    """The derivatives (n, 4) of the contacts along `way`."""
    index = np.array([np.sum(self.world[:i] == w) for i, w in enumerate(self.world)])
    result = np.zeros(self.rows.shape)
    for j in range(index.max() + 1):
      for output in range(4):
        seed = np.zeros((self.d.naconmax, 4))
        seed[np.flatnonzero(index == j), output] = 1
        grads = wp.zeros_like(self.d.geom_xpos), wp.zeros_like(self.d.geom_xmat)
        self.geometry.backward(
          wp.array(seed[:, 0], dtype=float),
          wp.array(seed[:, 1:], dtype=wp.vec3),
          grad_frame=wp.zeros_like(self.geometry.frame),
          grad_geom_xpos=grads[0],
          grad_geom_xmat=grads[1],
        )
        chosen = index == j
        slope = np.sum(grads[0].numpy() * way, axis=(1, 2))
        result[chosen, output] = slope[self.world[chosen]]
    return result


def terrain() -> mujoco.MjModel:
  """Two meshes, a box, a capsule and a ball on a height field."""
  return mujoco.MjModel.from_xml_path(str(model_path("terrain")))


def test_every_contact_on_a_height_field_has_a_rule_that_gives_its_value():
  """EPA stops there at whatever triangle of vertices is within its tolerance."""
  rest = Rest(terrain(), count=8, steps=150)
  assert len(rest.rows) > 80
  np.testing.assert_allclose(rest.recomputed, rest.rows, atol=2e-6)
  assert np.isfinite(rest.along(np.zeros(rest.d.geom_xpos.numpy().shape))).all()


def test_contacts_on_a_height_field_move_as_those_of_mjwarp(rng):
  """EPA may take another triangle a step further on, hence no maximum."""
  rest = Rest(terrain(), count=8, steps=150, sink=2e-3)
  way = rng.normal(size=rest.d.geom_xpos.numpy().shape)
  way[:, 0] = 0  # the field stays
  got = rest.along(way)  # before the pool holds the contacts of other poses
  rows = [rest.moved(way, sign * STEP) for sign in (1, -1)]
  truth = (rows[0] - rows[1]) / (2 * STEP)
  kept = np.isfinite(truth).all(axis=1)
  assert kept.mean() > 0.8
  errors = np.abs(got - truth)[kept]
  assert np.quantile(errors[:, 0], 0.9) < 1e-3
  assert np.quantile(errors[:, 1:], 0.9) < 5e-3  # of positions, known to 6e-8


@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_deep_contacts_on_a_height_field_are_those_of_mjwarp(margin):
  """Where it measures along the vertical."""
  mjm = terrain()
  mjm.geom_margin[:] = margin
  rest = Rest(mjm, count=6, steps=0, sink=0.12)
  ball = rest.geom[:, 1] == mujoco.mj_name2id(mjm, mujoco.mjtObj.mjOBJ_GEOM, "ball")
  assert np.sum(ball & (rest.rows[:, 0] < -0.08)) > 3
  np.testing.assert_allclose(rest.recomputed[ball], rest.rows[ball], atol=2e-4)
  assert np.isfinite(rest.along(np.zeros(rest.d.geom_xpos.numpy().shape))[ball]).all()
