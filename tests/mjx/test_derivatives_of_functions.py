"""Every public function has a gradient that is right, or refuses one: none is silently zero."""

import functools
import inspect

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx

XML = """<mujoco><option timestep="0.004"><flag energy="enable"/></option>
  <worldbody><geom type="plane" size="5 5 1"/>
    <body name="a" pos="0 0 0.5"><joint name="slide" type="slide" axis="0 0 1" damping="0.1"/>
      <geom type="capsule" size="0.1 0.2"/><site name="s" pos="0.1 0 0" euler="170 10 0"/>
      <body name="b" pos="0.3 0 0"><joint name="hinge" axis="0 1 0" stiffness="1"/>
        <geom type="sphere" size="0.1" pos="0.2 0 0"/><site name="t" pos="0.2 0 0.1"/></body>
    </body></worldbody>
  <tendon><spatial name="rope" stiffness="2"><site site="s"/><site site="t"/></spatial></tendon>
  <actuator><motor joint="hinge"/><general tendon="rope" gear="0.5"/></actuator>
  <sensor><jointpos joint="hinge"/><gyro site="t"/></sensor></mujoco>"""


def _stage(name: str, *fields: str):
  return lambda m, d: [getattr(getattr(mjx, name)(m, d), f) for f in fields]


# Of each function of a state some numbers that it computes.
FUNCTIONS = dict(
  step=lambda m, d: [mjx.step(m, d).qpos, mjx.step(m, d).qvel],
  forward=lambda m, d: [mjx.forward(m, d).qacc],
  rollout=lambda m, d: [mjx.rollout(m, d, jnp.ones((2, m.nu)))[0].qpos],
  full_m=lambda m, d: [mjx.full_m(m, d)],
  mul_m=lambda m, d: [mjx.mul_m(m, d, jnp.arange(1.0, m.nv + 1))],
  jac=lambda m, d: list(mjx.jac(m, d, jnp.ones(3), 2)),
  jac_body=lambda m, d: list(mjx.jac_body(m, d, 2)),
  jac_body_com=lambda m, d: list(mjx.jac_body_com(m, d, 2)),
  jac_geom=lambda m, d: list(mjx.jac_geom(m, d, 2)),
  jac_site=lambda m, d: list(mjx.jac_site(m, d, 1)),
  apply_ft=lambda m, d: [mjx.apply_ft(m, d, jnp.ones(3), jnp.ones(3), jnp.ones(3), 2)],
  xfrc_accumulate=lambda m, d: [mjx.xfrc_accumulate(m, d)],
  tendon_jacobian=lambda m, d: [mjx.tendon_jacobian(m, d)],
  actuator_moment=lambda m, d: [mjx.actuator_moment(m, d)],
  deriv_smooth_vel=lambda m, d: [mjx.deriv_smooth_vel(m, d)],
  constraint_rows=lambda m, d: [mjx.constraint_rows(m, d).force],
  contact_force=lambda m, d: [mjx.contact_force(m, d)],
  geom_distance=lambda m, d: list(mjx.geom_distance(m, d, [0, 1], [2, 0])),
  ray=lambda m, d: [mjx.ray(m, d, jnp.array([0.3, 0.0, 2.0]), jnp.array([0.1, 0.0, -1.0]))[0]],
  ray_normal=lambda m, d: [mjx.ray_normal(m, d, d.site_xpos, d.site_xmat[..., 2])[2]],
  get_state=lambda m, d: [mjx.get_state(m, d, mujoco.mjtState.mjSTATE_PHYSICS)],
  set_state=lambda m, d: [
    mjx.set_state(m, d, 2.0 * jnp.concatenate([d.qpos, d.qvel]), _POSITIONS).qpos
  ],
  reset=lambda m, d: [mjx.reset(m, d, jnp.array(False)).qpos],
  where=lambda m, d: [mjx.where(jnp.array(True), d, d).qpos],
  transition_fd=lambda m, d: list(mjx.transition_fd(m, d))[:1],
  step_jvp=lambda m, d: [mjx.step_jvp(m, d, {"qvel": jnp.ones(m.nv)})[0].qpos],
  rne=_stage("rne", "qfrc_bias"),
  inverse=lambda m, d: [mjx.inverse(m, d.replace(qacc=jnp.ones(m.nv))).qfrc_inverse],
  energy_pos=_stage("energy_pos", "energy"),
  energy_vel=_stage("energy_vel", "energy"),
  sensor_pos=_stage("sensor_pos", "sensordata"),
  sensor_vel=_stage("sensor_vel", "sensordata"),
  sensor_acc=_stage("sensor_acc", "sensordata"),
  rne_postconstraint=_stage("rne_postconstraint", "cacc"),
  subtree_vel=_stage("subtree_vel", "subtree_linvel"),
  com_pos=_stage("com_pos", "subtree_com"),
  com_vel=_stage("com_vel", "cvel"),
)
_POSITIONS = mujoco.mjtState.mjSTATE_QPOS | mujoco.mjtState.mjSTATE_QVEL
FUNCTIONS |= {
  name: _stage(name, "qpos", "xpos")
  for name in "kinematics camlight flex tendon crb tendon_armature factor_m".split()
}
FUNCTIONS |= {
  name: _stage(name, "xpos", "qfrc_passive")
  for name in "collision make_constraint transmission fwd_position passive tendon_bias".split()
}
FUNCTIONS |= dict(
  fwd_velocity=_stage("fwd_velocity", "qfrc_bias", "qacc"),
  fwd_actuation=_stage("fwd_actuation", "qfrc_actuator", "qacc"),
  fwd_acceleration=_stage("fwd_acceleration", "qacc_smooth", "qacc"),
  solve=_stage("solve", "qacc"),
)
FUNCTIONS |= {name: _stage(name, "qpos") for name in "euler implicit rungekutta4 discrete".split()}
# No function of a state, or one whose results are drawn, are counts or leave JAX.
OTHERS = """capacity_peaks check_overflow clear_caches create_render_context get_data get_data_into
  get_depth get_rgb get_segmentation gradient_report id2name is_sparse make_data model_axes name2id
  put_data put_model refit_bvh register_sdf render render_with_segmentation set_const state_size
  suggest_sizes warmup""".split()


