"""Run by test_devices.py in a process of its own, with eight virtual CPU devices."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mjx_warp_ffi import mjx
from support import helpers

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
WORLDS = 16
BY_WORLD, EVERYWHERE = PartitionSpec("world"), PartitionSpec()


def gradient(q, m, d):
  """The gradient of a sum over worlds."""
  return jax.grad(lambda q: jnp.sum(step(m, d.replace(qpos=q)).qvel))(q)


def run(m, d):
  """Three steps in a loop."""
  return jax.lax.scan(lambda d, _: (step(m, d), None), d, None, length=3)[0]


def text(function, *args):
  """The compiled program."""
  return jax.jit(function).lower(*args).compile().as_text()


step = jax.vmap(mjx.step, in_axes=(None, 0))
m = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path("cartpole"))))
d = jax.vmap(lambda q: mjx.make_data(m).replace(qpos=q))(
  0.1 * jnp.arange(2 * WORLDS, dtype=jnp.float32).reshape(WORLDS, 2)
)
mesh = Mesh(np.array(jax.devices()), ("world",))
ds = jax.device_put(d, NamedSharding(mesh, BY_WORLD))
ms = jax.device_put(m, NamedSharding(mesh, EVERYWHERE))
expected = np.asarray(jax.jit(step)(m, d).qpos)
expected_run = np.asarray(jax.jit(run)(m, d).qpos)
expected_gradient = np.asarray(jax.jit(gradient)(d.qpos, m, d))

# jit over sharded arrays
for function, args in ((step, (ms, ds)), (run, (ms, ds)), (gradient, (ds.qpos, ms, ds))):
  assert "all-gather" not in text(function, *args), function
out = jax.jit(step)(ms, ds)
assert out.qpos.sharding.is_equivalent_to(ds.qpos.sharding, 2)
np.testing.assert_array_equal(out.qpos, expected)
np.testing.assert_array_equal(jax.jit(run)(ms, ds).qpos, expected_run)
np.testing.assert_array_equal(jax.jit(gradient)(ds.qpos, ms, ds), expected_gradient)

# a model with a row a world, which lies elsewhere
per_world = jax.vmap(lambda k: m.replace(body_mass=m.body_mass * k))(
  jnp.linspace(1, 2, WORLDS, dtype=jnp.float32)
)
both = jax.vmap(mjx.step)
shards = jax.device_put(per_world, NamedSharding(mesh, BY_WORLD))
np.testing.assert_array_equal(jax.jit(both)(shards, ds).qvel, jax.jit(both)(per_world, d).qvel)


def averages_gradients_in_shard_map():
  """Each device has its own worlds and the gradient of all."""
  mapped = jax.jit(
    jax.shard_map(step, mesh=mesh, in_specs=(EVERYWHERE, BY_WORLD), out_specs=BY_WORLD)
  )
  np.testing.assert_array_equal(mapped(ms, ds).qpos, expected)
  averaged = jax.jit(
    jax.shard_map(
      lambda q, m, d: jax.lax.psum(jnp.sum(gradient(q, m, d), axis=0), "world"),
      mesh=mesh,
      in_specs=(BY_WORLD, EVERYWHERE, BY_WORLD),
      out_specs=EVERYWHERE,
    )
  )(ds.qpos, ms, ds)
  np.testing.assert_allclose(averaged, expected_gradient.sum(axis=0), rtol=1e-5)


def maps_over_devices():
  """The same by pmap."""
  split = jax.tree.map(lambda x: x.reshape(8, WORLDS // 8, *x.shape[1:]), d)
  out = jax.pmap(lambda d: step(m, d))(split)
  np.testing.assert_array_equal(np.asarray(out.qpos).reshape(WORLDS, 2), expected)


# XLA of JAX 0.11.2 crashes on arrays without elements there: docs/troubleshooting.md
if jax.__version__ != "0.11.2":
  averages_gradients_in_shard_map()
  maps_over_devices()

# one device that is not the first
third = jax.devices()[3]
out = jax.jit(step)(jax.device_put(m, third), jax.device_put(d, third))
assert out.qpos.devices() == {third}
np.testing.assert_array_equal(out.qpos, expected)

# a pool of contacts is that of the worlds on one device
balls = "".join(f"<body pos='{i} 0 .09'><freejoint/><geom size='.1'/></body>" for i in range(4))
m = mjx.put_model(
  mujoco.MjModel.from_xml_string(
    f"<mujoco><worldbody><geom type='plane' size='9 9 1'/>{balls}</worldbody></mujoco>"
  )
)
full = jax.vmap(lambda _: mjx.make_data(m, naconmax=1))(jnp.arange(WORLDS))
for d, number in ((full, 64), (jax.device_put(full, NamedSharding(mesh, BY_WORLD)), 8)):
  try:
    mjx.check_overflow(jax.jit(step)(m, d))
  except ValueError as error:
    assert f"pass naconmax={number} to make_data" in str(error), error
  else:
    raise AssertionError("no overflow")
