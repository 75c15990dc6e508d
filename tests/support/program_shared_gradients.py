"""Run by test_devices.py in a process of its own: gradients of what the devices share."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import warp as wp
from jax.sharding import Mesh, PartitionSpec

from mjx_warp_ffi import mjx
from mjx_warp_ffi.third_party.warp import jax_kernel

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
mesh = Mesh(np.array(jax.devices()), ("world",))
BY_WORLD, EVERYWHERE = PartitionSpec("world"), PartitionSpec()

mj_model = mujoco.MjModel.from_xml_string("""<mujoco><worldbody>
  <geom type="plane" size="1 1 1"/>
  <body pos="0 0 0.099"><joint name="x" type="slide" axis="1 0 0"/><joint axis="0 1 0"/>
    <joint type="slide" axis="0 0 1"/><geom size="0.1" pos="0.02 0 0"/></body></worldbody>
  <actuator><motor joint="x"/></actuator></mujoco>""")
m = mjx.put_model(mj_model)
differences = mjx.put_model(mj_model, gradient="fd")
resetting = mjx.put_model(mj_model, autoreset=True)
d = mjx.make_data(m)
down, origin = jnp.array([0.0, 0.0, -1.0]), jnp.array([0.0, 0.0, 3.0])


@wp.kernel
def product(a: wp.array(dtype=float), b: wp.array(dtype=float), c: wp.array(dtype=float)):
  """Elementwise."""
  i = wp.tid()
  c[i] = a[i] * b[i]


multiply = jax_kernel(product, enable_backward=True)


def moved(v, model=m):
  """A world that differs from the others by its velocity, after the positions were computed."""
  return mjx.forward(model, d.replace(qpos=0.01 * v, qvel=v))


def step(model, v, **options):
  """The velocity after a step."""
  return mjx.step(model, d.replace(qvel=v), **options).qvel


def heavier(mass, model=m):
  """A model with another mass."""
  return model.replace(body_mass=mass)


def rolled(model, v, ctrl, every=None):
  """The positions of a rollout."""
  return mjx.rollout(model, d.replace(qvel=v), ctrl, checkpoint_every=every)[0].qpos


mass, ctrl = m.body_mass, jnp.full((4, 1), 0.1)
# what all devices share, and a function of it and of the velocity of a world
CASES = {
  "a step": (mass, lambda k, v: step(heavier(k), v)),
  "substeps": (mass, lambda k, v: step(heavier(k), v, substeps=3)),
  "differences": (mass, lambda k, v: step(heavier(k, differences), v)),
  "a step that may reset": (mass, lambda k, v: step(heavier(k, resetting), v)),
  "a rollout": (ctrl, lambda u, v: rolled(m, v, u)),
  "a rollout from a shared state": (d.qvel, lambda q, v: rolled(m, q, v[:1] * ctrl, 2)),
  "forward": (mass, lambda k, v: moved(v, heavier(k)).qacc),
  "inverse": (mass, lambda k, v: mjx.inverse(heavier(k), d.replace(qacc=v)).qfrc_inverse),
  "contact forces": (
    m.geom_friction,
    lambda k, v: mjx.contact_force(m.replace(geom_friction=k), moved(v), 0),
  ),
  "a ray": (origin, lambda p, v: mjx.ray(m, moved(v), p, down)[0]),
  "a distance": (
    m.geom_size,
    lambda k, v: mjx.geom_distance(m.replace(geom_size=k), moved(v), 0, 1)[0],
  ),
  "the inertia matrix": (
    m.dof_armature,
    lambda k, v: mjx.full_m(m.replace(dof_armature=k), moved(v)),
  ),
  "constants": (mass, lambda k, v: mjx.set_const(heavier(k * (2 + v[0]))).dof_invweight0),
  "a kernel": (mass, lambda k, v: multiply(k, v[:2])[0]),
}
velocities = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)

for name, (shared, function) in CASES.items():

  def total(shared, v, function=function):
    """A number whose derivative is another one in each world."""
    return jnp.sum(jax.vmap(lambda v: jnp.sum(function(shared, v) ** 2))(v))

  def mapped(shared, v, total=total):
    """The same, computed on all devices."""
    each = jax.shard_map(
      lambda shared, v: total(shared, v)[None],
      mesh=mesh,
      in_specs=(EVERYWHERE, BY_WORLD),
      out_specs=BY_WORLD,
    )
    return jnp.sum(each(shared, v))

  inside = jax.shard_map(
    jax.grad(total), mesh=mesh, in_specs=(EVERYWHERE, BY_WORLD), out_specs=EVERYWHERE
  )
  expected = np.asarray(jax.jit(jax.grad(total))(shared, velocities))
  for gradient in (jax.grad(mapped), inside):
    found = jax.jit(gradient)(shared, velocities)
    # sums in another order, float32
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * scale, err_msg=name)
  assert np.abs(expected).max() > 0, name
