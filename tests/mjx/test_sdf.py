"""Geoms with plugins of signed distance functions, which Warp functions stand for."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import warp as wp
from mujoco_warp._src import collision_sdf
from mujoco_warp._src.types import vec_pluginattr

from mjx_warp_ffi import mjx

TORUS = """<mujoco>
  <extension><plugin plugin="mujoco.sdf.torus"><instance name="torus">
    <config key="radius1" value=".15"/><config key="radius2" value=".05"/>
  </instance></plugin></extension>
  <option sdf_iterations="20" sdf_initpoints="20"/>
  <asset><mesh name="torus"><plugin instance="torus"/></mesh></asset>
  <worldbody><geom size=".1"/>
    <body pos="0.05 0.01 .06" euler="20 10 7"><freejoint/>
      <geom type="sdf" mesh="torus"><plugin instance="torus"/></geom></body>
  </worldbody></mujoco>"""
MESHES = """<mujoco>
  <asset><mesh name="rock" vertex="0 0 0 .5 0 0 0 .5 0 0 0 .5"/></asset>
  <worldbody><geom type="mesh" mesh="rock"/>
    <body pos="0 0 .1"><freejoint/><geom type="sdf" mesh="rock"/></body></worldbody></mujoco>"""


@wp.func
def torus(p: wp.vec3, attr: vec_pluginattr, slot: int) -> float:
  """A ring of radius attr[0] and thickness attr[1] in the plane z = 0."""
  away = wp.length(wp.vec2(p[0], p[1])) - attr[0]
  return wp.length(wp.vec2(away, p[2])) - attr[1]


@wp.func
def torus_slope(p: wp.vec3, attr: vec_pluginattr, slot: int) -> wp.vec3:
  """The gradient of `torus`."""
  radius = wp.length(wp.vec2(p[0], p[1]))
  away = radius - attr[0]
  return wp.normalize(wp.vec3(away * p[0] / radius, away * p[1] / radius, p[2]))


@pytest.fixture
def registered():
  own = collision_sdf.user_sdf, collision_sdf.user_sdf_grad
  mjx.register_sdf(torus, torus_slope)
  yield
  mjx.register_sdf(*own)


def loss(m: mjx.Model, d: mjx.Data) -> jax.Array:
  return jnp.sum(mjx.step(m, d).qvel)


def test_a_plugin_without_functions_is_refused_by_name():
  with pytest.raises(NotImplementedError, match="register_sdf"):
    mjx.put_model(mujoco.MjModel.from_xml_string(TORUS))


def test_functions_stand_for_the_plugin_of_a_torus(registered):
  mj_model = mujoco.MjModel.from_xml_string(TORUS)
  m, data = mjx.put_model(mj_model), mujoco.MjData(mj_model)
  d = jax.jit(mjx.forward)(m, mjx.make_data(m))
  mujoco.mj_forward(mj_model, data)
  ours = np.sort(np.asarray(d.contact.dist)[: int(d.ncon)])
  theirs = np.sort([c.dist for c in data.contact])
  np.testing.assert_allclose(ours, theirs, atol=1e-6)  # float32


def test_contacts_of_a_plugin_have_no_gradient(registered):
  m = mjx.put_model(mujoco.MjModel.from_xml_string(TORUS))
  with pytest.raises(NotImplementedError, match="SDF with a plugin"):
    jax.grad(loss, 1, allow_int=True)(m, mjx.make_data(m))


def test_contacts_of_meshes_with_sdfs_have_no_gradient():
  m = mjx.put_model(mujoco.MjModel.from_xml_string(MESHES))
  with pytest.raises(NotImplementedError, match="MESH-SDF"):
    jax.grad(loss, 1, allow_int=True)(m, mjx.make_data(m))


def test_smoothed_contacts_of_sdfs_are_refused():
  mj_model = mujoco.MjModel.from_xml_string(MESHES.replace('type="mesh" mesh="rock"', 'size=".1"'))
  m = mjx.put_model(mj_model, contact_smoothing=mjx.ContactSmoothing(width=0.1))
  with pytest.raises(NotImplementedError, match="SDFs with contact_smoothing"):
    jax.grad(loss, 1, allow_int=True)(m, mjx.make_data(m))
