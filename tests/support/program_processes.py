"""Run by test_devices.py twice: one of two processes that form one program."""

import sys

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from mjx_warp_ffi import mjx
from support import helpers

port, rank = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
assert len(jax.devices()) == 4 and len(jax.local_devices()) == 2

m = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path("cartpole"))))
step = jax.vmap(mjx.step, in_axes=(None, 0))
q = 0.1 * np.arange(16, dtype=np.float32).reshape(8, 2)
d = jax.vmap(lambda q: mjx.make_data(m).replace(qpos=q))(jnp.asarray(q))
alone = jax.jit(step)(m, d)

mesh = jax.make_mesh((4,), ("world",))
by_world = NamedSharding(mesh, PartitionSpec("world"))


def spread(x):
  """An array of which each device has its part."""
  host = np.asarray(x)
  return jax.make_array_from_callback(host.shape, by_world, lambda index: host[index])


everywhere = NamedSharding(mesh, PartitionSpec())
ds = jax.tree.map(spread, d)
ms = jax.tree.map(
  lambda x: jax.make_array_from_callback(x.shape, everywhere, lambda i, x=x: np.asarray(x)[i]), m
)
out = jax.jit(step)(ms, ds)
got = multihost_utils.process_allgather(out.qpos, tiled=True)
np.testing.assert_array_equal(got, alone.qpos)
total = jax.jit(lambda m, d: jnp.sum(step(m, d).qpos))(ms, ds)
np.testing.assert_allclose(float(total), float(jnp.sum(alone.qpos)), rtol=1e-6)
