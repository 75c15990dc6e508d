"""Rays meet what C MuJoCo's rays meet."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers
from support.helpers import model_path

SCENE = """
<mujoco>
  <asset>
    <hfield name="hills" nrow="4" ncol="4" size="2 2 0.5 0.1"
            elevation="0 1 0 2  1 0 1 0  2 1 0 1  0 0 1 2"/>
    <mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1  1 1 0.5"/>
  </asset>
  <worldbody>
    <geom type="plane" size="9 9 1" pos="0 0 -1" group="4"/>
    <geom type="hfield" hfield="hills" pos="-3 0 0"/>
    <geom type="mesh" mesh="wedge" pos="3 0 0" group="1"/>
    <body name="ball" pos="0 0 1"><freejoint/><geom type="sphere" size="0.4" group="2"/></body>
    <body name="box" pos="0 2 1"><freejoint/><geom type="box" size="0.3 0.4 0.2"/></body>
    <body name="rod" pos="0 -2 1"><freejoint/><geom type="capsule" size="0.2 0.5"/>
      <geom type="cylinder" size="0.2 0.5" pos="1 0 0"/></body>
    <body name="egg" pos="2 2 1"><freejoint/><geom type="ellipsoid" size="0.2 0.5 0.3"/>
      <geom type="sphere" size="0.9" rgba="0 0 0 0"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def scene():
  mj_model = mujoco.MjModel.from_xml_string(SCENE)
  data = mujoco.MjData(mj_model)
  mujoco.mj_forward(mj_model, data)
  return mj_model, data, mjx.put_model(mj_model), mjx.put_data(mj_model, data)


def some_rays(count: int) -> tuple[np.ndarray, np.ndarray]:
  """Rays of any length from all around towards places near the geoms of the scene."""
  rng = np.random.default_rng(1)
  mj_model = mujoco.MjModel.from_xml_string(SCENE)
  data = mujoco.MjData(mj_model)
  mujoco.mj_forward(mj_model, data)
  aims = data.geom_xpos[rng.integers(0, mj_model.ngeom, count)] + rng.normal(0, 0.2, (count, 3))
  origins = aims + rng.normal(0, 2, (count, 3)) + [0, 0, 2]
  directions = (aims - origins) * rng.uniform(0.1, 2, (count, 1))
  return origins.astype(np.float32), directions.astype(np.float32)


def reference(mj_model, data, rays, group=None, flg_static=1, bodyexclude=-1):
  dist, geom_id, normal = [], [], []
  for origin, direction in zip(*(r.astype(float) for r in rays), strict=True):
    geom, axis = np.zeros(1, np.int32), np.zeros(3)
    args = (origin, direction, group, flg_static, bodyexclude, geom, axis)
    dist.append(mujoco.mj_ray(mj_model, data, *args))
    geom_id.append(geom[0])
    normal.append(axis)
  return np.array(dist), np.array(geom_id), np.array(normal)


def assert_same(got, expected):
  dist, geom_id = got[:2]
  np.testing.assert_array_equal(geom_id, expected[1])
  np.testing.assert_allclose(dist, expected[0], rtol=2e-5, atol=2e-5)  # float32 against float64


def test_rays_meet_geoms_of_every_type_as_in_c(scene):
  mj_model, data, m, d = scene
  rays = some_rays(200)
  got = jax.jit(mjx.ray_normal)(m, d, *rays)
  expected = reference(mj_model, data, rays)
  visible = set(range(mj_model.ngeom - 1))  # the last is transparent
  assert set(expected[1]) == visible | {-1}
  assert_same(got, expected)
  np.testing.assert_allclose(got[2], expected[2], rtol=0, atol=1e-3)  # grazing rays in float32


@pytest.mark.parametrize(
  "options",
  [
    dict(flg_static=False),
    dict(geomgroup=(1, 0, 1, 0, 0, 0)),
    dict(bodyexclude=1),
    dict(geomgroup=(1, 1, 1, 1, 0, 1), flg_static=False, bodyexclude=3),
  ],
  ids=str,
)
def test_geoms_are_left_out_as_in_c(scene, options):
  mj_model, data, m, d = scene
  rays = some_rays(100)
  groups = options.get("geomgroup")
  group = None if groups is None else np.array(groups, np.uint8)
  expected = reference(
    mj_model, data, rays, group, options.get("flg_static", 1), options.get("bodyexclude", -1)
  )
  assert_same(mjx.ray(m, d, *rays, **options), expected)
  assert not np.array_equal(expected[1], reference(mj_model, data, rays)[1])