@functools.cache
def scene() -> tuple[mjx.Model, mjx.Data]:
  m = mjx.put_model(mujoco.MjModel.from_xml_string(XML))
  d = mjx.make_data(m).replace(qpos=[-0.22, 0.4], qvel=[0.1, -0.3], ctrl=[0.2, 0.1])
  force = np.zeros((m.nbody, 6), np.float32)
  force[1:] = 0.5
  return m, mjx.forward(m, d.replace(xfrc_applied=force))


def test_every_public_function_is_here():
  public = {
    name for name in dir(mjx) if inspect.isfunction(getattr(mjx, name)) and not name.startswith("_")
  }
  assert public == {*FUNCTIONS, *OTHERS}


# What shows the solver's own matrices, and derivatives.
REFUSING = set(
  "actuator_moment constraint_rows deriv_smooth_vel step_jvp tendon_jacobian transition_fd".split()
)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_is_differentiated_rightly_or_refuses(name):
  m, d = scene()
  function, rng = FUNCTIONS[name], np.random.default_rng(1)
  weights: list = []

  def loss(q: jax.Array) -> jax.Array:
    found = function(m, mjx.forward(m, d.replace(qpos=q)))
    if not weights:
      weights.extend(rng.standard_normal(np.shape(x)).astype(np.float32) for x in found)
    return sum(jnp.sum(w * x) for w, x in zip(weights, found, strict=True))

  try:
    loss(d.qpos)
  except ValueError as error:
    assert name == "discrete" and "opt.integrator" in str(error)
    return
  try:
    gradient = np.asarray(jax.grad(loss)(d.qpos))
  except NotImplementedError as error:
    assert name in REFUSING and str(error)
    return
  assert name not in REFUSING
  h = np.float32(1e-3)
  expected = [
    (float(loss(d.qpos.at[i].add(h))) - float(loss(d.qpos.at[i].add(-h)))) / (2 * h)
    for i in range(m.nq)
  ]
  # float32 differences over a stiff contact: enough to tell a derivative from none
  scale = max(1e-2, float(np.abs(expected).max()))
  np.testing.assert_allclose(gradient, expected, atol=5e-2 * scale)
