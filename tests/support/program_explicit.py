"""Run by test_devices.py in a process of its own: meshes whose axes are explicit in types."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from mjx_warp_ffi import mjx
from support import helpers

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
WORLDS = 8
STATE = mujoco.mjtState.mjSTATE_INTEGRATION

m = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path("cartpole"))))
resetting = mjx.put_model(m.spec.mj_model, autoreset=True)
rng = np.random.default_rng(0)
d = jax.vmap(lambda v: mjx.make_data(m).replace(qvel=v))(
  jnp.asarray(rng.normal(size=(WORLDS, m.nv)), jnp.float32)
)
controls = jnp.asarray(rng.normal(size=(3, m.nu)), jnp.float32)
step = jax.vmap(mjx.step, in_axes=(None, 0))
some = lambda d: d.qvel[:, 0] > 0  # noqa: E731


def loop(d):
  """Steps in a loop."""
  return jax.lax.scan(lambda d, _: (step(m, d), None), d, length=3)[0]


def shared_gradient(d):
  """The gradient of a sum over the worlds with respect to what they share."""

  def total(mass):
    several = jax.vmap(lambda d: mjx.step(m.replace(body_mass=mass), d, substeps=2))
    return jnp.sum(several(d).qvel ** 2)

  return jax.grad(total)(m.body_mass)


def rolled(d):
  """The gradient of rollouts with respect to controls."""
  roll = jax.vmap(lambda d, u: mjx.rollout(m, d, u, checkpoint_every=2), in_axes=(0, None))
  return jax.grad(lambda u: jnp.sum(roll(d, u)[0].qpos ** 2))(controls)


def candidates(d):
  """Controls that are tried in each world, by vmaps in either order."""
  inner = jax.vmap(lambda d, u: mjx.step(m, d.replace(ctrl=u)).qpos, in_axes=(None, 0))
  outer = jax.vmap(lambda d, u: mjx.step(m, d.replace(ctrl=u)).qpos, in_axes=(0, None))
  by_world = jax.vmap(inner, in_axes=(0, None))(d, controls)
  return by_world, jax.vmap(outer, in_axes=(None, 0), out_axes=1)(d, controls)


def randomized(d):
  """Another mass in each world."""
  model = mjx.set_const(m.replace(body_mass=m.body_mass * (1 + d.qvel[:, :1] ** 2)))
  return jax.vmap(mjx.step, in_axes=(mjx.model_axes(model), 0))(model, d)


CASES = {
  "step": lambda d: step(m, d),
  "loop": loop,
  "gradient": lambda d: jax.grad(lambda v: jnp.sum(loop(d.replace(qvel=v)).qpos))(d.qvel),
  "shared gradient": shared_gradient,
  "rollout": rolled,
  "candidates": candidates,
  "randomized": randomized,
  "reset": lambda d: mjx.reset(m, d, some(d)),
  "resets in a step": lambda d: step(resetting, d.replace(qvel=1e20 * d.qvel)),
  "where": lambda d: mjx.where(some(d), d, step(m, d)),
  "state": lambda d: mjx.set_state(m, d, mjx.get_state(m, d, STATE), STATE),
  "transition_fd": lambda d: jax.vmap(mjx.transition_fd, in_axes=(None, 0))(m, d),
  "step_jvp": lambda d: jax.vmap(lambda d: mjx.step_jvp(m, d, {"qvel": d.qvel}))(d),
}
mesh = jax.make_mesh((4,), ("world",), axis_types=(AxisType.Explicit,))
sharded = jax.device_put(d, NamedSharding(mesh, PartitionSpec("world")))

with jax.set_mesh(mesh):
  for name, function in CASES.items():
    found = jax.jit(function)(sharded)
    expected = jax.tree.map(np.asarray, jax.jit(function)(d))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
      # sums over worlds in another order, float32
      scale = np.abs(y).max(initial=0)
      np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5 * scale, err_msg=name)
  for name in ("step", "loop", "gradient", "reset", "where"):
    compiled = jax.jit(CASES[name]).lower(sharded).compile()
    assert "all-gather" not in compiled.as_text(), name
    out = jax.tree.leaves(jax.jit(CASES[name])(sharded))
    assert all(x.sharding.spec[0] == "world" for x in out if x.size), name
