"""Every stage has the gradient of its own results, with all that it builds on."""

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope, StepAdjoint
from support import helpers
from support.adjoint_case import SMOOTH, STIFF, assert_close, load, random_states
from support.stage_case import INPUTS, ZOO, StageOracle, linear, read, touching, weights, zoo

POSES = ("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis")
POSES += ("geom_xpos", "geom_xmat", "site_xpos", "site_xmat")
CENTRES = (*POSES, "subtree_com", "cdof", "cinert")
CAMLIGHT = (*CENTRES, "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
LENGTHS = (*CAMLIGHT, "ten_length")
POSITION = (*LENGTHS, "actuator_length")
FIELDS = (*CENTRES, "cvel", "cdof_dot")
PASSIVE = ("qfrc_passive", "qfrc_spring", "qfrc_damper", "qfrc_gravcomp", "qfrc_fluid")
VELOCITY = (*POSITION, "cvel", "cdof_dot", "ten_velocity", "actuator_velocity", "qfrc_bias")
VELOCITY = (*VELOCITY, *PASSIVE)
ACTUATION = (*VELOCITY, "actuator_force", "qfrc_actuator", "act_dot")
ACCELERATION = (*ACTUATION, "qfrc_smooth", "qacc_smooth")
SOLVED = (*ACTUATION, "qfrc_smooth", "qacc")

# What each stage computes that has a rule, and the functions of C MuJoCo that compute it.
STAGES = {
  "kinematics": (POSES, "kinematics"),
  "com_pos": (CENTRES, "kinematics comPos"),
  "camlight": (CAMLIGHT, "kinematics comPos camlight"),
  **dict.fromkeys(
    ("tendon", "crb", "tendon_armature", "factor_m"), (LENGTHS, "kinematics comPos camlight tendon")
  ),
  "flex": (CENTRES, "kinematics comPos"),
  **dict.fromkeys(
    ("fwd_position", "collision", "make_constraint", "transmission"), (POSITION, "fwdPosition")
  ),
  "com_vel": (FIELDS, "kinematics comPos comVel"),
  "subtree_vel": ((*FIELDS, "subtree_linvel", "subtree_angmom"), "fwdPosition comVel subtreeVel"),
  **dict.fromkeys(
    ("fwd_velocity", "passive", "rne", "tendon_bias"), (VELOCITY, "fwdPosition fwdVelocity")
  ),
  "energy_pos": ((*LENGTHS, "energy"), "fwdPosition energyPos"),
  "energy_vel": ((*LENGTHS, "energy"), "fwdPosition fwdVelocity energyVel"),
  "fwd_actuation": (ACTUATION, "fwdPosition fwdVelocity fwdActuation"),
  "fwd_acceleration": (ACCELERATION, "fwdPosition fwdVelocity fwdActuation fwdAcceleration"),
  "solve": (SOLVED, "fwdPosition fwdVelocity fwdActuation fwdAcceleration fwdConstraint"),
  "rne_postconstraint": (("xpos", "cacc", "cfrc_int", "cfrc_ext"), "forward rnePostConstraint"),
  "sensor_pos": (("sensordata",), "fwdPosition sensorPos"),
  "sensor_vel": (("sensordata",), "fwdPosition sensorPos fwdVelocity sensorVel"),
  "sensor_acc": (("sensordata", "qacc"), "forward sensorAcc"),
}
LEAVES = (
  "body_pos",
  "body_ipos",
  "body_mass",
  "jnt_axis",
  "geom_pos",
  "site_pos",
  "dof_damping",
)
OWN_LEAVES = {
  "camlight": (
    *("cam_pos", "cam_quat", "cam_pos0", "cam_poscom0", "cam_mat0", "light_pos", "light_dir"),
    *("light_pos0", "light_poscom0", "light_dir0"),
  )
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_the_gradient_of_differences_of_c_mujoco(stage):
  mj_model, m, d, state = zoo()
  names, functions = STAGES[stage]
  weight = weights(d, names)
  if stage.startswith("sensor"):  # those of later stages keep their values
    last = {"sensor_pos": 1, "sensor_vel": 2, "sensor_acc": 3}[stage]
    keep = np.repeat(mj_model.sensor_needstage <= last, mj_model.sensor_dim)
    weight["sensordata"] = weight["sensordata"] * keep
  leaves = (*LEAVES, *OWN_LEAVES.get(stage, ()))
  values = {n: getattr(d, n) for n in INPUTS} | {n: getattr(m, n) for n in leaves}
  values["body_subtreemass"] = m.body_subtreemass
  got = jax.jit(jax.grad(linear(stage, weight)))(values, m, d)
  flat = {n: x.ravel() for n, x in weight.items()}
  inputs = {k: v.copy() for k, v in state.items()}
  oracle = StageOracle(mj_model, inputs, flat, functions=functions)
  tolerance = STIFF if stage in ("solve", "sensor_acc", "rne_postconstraint") else SMOOTH
  for name in INPUTS:
    want = oracle.gradient(name)
    assert_close(np.asarray(got[name]).reshape(want.shape), want, tolerance, name)
  for name in leaves:
    want = oracle.parameter(name)
    found = np.asarray(got[name]).reshape(want.shape).copy()
    if name == "body_mass":  # with it the masses of the subtrees that it is in
      for body in range(1, mj_model.nbody):
        above = {body}
        while 0 not in above:
          above.add(int(mj_model.body_parentid[min(above)]))
        found[body] += sum(got["body_subtreemass"][b] for b in above)
    if name.endswith(("axis", "quat")):  # those of length one: the rest means nothing
      axis = getattr(mj_model, name)
      found, want = (g - axis * np.sum(g * axis, -1, keepdims=True) for g in (found, want))
    if name.startswith("body_"):
      found[0] = want[0] = 0  # the world's, which C does not read
    assert_close(found, want, tolerance, name)


@pytest.mark.parametrize(
  ("stage", "names"),
  [
    ("fwd_position", ("contact.dist", "contact.pos", "contact.frame", "actuator_length")),
    ("sensor_vel", ("sensordata",)),
    ("fwd_actuation", ("qfrc_actuator", "actuator_velocity")),
  ],
)
def test_what_contacts_and_limits_change_before_the_solve_has_the_gradient_of_forward(stage, names):
  m, d = touching()
  assert int(mjx.forward(m, d).ncon) == 2
  rng = np.random.default_rng(1)
  weight = {n: rng.standard_normal(np.shape(read(d, n))).astype(np.float32) for n in names}
  if stage == "sensor_vel":
    weight["sensordata"][-1] = 0  # the force comes from the solve

  def loss(state: tuple, name: str) -> jax.Array:
    q, v = state
    out = getattr(mjx, name)(m, d.replace(qpos=q, qvel=v))
    keep = out.ncon > jnp.arange(8)
    total = 0.0 * jnp.sum(out.qacc)  # has forward solve in its backward pass
    for n, w in weight.items():
      x = read(out, n)
      mask = keep.reshape(-1, *[1] * (x.ndim - 1)) if n.startswith("contact") else True
      total += jnp.sum(jnp.where(mask, w * x, 0))
    return total

  got, want = (jax.grad(loss)((d.qpos, d.qvel), name) for name in (stage, "forward"))
  for a, b in zip(got, want, strict=True):
    assert float(jnp.abs(b).max()) > 0 or b is want[1]
    # the same sum in another order
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * float(jnp.abs(b).max()))


def test_every_order_of_vmap_grad_and_scan_agrees():
  _, m, d, _ = zoo()
  weight = weights(d, ("xpos", "cvel", "ten_length"))
  qpos = d.qpos + 0.1 * np.random.default_rng(0).standard_normal((3, m.nq)).astype(np.float32)

  def loss(q: jax.Array) -> jax.Array:
    position = mjx.tendon(m, d.replace(qpos=q))
    velocity = mjx.com_vel(m, d.replace(qpos=q))
    parts = [(position, "xpos"), (position, "ten_length"), (velocity, "cvel")]
    return sum(jnp.sum(weight[n] * getattr(x, n)) for x, n in parts)

  def scanned(q: jax.Array) -> jax.Array:
    return jnp.sum(jax.lax.scan(lambda c, x: (c + loss(x), None), 0.0, q)[0])

  loop = jnp.stack([jax.grad(loss)(q) for q in qpos])
  orders = dict(
    inside=jax.jit(jax.vmap(jax.grad(loss)))(qpos),
    outside=jax.grad(lambda q: jnp.sum(jax.vmap(loss)(q)))(qpos),
    scan=jax.jit(jax.grad(scanned))(qpos),
    saved=jax.vmap(jax.grad(jax.checkpoint(loss)))(qpos),
  )
  for name, got in orders.items():
    np.testing.assert_allclose(got, loop, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("stage", ["kinematics", "fwd_actuation", "inverse", "euler"])
def test_differences_of_a_stage_agree_with_its_gradient(stage):
  names = dict(kinematics=("xpos",), euler=("qpos", "qvel"), inverse=("qfrc_inverse",))
  names = names.get(stage, ("qfrc_actuator", "cvel"))
  gradients = []
  for gradient in ("analytic", "fd"):
    _, m, d, _ = zoo(gradient)
    values = {n: getattr(d, n) for n in ("qpos", "ctrl")} | {"body_pos": m.body_pos}
    gradients.append(jax.grad(linear(stage, weights(d, names)))(values, m, d))
  for name, want in gradients[0].items():
    scale = max(1.0, float(jnp.abs(want).max()))
    # float32 differences have three digits
    np.testing.assert_allclose(gradients[1][name], want, atol=3e-3 * scale, err_msg=name)


def test_a_model_without_gradients_names_the_stage():
  _, m, d, _ = zoo("none")
  with pytest.raises(NotImplementedError, match="kinematics was differentiated.*gradient='none'"):
    jax.grad(lambda q: jnp.sum(mjx.kinematics(m, d.replace(qpos=q)).xpos))(d.qpos)


def test_a_result_without_a_rule_is_loud_outside_a_loop_and_in_one():
  _, m, d, _ = zoo()

  def loss(q: jax.Array, weight: jax.Array) -> jax.Array:
    out = mjx.fwd_velocity(m, d.replace(qpos=q))
    return jnp.sum(out.xpos) + weight * jnp.sum(out.contact.solref)

  with pytest.raises(NotImplementedError, match="no analytic gradient from contact.solref"):
    jax.grad(loss)(d.qpos, 1.0)

  def looped(q: jax.Array, weight: jax.Array) -> jax.Array:
    def body(d: mjx.Data, _: None) -> tuple[mjx.Data, None]:
      return mjx.fwd_velocity(m, d), None

    out, _ = jax.lax.scan(body, d.replace(qpos=q), length=2)
    floats = [x for x in jax.tree.leaves(out) if x.dtype == jnp.float32]
    others = jnp.sum(out.contact.solref) + 0 * sum(jnp.sum(x) for x in floats)
    return jnp.sum(out.xpos) + weight * others

  mjx.gradient_report(clear=True)
  gradient = jax.jit(jax.grad(looped))
  np.testing.assert_allclose(gradient(d.qpos, 0.0), jax.grad(_height)(d.qpos, m, d), atol=1e-5)
  assert mjx.gradient_report() == ()
  assert np.all(np.isnan(jax.block_until_ready(gradient(d.qpos, 1.0))))
  assert mjx.gradient_report(clear=True) == ("contact.solref",)


def _height(q: jax.Array, m: mjx.Model, d: mjx.Data) -> jax.Array:
  return jnp.sum(mjx.kinematics(m, d.replace(qpos=q)).xpos)


def test_what_a_stage_does_not_compute_passes_its_cotangent_through():
  _, m, d, _ = zoo()
  gradient = jax.grad(lambda a: jnp.sum(mjx.kinematics(m, d.replace(qacc=a)).qacc ** 2))
  np.testing.assert_allclose(gradient(jnp.arange(1.0, m.nv + 1)), 2 * np.arange(1, m.nv + 1))


def test_the_gradient_of_poses_solves_nothing():
  mj_model, *_ = zoo()
  model, data = mjw.put_model(mj_model), mjw.make_data(mj_model)
  options = dict(d=data, outputs=("xpos", "site_xmat"), scope=Scope.FORCES)
  adjoint = StepAdjoint(mj_model, model, **options).stage
  nothing = StepAdjoint(mj_model, model, d=data, scope=Scope.FORCES).stage
  assert (
    adjoint.rec.tape.count == nothing.rec.tape.count + 2
  )  # a kernel for bodies and one for sites
  assert not adjoint.evaluation.newton.rows and adjoint.geometry is None


def test_the_discrete_step_changes_no_force_but_the_acceleration_which_is_refused():
  mj_model = load(ZOO.replace('density="1.2"', 'integrator="discrete"'))
  state = random_states(mj_model, count=1, seed=3)[0]
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m).replace(**state)
  names = ("qfrc_smooth", "qfrc_passive", "qfrc_actuator")
  weight = weights(d, names)
  got = jax.grad(linear("fwd_acceleration", weight))({"qpos": d.qpos}, m, d)["qpos"]
  flat = {n: x.ravel() for n, x in weight.items()}
  functions = STAGES["fwd_acceleration"][1]
  oracle = StageOracle(mj_model, {k: v.copy() for k, v in state.items()}, flat, functions=functions)
  assert_close(np.asarray(got), oracle.gradient("qpos"), SMOOTH, "qpos")
  weight = weights(d, ("qacc_smooth",))
  with pytest.raises(NotImplementedError, match="qacc_smooth with the integrator discrete"):
    jax.grad(linear("fwd_acceleration", weight))({"qpos": d.qpos}, m, d)


def test_what_has_no_rule_in_the_forces_does_not_keep_poses_from_having_one():
  text = """<mujoco><worldbody><body><joint name="hinge" axis="0 1 0" actuatorgravcomp="true"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/></body></worldbody></mujoco>"""
  m = mjx.put_model(mujoco.MjModel.from_xml_string(text))
  d = mjx.make_data(m)

  def loss(q: jax.Array, stage: str, name: str) -> jax.Array:
    return jnp.sum(getattr(getattr(mjx, stage)(m, d.replace(qpos=q)), name))

  np.testing.assert_allclose(jax.grad(loss)(d.qpos, "kinematics", "xipos"), -0.15, rtol=1e-5)
  with pytest.raises(NotImplementedError, match="actuatorgravcomp"):
    jax.grad(loss)(d.qpos, "fwd_velocity", "qfrc_passive")


def test_forward_solves_nothing_for_the_gradient_of_poses():
  _, m, d, _ = zoo()
  weight = weights(d, ("xpos", "cvel"))
  values = {"qpos": d.qpos, "body_pos": m.body_pos}
  whole, stage = (jax.grad(linear(name, weight))(values, m, d) for name in ("forward", "com_vel"))
  for name, want in stage.items():
    helpers.assert_same(whole[name], want)  # to the last bit, as it is the same pass