def test_several_bodies_can_be_excluded(scene):
  mj_model, _, m, d = scene
  _, geom_id = mjx.ray(m, d, *some_rays(100), bodyexclude=(0, 1, 2))
  assert set(mj_model.geom_bodyid[np.asarray(geom_id)[geom_id >= 0]]) == {3, 4}
  dist, geom_id = mjx.ray(m, d, *some_rays(5), bodyexclude=range(mj_model.nbody))
  assert (dist == -1).all() and (geom_id == -1).all()


def test_rays_of_many_worlds_are_those_of_each(scene):
  mj_model, data, m, d = scene
  origins, directions = some_rays(20)
  shifted = d.geom_xpos.at[3:].add(jnp.array([0.2, 0.1, 0.0], jnp.float32))
  worlds = jax.tree.map(lambda a, b: jnp.stack([a, b]), d, d.replace(geom_xpos=shifted))
  together = jax.jit(jax.vmap(lambda d: mjx.ray(m, d, origins, directions)))(worlds)
  for i, one in enumerate((d, d.replace(geom_xpos=shifted))):
    for a, b in zip(together, mjx.ray(m, one, origins, directions), strict=True):
      helpers.assert_same(a[i], b)
  each = jax.vmap(lambda p, v: mjx.ray(m, d, p, v))(origins, directions)  # a ray a world
  for a, b in zip(each, mjx.ray(m, d, origins, directions), strict=True):
    helpers.assert_same(a, b)


def test_one_ray_is_a_scalar_and_more_axes_are_kept(scene):
  _, _, m, d = scene
  dist, geom_id = mjx.ray(m, d, jnp.array([0.0, 0, 3]), jnp.array([0.0, 0, -1]))
  assert dist.shape == geom_id.shape == ()
  np.testing.assert_allclose(dist, 1.6, rtol=1e-6)
  dist, _ = mjx.ray(m, d, jnp.zeros((2, 3, 3)), jnp.array([0.0, 0, 1]))
  assert dist.shape == (2, 3)
  dist, geom_id = mjx.ray(m, d, jnp.array([0.0, 0, 3]), jnp.zeros(3))  # no direction
  assert (dist, geom_id) == (-1, -1)


def test_terrain_moves_when_its_leaf_does():
  mj_model = mujoco.MjModel.from_xml_path(str(model_path("pile")))
  m, d = mjx.put_model(mj_model), mjx.make_data(mj_model)
  down = (jnp.array([0.5, 0.5, 0.5]), jnp.array([0.0, 0, -1]))
  before, geom_id = mjx.ray(m, mjx.kinematics(m, d), *down)
  assert geom_id >= 0 and mj_model.geom_bodyid[geom_id] == 0
  lower = m.geom_pos.at[geom_id, 2].add(-0.5)
  after, _ = mjx.ray(m.replace(geom_pos=lower), d, *down)
  np.testing.assert_allclose(after - before, 0.5, rtol=1e-6)


def test_wrong_arguments_say_what_is_expected(scene):
  _, _, m, d = scene
  with pytest.raises(ValueError, match="must be"):
    mjx.ray(m, d, jnp.zeros(2), jnp.zeros(3))
  with pytest.raises(ValueError, match="6 elements"):
    mjx.ray(m, d, jnp.zeros(3), jnp.ones(3), geomgroup=(1, 0))
  with pytest.raises(ValueError, match="bodyexclude"):
    mjx.ray(m, d, jnp.zeros(3), jnp.ones(3), bodyexclude=99)


