"""Gradients of contacts and distances, against float64 central differences of C MuJoCo."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import adjoint_models as models
from support import adjoint_oracle as oracle

# A force has the error of the acceleration, float32, times the stiffness of its rows.
TOLERANCE = {"dist": 1e-5, "pos": 1e-5, "frame": 1e-4, "force": 1e-3}


@functools.cache
def model(cone: int = 0) -> mujoco.MjModel:
  mj_model = mujoco.MjModel.from_xml_string(models.CONTACTS.format(condim=3))
  mj_model.opt.cone = cone
  return oracle.tighten(mj_model)


@functools.cache
def touching(cone: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """A state in which bodies touch, still moving."""
  mj_model, rng = model(cone), np.random.default_rng(1)
  data = mujoco.MjData(mj_model)
  mujoco.mj_integratePos(mj_model, data.qpos, 0.02 * rng.normal(size=mj_model.nv), 1.0)
  data.qvel[:] = 0.3 * rng.normal(size=mj_model.nv)
  for _ in range(5):
    mujoco.mj_step(mj_model, data)
  return data.qpos.astype(np.float32), data.qvel.astype(np.float32)


def contacts(mj_model, data) -> dict[tuple, dict[str, np.ndarray]]:
  """C MuJoCo's contacts by their geoms and place among those of these geoms."""
  found: dict[tuple, dict[str, np.ndarray]] = {}
  for i in range(data.ncon):
    con, force = data.contact[i], np.zeros(6)
    mujoco.mj_contactForce(mj_model, data, i, force)
    pair = tuple(int(g) for g in con.geom)
    k = sum(key[:2] == pair for key in found)
    values = dict(dist=con.dist, pos=con.pos, frame=con.frame.reshape(3, 3), force=force)
    found[*pair, k] = {name: np.array(x) for name, x in values.items()}
  return found


def matches(mj_model, data, d) -> list[tuple]:
  """For each contact of a Data the key of C MuJoCo's contact at the same place."""
  found, out = contacts(mj_model, data), []
  for i in range(int(d.ncon)):
    pair = tuple(int(g) for g in d.contact.geom[i])
    near = {
      k: np.linalg.norm(x["pos"] - d.contact.pos[i]) for k, x in found.items() if k[:2] == pair
    }
    key = min(near, key=near.get)
    assert near[key] < 1e-4
    out.append(key)
  assert len(set(out)) == len(found)
  return out


def directions(mj_model, rng, count=6):
  return rng.standard_normal((count, mj_model.nv))


@pytest.mark.parametrize("name", ["dist", "pos", "frame"])
def test_the_geometry_of_contacts_has_the_gradient_of_differences(name, rng):
  mj_model = model()
  qpos, qvel = touching()
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m).replace(qpos=qpos, qvel=qvel)
  after, data = mjx.forward(m, d), mujoco.MjData(mj_model)
  data.qpos[:], data.qvel[:] = qpos, qvel
  mujoco.mj_forward(mj_model, data)
  keys = matches(mj_model, data, after)
  weights = rng.standard_normal(getattr(after.contact, name).shape).astype(np.float32)

  def loss(q: jax.Array) -> jax.Array:
    return jnp.sum(weights * getattr(mjx.forward(m, d.replace(qpos=q)).contact, name))

  def loss_c(q: np.ndarray) -> float:
    data.qpos[:] = q
    mujoco.mj_forward(mj_model, data)
    found = contacts(mj_model, data)
    return float(sum(np.sum(weights[i] * found[k][name]) for i, k in enumerate(keys)))

  _compare(mj_model, jax.grad(loss)(d.qpos), loss_c, q=qpos, rng=rng, tolerance=TOLERANCE[name])


def _compare(mj_model, gradient, loss_c, *, q, rng, tolerance):
  """Along random displacements in the tangent space."""
  errors, scale, h = [], 0.0, 1e-6
  for direction in directions(mj_model, rng):
    moved = [np.array(q, float) for _ in range(2)]
    for x, sign in zip(moved, (1, -1), strict=True):
      mujoco.mj_integratePos(mj_model, x, sign * h * direction, 1.0)
    expected = (loss_c(moved[0]) - loss_c(moved[1])) / (2 * h)
    tangent = (moved[0] - moved[1]) / (2 * h)
    errors.append(abs(np.dot(np.asarray(gradient, float), tangent) - expected))
    scale = max(scale, abs(expected))
  assert scale > 1e-2
  assert max(errors) < tolerance * scale, max(errors) / scale


@pytest.mark.parametrize("cone", [0, 1])
@pytest.mark.parametrize("to_world_frame", [False, True])
def test_forces_of_contacts_have_the_gradient_of_differences(cone, to_world_frame, rng):
  mj_model = model(cone)
  qpos, qvel = touching(cone)
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m).replace(qpos=qpos, qvel=qvel)
  data = mujoco.MjData(mj_model)
  data.qpos[:], data.qvel[:] = qpos, qvel
  mujoco.mj_forward(mj_model, data)
  keys = matches(mj_model, data, mjx.forward(m, d))
  weights = rng.standard_normal((d.sizes.nconmax, 6)).astype(np.float32)

  def loss(q: jax.Array) -> jax.Array:
    return jnp.sum(weights * mjx.contact_force(m, d.replace(qpos=q), None, to_world_frame))

  def loss_c(q: np.ndarray) -> float:
    data.qpos[:] = q
    mujoco.mj_forward(mj_model, data)
    total = 0.0
    for i, key in enumerate(keys):
      found = contacts(mj_model, data)[key]
      force = found["force"].reshape(2, 3)
      total += np.sum(
        weights[i].reshape(2, 3) * (force @ found["frame"] if to_world_frame else force)
      )
    return float(total)

  np.testing.assert_allclose(loss(d.qpos), loss_c(np.array(qpos, float)), rtol=1e-3)
  gradient = jax.grad(loss)(d.qpos)
  _compare(mj_model, gradient, loss_c, q=qpos, rng=rng, tolerance=TOLERANCE["force"])
