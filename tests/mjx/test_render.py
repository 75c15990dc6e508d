"""Images show what rays meet, for each world of a batch, and follow the state."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx

SCENE = """
<mujoco>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <worldbody>
    <camera name="top" pos="0 0 3" fovy="45"/>
    <camera name="side" pos="0 -3 0.5" xyaxes="1 0 0 0 0 1" fovy="45"/>
    <geom name="floor" type="plane" size="5 5 1" rgba="0 0 1 1"/>
    <body name="ball" pos="0 0 0.5"><freejoint/>
      <geom name="ball" type="sphere" size="0.3" rgba="1 0 0 1"/></body>
    <body name="box" pos="0.8 0 0.5"><freejoint/>
      <geom name="box" type="box" size="0.2 0.2 0.2" rgba="0 1 0 1"/></body>
  </worldbody>
</mujoco>
"""
WIDTH, HEIGHT = 32, 24


@pytest.fixture(scope="module")
def scene():
  mj_model = mujoco.MjModel.from_xml_string(SCENE)
  m = mjx.put_model(mj_model)
  context = mjx.create_render_context(
    mj_model, cam_res=(WIDTH, HEIGHT), render_rgb=True, render_depth=True, render_seg=True
  )
  return m, mjx.camlight(m, mjx.make_data(mj_model)), context


def moved(m: mjx.Model, d: mjx.Data, shift: float) -> mjx.Data:
  return mjx.camlight(m, d.replace(qpos=d.qpos.at[0].add(jnp.float32(shift))))


def test_segmentation_and_depth_are_those_of_rays(scene):
  m, d, context = scene
  render = jax.jit(mjx.render_with_segmentation)
  _, depth, seg, same = render(m, d, context)
  assert jax.tree.all(jax.tree.map(jnp.array_equal, d, same))
  # the rays of a pinhole camera: its image is 2 tan(fovy / 2) high at distance one
  up = np.tan(np.deg2rad(45 / 2)) * (1 - 2 * (np.arange(HEIGHT) + 0.5) / HEIGHT)
  right = np.tan(np.deg2rad(45 / 2)) * (2 * (np.arange(WIDTH) + 0.5) / WIDTH - 1) * WIDTH / HEIGHT
  x, y = np.meshgrid(right, up)
  local = np.stack([x, y, -np.ones_like(x)], -1)
  for camera in range(2):
    direction = local @ np.asarray(d.cam_xmat[camera]).T
    dist, geom_id = mjx.ray(m, d, d.cam_xpos[camera], direction)
    got = np.asarray(mjx.get_segmentation(context, camera, seg))
    assert got.shape == (HEIGHT, WIDTH) and set(np.unique(got)) >= {0, 1, 2}
    assert (got == geom_id).mean() > 0.99  # all but an edge that float32 shifts
    same_geom = (got == geom_id) & (got >= 0)
    image = np.asarray(mjx.get_depth(context, camera, depth, 10.0))[..., 0] * 10
    expected = np.minimum(dist, 10.0)  # along the camera's axis, as the ray's third part is one
    np.testing.assert_allclose(image[same_geom], expected[same_geom], rtol=2e-3, atol=2e-3)


def test_colors_are_those_of_the_geoms(scene):
  m, d, context = scene
  rgb, _, seg, _ = mjx.render_with_segmentation(m, d, context)
  image = np.asarray(mjx.get_rgb(context, 0, rgb))
  ids = np.asarray(mjx.get_segmentation(context, 0, seg))
  assert image.shape == (HEIGHT, WIDTH, 3) and 0 <= image.min() and image.max() <= 1
  for geom, channel in ((0, 2), (1, 0), (2, 1)):
    assert (image[ids == geom].argmax(-1) == channel).all()
  grey = m.replace(geom_rgba=m.geom_rgba.at[1].set(jnp.array([0, 1.0, 0, 1], jnp.float32)))
  changed = np.asarray(mjx.get_rgb(context, 0, mjx.render(grey, d, context)[0]))
  assert (changed[ids == 1].argmax(-1) == 1).all()  # a leaf of the Model acts


def test_a_batch_or_some_of_its_worlds_is_rendered_in_one_call(scene):
  m, d, context = scene
  worlds = jax.vmap(lambda s: moved(m, d, s))(jnp.array([0.0, 0.3, -0.4]))
  images = jax.jit(jax.vmap(lambda d: mjx.render(m, d, context)[:2]))(worlds)
  for i, shift in enumerate((0.0, 0.3, -0.4)):
    for a, b in zip(images, mjx.render(m, moved(m, d, shift), context), strict=False):
      np.testing.assert_array_equal(a[i], b)
  some = jax.tree.map(lambda x: x[jnp.array([2, 0])], worlds)
  chosen = jax.vmap(lambda d: mjx.render(m, d, context)[0])(some)
  np.testing.assert_array_equal(chosen, images[0][jnp.array([2, 0])])
  assert mjx.get_rgb(context, 1, chosen).shape == (2, HEIGHT, WIDTH, 3)


def test_an_image_depends_on_nothing_but_the_state(scene):
  m, d, context = scene
  render = jax.jit(mjx.render)
  first, other, again = (render(m, x, context)[0] for x in (d, moved(m, d, 0.5), d))
  np.testing.assert_array_equal(first, again)
  assert not np.array_equal(first, other)


def test_a_scan_renders_each_step(scene):
  m, d, context = scene

  def body(d, _):
    d = mjx.step(m, d)
    return d, mjx.render(m, d, context)[0]

  last, images = jax.jit(lambda d: jax.lax.scan(body, d, length=20))(d)
  np.testing.assert_array_equal(images[-1], mjx.render(m, last, context)[0])
  assert not np.array_equal(images[0], images[-1])


def test_wrong_settings_and_cameras_say_so(scene):
  m, d, context = scene
  mj_model = m.spec.mj_model
  with pytest.raises(TypeError, match="cam_ress"):
    mjx.create_render_context(mj_model, cam_ress=(3, 3))
  plain = mjx.create_render_context(mj_model, cam_res=(8, 8), render_rgb=True)
  with pytest.raises(ValueError, match="render_seg=True"):
    mjx.render_with_segmentation(m, d, plain)
  rgb, depth, _ = mjx.render(m, d, plain)
  with pytest.raises(ValueError, match="no depth"):
    mjx.get_depth(plain, 0, depth, 1.0)
  with pytest.raises(ValueError, match="2 active cameras"):
    mjx.get_rgb(plain, 2, rgb)
  other = mjx.put_model(mujoco.MjModel.from_xml_string("<mujoco/>"))
  with pytest.raises(ValueError, match="another model"):
    mjx.render(other, d, context)
