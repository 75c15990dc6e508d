"""An MjData fetched from a Data equals C MuJoCo's own, contacts and constraint rows included."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data import fields
from support.helpers import MODELS, model_path

NAMES = sorted(path.stem for path in MODELS.glob("*.xml"))

# What a Data does not hold; MuJoCo computes it.
MATRICES = ("M", "qLD", "ten_J", "actuator_moment")
ROWS = ("efc_pos", "efc_margin", "efc_D", "efc_aref", "efc_vel", "efc_frictionloss", "efc_force")


def load(name: str) -> mujoco.MjModel:
  mj_model = mujoco.MjModel.from_xml_path(str(model_path(name)))
  mj_model.opt.tolerance, mj_model.opt.iterations = 0, 50  # float32 stops later than C
  return mj_model


def moving(mj_model: mujoco.MjModel, steps: int = 60) -> mujoco.MjData:
  data = mujoco.MjData(mj_model)
  data.qvel[:] = np.random.default_rng(0).normal(0, 0.1, mj_model.nv)
  data.ctrl[:] = 0.1
  for _ in range(steps):
    mujoco.mj_step(mj_model, data)
  for field in ("qpos", "qvel", "act", "qacc_warmstart"):
    getattr(data, field)[:] = getattr(data, field).astype(np.float32)
  return data


def dense_rows(mj_model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
  if not mujoco.mj_isSparse(mj_model):
    return np.array(data.efc_J).reshape(data.nefc, mj_model.nv)
  dense = np.zeros((data.nefc, mj_model.nv))
  pattern = (data.efc_J_rownnz, data.efc_J_rowadr, np.ravel(data.efc_J_colind))
  mujoco.mju_sparse2dense(dense, np.ravel(data.efc_J), *pattern)
  return dense


def assert_close(got, expected, tolerance, name=""):
  got, expected = np.asarray(got, float).ravel(), np.asarray(expected, float).ravel()
  scale = max(1.0, np.abs(expected).max(initial=0))
  np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_put_comes_back(name):
  mj_model = load(name)
  data = moving(mj_model)
  mujoco.mj_forward(mj_model, data)
  back = mjx.get_data(mj_model, mjx.put_data(mj_model, data))
  for field in fields.data_fields():
    if field.name != "overflow":
      got, expected = getattr(back, field.name), getattr(data, field.name)
      if field.name == "solver_niter":
        got, expected = np.sum(got), np.sum(expected)  # C counts by islands
      assert_close(got, expected, 1e-6, field.name)  # the rounding to float32 alone
  assert back.ncon == data.ncon
  for field in fields.contact_fields():
    got, expected = getattr(back.contact, field.name), getattr(data.contact, field.name)
    assert_close(got, expected, 1e-6, field.name)
  assert back.nefc == data.nefc
  for field in (*MATRICES, *ROWS):
    # forces change by the rounding of the state times the stiffness of a contact
    assert_close(getattr(back, field), getattr(data, field), 1e-3, field)
  assert_close(dense_rows(mj_model, back), dense_rows(mj_model, data), 1e-5, "efc_J")


# Of which MuJoCo Warp steps to something else: other contacts of boxes, meshes and height fields,
# and no derivative of the lift of ellipsoids in `implicit`.
OTHERWISE = {"pile", "terrain", "quadruped_terrain", "gyroscope"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHERWISE])
def test_after_a_step_the_fields_are_those_of_c_rows_included(name):
  mj_model = load(name)
  data = moving(mj_model)
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  mujoco.mj_step(mj_model, data)
  back = mjx.get_data(mj_model, jax.jit(mjx.step)(m, d), before=d)
  for field in ("time", "qpos", "qvel", "act", "xpos", "geom_xmat", "ten_length", *MATRICES):
    assert_close(getattr(back, field), getattr(data, field), 1e-4, field)  # float32
  # the solve in float32; the ball of `throw` has an inertia of 4e-5, which divides its error
  for field, tolerance in (("qacc", 1e-2 if name == "throw" else 2e-3), ("qfrc_constraint", 2e-3)):
    assert_close(getattr(back, field), getattr(data, field), tolerance, field)
  assert (back.ncon, back.nefc) == (data.ncon, data.nefc)
  if back.ncon:
    order, mine = (np.lexsort(np.round(x.contact.pos, 3).T) for x in (data, back))
    for field in ("dist", "pos", "friction", "geom"):
      got, expected = getattr(back.contact, field)[mine], getattr(data.contact, field)[order]
      assert_close(got, expected, 1e-4, field)
  # the order of contacts may differ, so rows are compared in what they do together
  for x, y in [
    (np.sort(back.efc_aref), np.sort(data.efc_aref)),
    (dense_rows(mj_model, back).T @ back.efc_D, dense_rows(mj_model, data).T @ data.efc_D),
    (dense_rows(mj_model, back).T @ back.efc_force, data.qfrc_constraint),
  ]:
    assert_close(x, y, 5e-3)  # 1 / float32 distances


def test_without_the_state_before_the_rows_are_those_of_the_state():
  mj_model = load("humanoid")
  data = moving(mj_model)
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  back = mjx.get_data(mj_model, jax.jit(mjx.forward)(m, d))
  mujoco.mj_forward(mj_model, data)
  assert back.nefc == data.nefc
  assert_close(np.sort(back.efc_vel), np.sort(data.efc_vel), 1e-3)
  force = dense_rows(mj_model, back).T @ back.efc_force
  assert_close(force, data.qfrc_constraint, 5e-3)


def test_a_batch_comes_back_as_lists_or_one_world_of_it():
  mj_model = load("cartpole")
  d = mjx.make_data(mj_model)
  batch = jax.vmap(jax.vmap(lambda x: d.replace(qpos=d.qpos + x)))(jnp.arange(6.0).reshape(2, 3))
  back = mjx.get_data(mj_model, batch)
  assert [len(back), *(len(row) for row in back)] == [2, 3, 3]
  np.testing.assert_allclose(back[1][2].qpos, 5.0)
  into = [mujoco.MjData(mj_model) for _ in range(2)]
  mjx.get_data_into(into, mj_model, jax.tree.map(lambda x: x[0, :2], batch))
  np.testing.assert_allclose([x.qpos[0] for x in into], [0.0, 1.0])
  mjx.get_data_into(into[0], mj_model, batch, world=(1, 1))
  np.testing.assert_allclose(into[0].qpos, 4.0)


def test_wrong_targets_say_what_is_expected():
  mj_model = load("cartpole")
  d = mjx.make_data(mj_model)
  batch = jax.tree.map(lambda x: jnp.stack([x, x]), d)
  with pytest.raises(ValueError, match="one MjData"):
    mjx.get_data_into(mujoco.MjData(mj_model), mj_model, batch)
  with pytest.raises(ValueError, match="1 MjData"):
    mjx.get_data_into([mujoco.MjData(mj_model)], mj_model, batch)
  other = load("hopper")
  with pytest.raises(ValueError, match="another model"):
    mjx.get_data(other, d)