def test_distances_and_normals_have_the_gradient_of_differences(scene, rng):
  """With respect to the state, the sizes of the geoms, and the rays."""
  mj_model, data, m, d = scene
  origins, directions = some_rays(60)
  weights = [rng.standard_normal(s).astype(np.float32) for s in ((60,), (60, 3))]
  base = reference(mj_model, data, (origins, directions))
  inputs = dict(qpos=data.qpos, size=mj_model.geom_size, pnt=origins, vec=directions)
  inputs = {k: np.array(x, float) for k, x in inputs.items()}

  def found_c(qpos, size, pnt, vec):
    moved, own = mujoco.MjData(mj_model), mj_model.geom_size.copy()
    moved.qpos[:], mj_model.geom_size[:] = qpos, size
    mujoco.mj_forward(mj_model, moved)
    found = reference(mj_model, moved, (pnt, vec))
    mj_model.geom_size[:] = own
    return found

  def loss(qpos, size, pnt, vec):
    model = m.replace(geom_size=size)
    poses = mjx.forward(model, d.replace(qpos=qpos))
    dist, geom, normal = mjx.ray_normal(model, poses, pnt, vec)
    met = (geom == jnp.asarray(base[1])).astype(jnp.float32)
    return jnp.sum(met * dist * weights[0]) + jnp.sum(met[:, None] * normal * weights[1])

  args = [jnp.asarray(x, jnp.float32) for x in inputs.values()]
  gradients = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*args)
  for name, gradient in zip(inputs, gradients, strict=True):
    direction = rng.standard_normal(inputs[name].shape)
    if name in ("pnt", "vec"):  # a ray at the edge of a geom has no derivative
      direction[::2] = 0
    sides = []
    for sign in (1e-6, -1e-6):
      moved = inputs | {name: inputs[name] + sign * direction}
      dist, geom, normal = found_c(**moved)
      assert np.array_equal(geom, base[1])
      sides.append(np.sum(dist * weights[0]) + np.sum(normal * weights[1]))
    expected = (sides[0] - sides[1]) / 2e-6
    scale = np.abs(np.asarray(gradient) * direction).sum()
    np.testing.assert_allclose(
      np.sum(np.asarray(gradient) * direction), expected, atol=2e-4 * scale
    )


def test_a_ray_that_meets_nothing_has_a_gradient_of_zero(scene):
  _, _, m, d = scene
  pnt, up = jnp.zeros(3).at[2].set(50.0), jnp.eye(3)[2]
  gradient = jax.grad(lambda p, v: mjx.ray(m, d, p, v)[0], (0, 1))
  for vec in (up, jnp.zeros(3)):
    np.testing.assert_array_equal(gradient(pnt, vec), np.zeros((2, 3)))


def test_the_gradient_of_a_ray_goes_to_the_leaves_that_place_terrain():
  mj_model = mujoco.MjModel.from_xml_string(
    """<mujoco><worldbody><body pos="1 0 0" euler="10 0 0"><body pos="0 1 0" euler="0 20 30">
      <geom type="box" size="3 3 .1" pos="0 0 .5" euler="5 0 0"/></body></body>
      <body><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
  )
  mj_model.geom_sameframe[:] = 0  # else C ignores changes of offsets that are zero
  m, d = mjx.put_model(mj_model), mjx.make_data(mj_model)
  names = ("body_pos", "body_quat", "geom_pos", "geom_quat", "geom_size")
  origin, down = np.array([1.5, 1, 4], np.float32), np.array([0.1, 0, -1], np.float32)

  def loss(leaves):
    return mjx.ray(m.replace(**leaves), d, origin, down)[0]

  gradients = jax.grad(loss)({name: getattr(m, name) for name in names})
  for name in names:
    field = getattr(mj_model, name)
    for i in np.ndindex(field.shape):
      if i[0] == mj_model.nbody - 1 or (name.startswith("body") and i[0] == 0):
        continue  # not of the terrain
      sides = []
      for sign in (1e-6, -1e-6):
        own = field.copy()
        field[i] += sign
        if name.endswith("quat"):
          field[i[0]] /= np.linalg.norm(field[i[0]])
        data = mujoco.MjData(mj_model)
        mujoco.mj_kinematics(mj_model, data)
        sides.append(reference(mj_model, data, (origin[None], down[None]))[0][0])
        field[:] = own
      got = np.asarray(gradients[name])
      if name.endswith("quat"):  # of one of length one
        x = field[i[0]]
        got = got - np.outer(got[i[0]] @ x * (np.arange(len(field)) == i[0]), x)
      np.testing.assert_allclose(got[i], (sides[0] - sides[1]) / 2e-6, atol=1e-4, err_msg=name)
