"""Distances between geoms equal C MuJoCo's, whatever contacts the model allows."""

import itertools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx

SCENE = """
<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0  0.5 0 0  0 0.5 0  0 0 0.5  0.5 0.5 0.2"/></asset>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 1"><freejoint/><geom type="sphere" size="0.2"/></body>
    <body pos="1 0 1" euler="30 20 0"><freejoint/><geom type="capsule" size="0.1 0.3"/></body>
    <body pos="0 1 1" euler="0 40 10"><freejoint/><geom type="box" size="0.2 0.3 0.1"/></body>
    <body pos="1 1 1" euler="50 0 10"><freejoint/><geom type="cylinder" size="0.2 0.3"/></body>
    <body pos="0 2 1" euler="5 60 0"><freejoint/><geom type="ellipsoid" size="0.2 0.3 0.1"/></body>
    <body pos="1 2 1" euler="15 25 35"><freejoint/><geom type="mesh" mesh="wedge"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def scene():
  mj_model = mujoco.MjModel.from_xml_string(SCENE)
  data = mujoco.MjData(mj_model)
  mujoco.mj_forward(mj_model, data)
  return mj_model, data, mjx.put_model(mj_model), mjx.put_data(mj_model, data)


def reference(mj_model, data, pairs, distmax=10.0):
  dist, fromto = [], []
  for a, b in pairs:
    segment = np.zeros(6)
    dist.append(mujoco.mj_geomDistance(mj_model, data, a, b, distmax, segment))
    fromto.append(segment)
  return np.array(dist), np.array(fromto)


def test_distances_of_all_pairs_are_c_mujocos_in_both_orders(scene):
  mj_model, data, m, d = scene
  pairs = list(itertools.permutations(range(mj_model.ngeom), 2))
  first, second = np.array(pairs).T
  dist, fromto = jax.jit(lambda d: mjx.geom_distance(m, d, first, second))(d)
  expected, segments = reference(mj_model, data, pairs)
  np.testing.assert_allclose(dist, expected, rtol=0, atol=2e-4)  # GJK's tolerance in float32
  # the nearest points may lie anywhere on parallel faces, so their distance is compared
  length = np.linalg.norm(fromto[:, 3:] - fromto[:, :3], axis=1)
  np.testing.assert_allclose(length, np.abs(expected), rtol=0, atol=1e-3)
  smooth = [i for i, p in enumerate(pairs) if set(p) <= {0, 1, 2}]  # plane, sphere, capsule
  np.testing.assert_allclose(fromto[jnp.array(smooth)], segments[smooth], rtol=0, atol=1e-4)


def test_penetration_is_negative_as_in_c(scene):
  mj_model, data, m, d = scene
  moved = mujoco.MjData(mj_model)
  moved.qpos[:] = data.qpos
  moved.qpos[2], moved.qpos[7:9] = 0.1, (0.05, 0.0)  # the sphere into plane and capsule
  moved.qpos[9] = 0.2
  mujoco.mj_forward(mj_model, moved)
  pairs = [(0, 1), (1, 2), (2, 1)]
  d = mjx.kinematics(m, d.replace(qpos=moved.qpos))
  dist, _ = mjx.geom_distance(m, d, *np.array(pairs).T)
  expected, _ = reference(mj_model, moved, pairs)
  assert (expected < 0).all()
  np.testing.assert_allclose(dist, expected, rtol=0, atol=1e-5)


def test_distances_beyond_the_largest_are_cut(scene):
  mj_model, data, m, d = scene
  dist, fromto = mjx.geom_distance(m, d, [1, 1], [2, 6], 1.0)
  expected, _ = reference(mj_model, data, [(1, 2), (1, 6)], 1.0)
  np.testing.assert_allclose(dist, expected, rtol=0, atol=1e-5)
  assert dist[1] == 1.0 and not fromto[1].any() and fromto[0].any()


def test_worlds_of_a_batch_have_their_own(scene):
  _, _, m, d = scene

  def of(shift):
    poses = mjx.kinematics(m, d.replace(qpos=d.qpos.at[2].add(jnp.asarray(shift, jnp.float32))))
    return mjx.geom_distance(m, poses, 0, 1)[0]

  shifts = jnp.array([0.0, 0.5, 1.0], jnp.float32)
  got = jax.jit(jax.vmap(of))(shifts)
  np.testing.assert_allclose(got, 0.8 + shifts, rtol=1e-6)
  np.testing.assert_array_equal(got, [of(s) for s in shifts])


def test_wrong_geoms_say_what_is_expected(scene):
  _, _, m, d = scene
  with pytest.raises(ValueError, match="two of 0 to 6"):
    mjx.geom_distance(m, d, 1, 7)
  with pytest.raises(ValueError, match="two of"):
    mjx.geom_distance(m, d, 1, 1)
  with pytest.raises(TypeError, match="traced"):
    jax.jit(lambda g: mjx.geom_distance(m, d, g, 1))(0)


@pytest.mark.parametrize("pairs", [[(0, 1), (2, 1), (3, 2), (5, 1), (6, 3)], [(4, 0), (3, 4)]])
def test_distances_and_segments_have_the_gradient_of_differences(scene, pairs, rng):
  """Through the poses of a forward pass, with respect to the state and the sizes of geoms."""
  mj_model, data, m, d = scene
  first, second = np.array(pairs).T
  weights = [rng.standard_normal((len(pairs), *s)).astype(np.float32) for s in ((), (6,))]
  base = rng.standard_normal(mj_model.nv) * 0.1
  qpos = data.qpos.copy()
  mujoco.mj_integratePos(mj_model, qpos, base, 1.0)

  def loss(q, size):
    model = m.replace(geom_size=size)
    dist, fromto = mjx.geom_distance(model, mjx.forward(model, d.replace(qpos=q)), first, second)
    return jnp.sum(dist * weights[0]) + jnp.sum(fromto * weights[1])

  def loss_c(q, size):
    moved, own = mujoco.MjData(mj_model), mj_model.geom_size.copy()
    moved.qpos[:] = q
    mj_model.geom_size[:] = size
    mujoco.mj_forward(mj_model, moved)
    dist, fromto = reference(mj_model, moved, pairs)
    mj_model.geom_size[:] = own
    return float(np.sum(dist * weights[0]) + np.sum(fromto * weights[1]))

  size = mj_model.geom_size.copy()
  gradients = jax.jit(jax.grad(loss, (0, 1)))(jnp.asarray(qpos, jnp.float32), m.geom_size)
  for gradient, x, at in zip(gradients, (qpos, size), (0, 1), strict=True):
    expected = np.zeros_like(x)
    for i in np.ndindex(x.shape):
      moved = [[qpos.copy(), size.copy()] for _ in range(2)]
      moved[0][at][i] += 1e-6
      moved[1][at][i] -= 1e-6
      expected[i] = (loss_c(*moved[0]) - loss_c(*moved[1])) / 2e-6
    # float32, and C's own error in the nearest points of curved geoms
    np.testing.assert_allclose(gradient, expected, atol=5e-4 * np.abs(expected).max())


def test_the_gradient_of_a_distance_is_the_normal_for_every_order_of_vmap_and_grad(scene):
  _, _, m, d = scene

  def of(shift, distmax=10.0):
    poses = mjx.forward(m, d.replace(qpos=d.qpos.at[2].add(jnp.asarray(shift, jnp.float32))))
    return mjx.geom_distance(m, poses, 0, 1, distmax)[0]

  shifts = jnp.array([0.0, 0.5])
  np.testing.assert_allclose(jax.vmap(jax.grad(of))(shifts), 1.0, rtol=1e-6)
  np.testing.assert_allclose(jax.grad(lambda s: jnp.sum(jax.vmap(of)(s)))(shifts), 1.0, rtol=1e-6)
  assert jax.grad(of)(0.0, 0.1) == 0.0  # beyond the largest distance of interest
