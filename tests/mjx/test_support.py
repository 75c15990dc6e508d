"""Matrices, Jacobians, forces and rows equal C MuJoCo's, and batch."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers
from support.helpers import model_path

# float32 against float64, relative to the largest value; forces go through the solver.
RTOL = 2e-6
RTOL_SOLVED = 1e-3


def settled(name: str, steps: int = 150, **options) -> tuple[mujoco.MjModel, mujoco.MjData]:
  """A model and a state in motion after `mj_forward`, in contact where the model has some."""
  mj_model = mujoco.MjModel.from_xml_path(str(model_path(name)))
  mj_model.opt.tolerance, mj_model.opt.iterations = 0, 50  # float32 stops later than C
  for key, value in options.items():
    setattr(mj_model.opt, key, value)
  data = mujoco.MjData(mj_model)
  rng = np.random.default_rng(0)
  data.qvel[:] = rng.normal(0, 0.5, mj_model.nv)
  data.ctrl[:] = 0.3
  for _ in range(steps):
    mujoco.mj_step(mj_model, data)
  for field in ("qpos", "qvel", "act", "qacc_warmstart"):
    getattr(data, field)[:] = getattr(data, field).astype(np.float32)
  data.xfrc_applied[1:] = rng.normal(0, 1, (mj_model.nbody - 1, 6)).astype(np.float32)
  mujoco.mj_forward(mj_model, data)
  return mj_model, data


def put(mj_model, data):
  return mjx.put_model(mj_model), mjx.put_data(mj_model, data)


def assert_close(got, expected, rtol=RTOL):
  scale = max(1e-6, np.abs(expected).max())
  np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * scale)


@pytest.mark.parametrize("name", ["humanoid", "pile", "muscle_arm", "hand"])
def test_the_inertia_matrix_is_c_mujocos(name, rng):
  mj_model, data = settled(name, steps=20)
  m, d = put(mj_model, data)
  expected = np.zeros((mj_model.nv, mj_model.nv))
  mujoco.mj_fullM(mj_model, data, expected)
  assert_close(jax.jit(mjx.full_m)(m, d), expected)
  vector = rng.normal(size=mj_model.nv)
  assert_close(mjx.mul_m(m, d, vector), expected @ vector, 2e-5)  # sums of large terms


def test_the_inertia_matrix_belongs_to_the_results_of_a_step_as_in_c():
  mj_model, data = settled("humanoid", steps=20)
  m, d = put(mj_model, data)
  after = mjx.step(m, d)
  mujoco.mj_step(mj_model, data)
  expected = np.zeros((mj_model.nv, mj_model.nv))
  mujoco.mj_fullM(mj_model, data, expected)
  assert_close(mjx.full_m(m, after), expected, 2e-5)  # poses in float32


def test_the_inertia_matrix_follows_a_leaf_of_the_model_in_each_world():
  mj_model, data = settled("double_pendulum", steps=0)
  m, d = put(mj_model, data)
  masses = jnp.stack([m.body_mass, 2 * m.body_mass])
  inertias = jnp.stack([m.body_inertia, 2 * m.body_inertia])
  models = m.replace(body_mass=masses, body_inertia=inertias)
  axes = mjx.model_axes(models)

  def of(m, d):
    return mjx.full_m(m, mjx.com_pos(m, d))

  light, heavy = jax.vmap(of, (axes, None))(models, d)
  armature = np.diag(mj_model.dof_armature)
  np.testing.assert_allclose(heavy - armature, 2 * (light - armature), rtol=1e-5)


@pytest.mark.parametrize("name", ["muscle_arm", "hand"])
def test_tendon_and_actuator_moments_are_c_mujocos(name):
  mj_model, data = settled(name, steps=20)
  m, d = put(mj_model, data)
  expected = np.zeros((mj_model.ntendon, mj_model.nv))
  pattern = (mj_model.ten_J_rownnz, mj_model.ten_J_rowadr, mj_model.ten_J_colind.ravel())
  mujoco.mju_sparse2dense(expected, data.ten_J.ravel(), *pattern)
  assert_close(mjx.tendon_jacobian(m, d), expected, 2e-5)  # wrapping geometry in float32
  expected = np.zeros((mj_model.nactuator, mj_model.nv))
  pattern = (data.moment_rownnz, data.moment_rowadr, data.moment_colind.ravel())
  mujoco.mju_sparse2dense(expected, data.actuator_moment.ravel(), *pattern)
  assert_close(mjx.actuator_moment(m, d), expected, 2e-5)


def test_the_derivative_of_the_smooth_forces_is_that_of_differences():
  mj_model, data = settled("muscle_arm", steps=20)
  m, d = put(mj_model, data)
  mj_model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
  base, eps = data.qvel.copy(), 1e-5
  expected = np.zeros((mj_model.nv, mj_model.nv))
  for i in range(mj_model.nv):
    for sign in (1, -1):
      data.qvel[:] = base
      data.qvel[i] += sign * eps
      mujoco.mj_forward(mj_model, data)
      expected[:, i] += sign * (data.qfrc_passive + data.qfrc_actuator) / (2 * eps)
  assert_close(jax.jit(mjx.deriv_smooth_vel)(m, d), expected, 1e-4)  # steep muscle curves


JACOBIANS = {
  "jac_body": (mujoco.mj_jacBody, "nbody"),
  "jac_body_com": (mujoco.mj_jacBodyCom, "nbody"),
  "jac_site": (mujoco.mj_jacSite, "nsite"),
  "jac_geom": (mujoco.mj_jacGeom, "ngeom"),
}


@pytest.mark.parametrize("kind", JACOBIANS)
def test_jacobians_of_all_objects_at_once_are_c_mujocos(kind):
  mj_model, data = settled("humanoid", steps=20)
  m, d = put(mj_model, data)
  reference, count = JACOBIANS[kind]
  ids = np.arange(getattr(mj_model, count))
  jacp, jacr = jax.jit(getattr(mjx, kind))(m, d, ids)
  assert jacp.shape == (ids.size, mj_model.nv, 3)
  for i in ids:
    p, r = np.zeros((3, mj_model.nv)), np.zeros((3, mj_model.nv))
    reference(mj_model, data, p, r, i)
    np.testing.assert_allclose(jacp[i], p.T, rtol=0, atol=2e-6)
    np.testing.assert_allclose(jacr[i], r.T, rtol=0, atol=2e-6)


def test_a_jacobian_of_a_point_is_c_mujocos_and_batches_over_worlds():
  mj_model, data = settled("humanoid", steps=20)
  m, d = put(mj_model, data)
  body = mj_model.body("foot_left").id
  point = data.xpos[body] + [0.1, 0.2, 0.3]
  p, r = np.zeros((3, mj_model.nv)), np.zeros((3, mj_model.nv))
  mujoco.mj_jac(mj_model, data, p, r, point, body)
  worlds = jax.tree.map(lambda x: jnp.stack([x, x]), d)
  jacp, jacr = jax.vmap(lambda d: mjx.jac(m, d, point, body))(worlds)
  for world in range(2):
    np.testing.assert_allclose(jacp[world], p.T, rtol=0, atol=2e-6)
    np.testing.assert_allclose(jacr[world], r.T, rtol=0, atol=2e-6)
  with pytest.raises(ValueError, match="body_id"):
    mjx.jac(m, d, point, mj_model.nbody)


def test_applied_forces_become_generalized_ones_as_in_c(rng):
  mj_model, data = settled("humanoid", steps=20)
  m, d = put(mj_model, data)
  body = mj_model.body("foot_left").id
  force, torque, point = rng.normal(size=(3, 3))
  expected = np.zeros(mj_model.nv)
  mujoco.mj_applyFT(mj_model, data, force, torque, point, body, expected)
  assert_close(jax.jit(mjx.apply_ft)(m, d, force, torque, point, body), expected)
  total = np.zeros(mj_model.nv)
  for i in range(1, mj_model.nbody):
    wrench = data.xfrc_applied[i]
    mujoco.mj_applyFT(mj_model, data, wrench[:3], wrench[3:], data.xipos[i], i, total)
  assert_close(jax.jit(mjx.xfrc_accumulate)(m, d), total)


def sorted_by_position(positions: np.ndarray, values: np.ndarray) -> np.ndarray:
  return values[np.lexsort(np.round(positions, 4).T)]


@pytest.mark.parametrize("world_frame", [False, True])
@pytest.mark.parametrize("cone", list(mujoco.mjtCone.__members__.values()), ids=str)
def test_contact_forces_are_c_mujocos(cone, world_frame):
  mj_model, data = settled("humanoid", cone=cone)
  m, d = put(mj_model, data)
  result = jax.jit(mjx.forward)(m, d)
  forces = jax.jit(mjx.contact_force, static_argnums=3)(m, d, None, world_frame)
  ncon = int(result.ncon)
  assert ncon == data.ncon >= 3
  expected, local = np.zeros((ncon, 6)), np.zeros(6)
  for i in range(ncon):
    mujoco.mj_contactForce(mj_model, data, i, local)
    frame = data.contact.frame[i].reshape(3, 3)
    expected[i] = np.r_[local[:3] @ frame, local[3:] @ frame] if world_frame else local
  got = sorted_by_position(np.asarray(result.contact.pos)[:ncon], np.asarray(forces)[:ncon])
  expected = sorted_by_position(data.contact.pos, expected)
  # a redundant set of contacts (four points of a foot) shares a force as roundoff decides, so the
  # normal forces are compared in total too
  assert_close(got.sum(0), expected.sum(0), RTOL_SOLVED)
  assert_close(got, expected, 0.02)
  assert not np.asarray(forces)[ncon:].any()
  helpers.assert_same(mjx.contact_force(m, d, 1, world_frame), forces[1])


@pytest.mark.parametrize("name", ["humanoid", "hand", "quadruped"])  # dense, equalities, sparse
def test_constraint_rows_are_c_mujocos(name):
  mj_model, data = settled(name)
  m, d = put(mj_model, data)
  rows = jax.device_get(jax.jit(mjx.constraint_rows)(m, d))
  n = data.nefc
  assert n > 0
  for count in ("nefc", "ne", "nf", "nl"):
    assert getattr(rows, count) == getattr(data, count), count
  assert sorted(rows.type[:n]) == sorted(data.efc_type)
  jacobian = np.zeros((n, mj_model.nv))
  if mujoco.mj_isSparse(mj_model):
    pattern = (data.efc_J_rownnz, data.efc_J_rowadr, data.efc_J_colind.ravel())
    mujoco.mju_sparse2dense(jacobian, data.efc_J.ravel(), *pattern)
  else:
    jacobian[:] = data.efc_J.reshape(n, mj_model.nv)
  # the order of rows may differ: what the rows do together does not
  weigh = np.diag(1 / data.efc_D), np.diag(1 / rows.D[:n])
  for mine, theirs in [
    (rows.J[:n].T @ rows.force[:n], jacobian.T @ data.efc_force),
    (rows.J[:n].T @ rows.D[:n], jacobian.T @ data.efc_D),
    (rows.J[:n].T @ rows.J[:n], jacobian.T @ jacobian),
    (np.sort(rows.aref[:n]), np.sort(data.efc_aref)),
    (np.sort(rows.pos[:n]), np.sort(data.efc_pos)),
    (np.sort(rows.vel[:n]), np.sort(data.efc_vel)),
    (np.sort(np.diag(weigh[1])), np.sort(np.diag(weigh[0]))),
  ]:
    assert_close(mine, theirs, RTOL_SOLVED)
  assert not rows.J[n:].any() and not rows.force[n:].any() and (rows.type[n:] == -1).all()
  contact = rows.id[rows.ne + rows.nf + rows.nl : n]
  assert set(contact) <= set(range(data.ncon))


def test_names_are_those_of_the_model():
  mj_model = settled("humanoid", steps=0)[0]
  m = mjx.put_model(mj_model)
  kind = mujoco.mjtObj.mjOBJ_BODY
  for body in range(mj_model.nbody):
    name = mj_model.body(body).name
    assert mjx.id2name(m, kind, body) == name == mjx.id2name(mj_model, kind, body)
    assert mjx.name2id(m, kind, name) == body
  assert mjx.name2id(m, kind, "nobody") == -1
  assert mjx.id2name(m, kind, mj_model.nbody) is None


def test_sparsity_is_a_question_of_size_and_the_option():
  mj_model = settled("humanoid", steps=0)[0]
  assert mjx.is_sparse(mj_model) is mjx.is_sparse(mjx.put_model(mj_model)) is False
  mj_model.opt.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
  assert mjx.is_sparse(mj_model)


def test_wrong_arguments_say_what_is_expected():
  m = mjx.put_model(settled("humanoid", steps=0)[0])
  other = mjx.make_data(settled("pile", steps=0)[0])
  for function in (mjx.full_m, mjx.constraint_rows, mjx.contact_force):
    with pytest.raises(ValueError, match="another model"):
      function(m, other)


@pytest.mark.parametrize("name", ["humanoid", "throw"])
def test_the_inertia_matrix_and_jacobians_have_the_gradient_of_differences(name, rng):
  mj_model, data = settled(name, steps=20)
  m, d = put(mj_model, data)
  nv, last = mj_model.nv, mj_model.nbody - 1
  weights = [rng.standard_normal(s).astype(np.float32) for s in ((nv, nv), (nv, 3), (nv, 3))]

  def loss(q, armature):
    model = m.replace(dof_armature=armature)
    poses = mjx.forward(model, d.replace(qpos=q))
    found = (mjx.full_m(model, poses), *mjx.jac_body(model, poses, last))
    return sum(jnp.sum(w * x) for w, x in zip(weights, found, strict=True))

  def loss_c(q):
    moved, full, jacs = mujoco.MjData(mj_model), np.zeros((nv, nv)), np.zeros((2, 3, nv))
    moved.qpos[:] = q
    mujoco.mj_forward(mj_model, moved)
    mujoco.mj_fullM(mj_model, moved, full)
    mujoco.mj_jacBody(mj_model, moved, *jacs, last)
    found = (full, *(j.T for j in jacs))
    return sum(np.sum(w * x) for w, x in zip(weights, found, strict=True))

  by_pose, by_armature = jax.jit(jax.grad(loss, (0, 1)))(d.qpos, m.dof_armature)
  np.testing.assert_allclose(by_armature, np.diag(weights[0]), rtol=1e-6)
  for _ in range(3):
    sides = [data.qpos.copy() for _ in range(2)]
    direction = rng.standard_normal(nv)
    for x, sign in zip(sides, (1e-6, -1e-6), strict=True):
      mujoco.mj_integratePos(mj_model, x, sign * direction, 1.0)
    expected = (loss_c(sides[0]) - loss_c(sides[1])) / 2e-6
    got = np.dot(by_pose, (sides[0] - sides[1]) / 2e-6)
    assert_close(got, expected, 1e-4)  # sums of a thousand numbers of either sign


def test_the_inertia_matrix_refuses_a_gradient_where_tendons_are_heavy():
  mj_model, data = settled("hand", steps=1)
  m, d = put(mj_model, data)
  gradient = jax.grad(lambda x, m: jnp.sum(mjx.full_m(m, d.replace(cdof=x))))
  assert np.all(np.isfinite(gradient(d.cdof, m.replace(tendon_armature=0 * m.tendon_armature))))
  assert np.all(np.isnan(gradient(d.cdof, m)))
  with pytest.raises(NotImplementedError, match="tendon_armature"):
    jax.grad(lambda x: jnp.sum(mjx.full_m(m.replace(tendon_armature=x), d)))(m.tendon_armature)
