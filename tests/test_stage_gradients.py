"""Every stage has the gradient of its own results, with all that it builds on."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest

import adjoint_oracle
from adjoint_case import SMOOTH, STIFF, assert_close, load, random_states
from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope, StepAdjoint

# Free, ball, slide and hinge joints, a mocap body, cameras, a spatial tendon, activations, a fluid.
ZOO = """<mujoco><option timestep="0.004" density="1.2"><flag contact="disable" energy="enable"/>
  </option><worldbody><light name="sun" pos="0 0 3" dir=".1 0 -1" mode="targetbody" target="free"/>
    <camera name="world" pos="1 1 1" mode="targetbody" target="free"/>
    <body name="hand" mocap="true" pos=".5 0 1"><geom size=".02"/>
      <site name="m" pos=".1 0 0"/></body>
    <body name="free" pos="0 0 0.6"><freejoint/><geom type="capsule" size="0.1 0.2" pos=".1 0 0"/>
      <site name="s" pos="0.1 0 0" euler="170 10 0"/>
      <camera name="eye" pos="0 .1 .2" euler="10 20 30"/>
      <camera name="track" pos="0 .1 .2" euler="10 20 30" mode="track"/>
      <camera name="trackcom" pos="0 .1 .2" euler="10 20 30" mode="trackcom"/>
      <light name="lamp" pos="0 0 .2" dir=".1 .2 -1"/>
      <light name="follow" pos="0 .1 .2" dir=".1 .2 -1" mode="track"/>
      <light name="over" pos="0 .1 .2" dir=".1 .2 -1" mode="trackcom"/>
      <body name="b" pos="0.3 0 0"><joint name="ball" type="ball" pos=".01 0 .02" damping=".1"/>
        <geom size="0.1" pos="0.2 .1 0"/><site name="t" pos="0.2 0 0.1"/>
        <body name="c" pos=".2 0 .2" gravcomp=".4">
          <joint name="slide" type="slide" axis="1 .2 0" damping="0.1" stiffness="2"/>
          <joint name="hinge" axis="0 1 0" stiffness="1" armature=".02"/>
          <geom type="box" size=".05 .06 .07" euler="10 20 30"/>
          <camera name="watch" pos="0 .1 .2" mode="targetbodycom" target="free"/>
        </body></body></body></worldbody>
  <tendon><spatial name="rope" stiffness="2" damping=".1"><site site="s"/><site site="t"/></spatial>
    <spatial name="line"><site site="m"/><site site="t"/></spatial></tendon>
  <actuator><motor name="motor" joint="hinge"/><position joint="slide" kp="3" kv=".2"/>
    <general tendon="rope" gear="0.5" dyntype="filter" dynprm=".1" biastype="affine"
      biasprm="0 -1 -.3"/></actuator>
  <sensor><jointpos joint="hinge"/><gyro site="t"/><framepos objtype="site" objname="t"/>
    <accelerometer site="s"/><subtreelinvel body="b"/><actuatorfrc actuator="motor"/>
    <framelinvel objtype="xbody" objname="c" reftype="site" refname="s"/><tendonpos tendon="rope"/>
  </sensor></mujoco>"""

POSES = ("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis")
POSES += ("geom_xpos", "geom_xmat", "site_xpos", "site_xmat")
CENTRES = (*POSES, "subtree_com", "cdof", "cinert")
CAMLIGHT = (*CENTRES, "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
LENGTHS = (*CAMLIGHT, "ten_length")
POSITION = (*LENGTHS, "actuator_length")
FIELDS = (*CENTRES, "cvel")
VELOCITY = (*POSITION, "cvel", "ten_velocity", "actuator_velocity", "qfrc_bias", "qfrc_passive")
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
  "rne_postconstraint": (("xpos", "cacc"), "forward rnePostConstraint"),
  "sensor_pos": (("sensordata",), "fwdPosition sensorPos"),
  "sensor_vel": (("sensordata",), "fwdPosition sensorPos fwdVelocity sensorVel"),
  "sensor_acc": (("sensordata", "qacc"), "forward sensorAcc"),
}
INPUTS = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat")
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


@dataclasses.dataclass
class StageOracle(adjoint_oracle.Oracle):
  """The gradient of a random linear function of what functions of C MuJoCo compute."""

  functions: str = ""

  def value(self) -> float:
    mujoco.mj_resetData(self.m, self.d)
    for name, x in self.inputs.items():
      getattr(self.d, name)[:] = x
    for function in self.functions.split():
      getattr(mujoco, f"mj_{function}")(self.m, self.d)
    return sum(float(np.sum(c * getattr(self.d, n).ravel())) for n, c in self.cotangents.items())


@functools.cache
def zoo(gradient: str = "analytic") -> tuple[mujoco.MjModel, mjx.Model, mjx.Data, dict]:
  mj_model = load(ZOO)
  state = random_states(mj_model, count=1, seed=3)[0]
  m = mjx.put_model(mj_model, gradient=gradient)
  return mj_model, m, mjx.make_data(m).replace(**state), state


def weights(d: mjx.Data, names: tuple[str, ...], seed: int = 0) -> dict[str, np.ndarray]:
  rng = np.random.default_rng(seed)
  return {n: rng.standard_normal(np.shape(getattr(d, n))).astype(np.float32) for n in names}


def linear(stage: str, weight: dict[str, np.ndarray]):
  """A linear function of the results of a stage, of some inputs and leaves by name."""

  def function(values: dict, m: mjx.Model, d: mjx.Data) -> jax.Array:
    d = d.replace(**{n: x for n, x in values.items() if n in INPUTS})
    m = m.tree_replace({n: x for n, x in values.items() if n not in INPUTS})
    out = getattr(mjx, stage)(m, d)
    return sum(jnp.sum(w * getattr(out, n)) for n, w in weight.items())

  return function


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


# Bodies that touch, adhere and reach a limit: what depends on contacts and rows before the solve.
TOUCHING = """<mujoco><option timestep="0.004"/><worldbody><geom type="plane" size="5 5 1"/>
    <body name="a" pos="0 0 .29"><joint name="turn" type="ball"/>
      <joint name="lift" type="slide" axis="0 0 1" range="-1 .3" limited="true"/>
      <geom name="egg" type="ellipsoid" size=".2 .25 .3"/><site name="s" pos=".1 0 0"/>
      <body name="b" pos=".3 0 0"><joint name="elbow" axis="0 1 0" range="-1 .2" limited="true"/>
        <geom name="ball" size=".1" pos=".2 0 0"/><site name="t" pos=".2 0 .1"/></body></body>
    <body name="pillar" pos="1 0 .3"><freejoint/><geom name="post" size=".1"/></body></worldbody>
  <tendon><spatial name="rope" range="0 .3" limited="true"><site site="s"/>
    <site site="t"/></spatial></tendon>
  <actuator><adhesion body="a" ctrlrange="0 1" gain="3"/><motor joint="elbow"/></actuator>
  <sensor><jointlimitpos joint="elbow"/><jointlimitvel joint="elbow"/>
    <tendonlimitpos tendon="rope"/>
    <distance geom1="ball" geom2="post" cutoff="3"/><framepos objtype="site" objname="t"/>
    <jointlimitfrc joint="elbow"/></sensor></mujoco>"""


@functools.cache
def touching() -> tuple[mjx.Model, mjx.Data]:
  mj_model = mujoco.MjModel.from_xml_string(TOUCHING)
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m, nconmax=8, njmax=40)
  rng = np.random.default_rng(0)
  qpos = d.qpos.at[:4].set(jnp.array([0.9, 0.1, 0.2, 0.3])).at[4].set(-0.01).at[5].set(0.3)
  return m, d.replace(qpos=qpos, qvel=0.2 * rng.standard_normal(m.nv), ctrl=[0.5, 0.2])


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
    keep = out.ncon > jnp.arange(8)  # places without a contact hold what was there before
    total = 0.0
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


def read(d: mjx.Data, name: str) -> jax.Array:
  return functools.reduce(getattr, name.split("."), d)


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
    return jnp.sum(out.xpos) + weight * jnp.sum(out.cdof_dot)

  with pytest.raises(NotImplementedError, match="no analytic gradient from cdof_dot"):
    jax.grad(loss)(d.qpos, 1.0)

  def looped(q: jax.Array, weight: jax.Array) -> jax.Array:
    def body(d: mjx.Data, _: None) -> tuple[mjx.Data, None]:
      return mjx.fwd_velocity(m, d), None

    out, _ = jax.lax.scan(body, d.replace(qpos=q), length=2)
    floats = [x for x in jax.tree.leaves(out) if x.dtype == jnp.float32]
    others = jnp.sum(out.cdof_dot) + 0 * sum(jnp.sum(x) for x in floats)
    return jnp.sum(out.xpos) + weight * others

  mjx.gradient_report(clear=True)
  gradient = jax.jit(jax.grad(looped))
  np.testing.assert_allclose(gradient(d.qpos, 0.0), jax.grad(_height)(d.qpos, m, d), atol=1e-5)
  assert mjx.gradient_report() == ()
  assert np.all(np.isnan(jax.block_until_ready(gradient(d.qpos, 1.0))))
  assert mjx.gradient_report(clear=True) == ("cdof_dot",)


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
  levels = len(adjoint.sweep.topology.levels)
  assert adjoint.tape.count == levels + 2  # the sweep, and a kernel for bodies and one for sites
  assert not adjoint.newton.rows and adjoint.geometry is None


@pytest.mark.parametrize("text", [ZOO, TOUCHING], ids=["zoo", "touching"])
def test_inverse_dynamics_have_the_gradient_of_differences_also_by_the_acceleration(text):
  mj_model = load(text)
  state = random_states(mj_model, count=1, seed=3)[0]
  if text is TOUCHING:  # friction, limits and adhesion
    state["qpos"][:6] = [0.9, 0.1, 0.2, 0.3, -0.01, 0.3]
    state["qvel"] *= 0.1
  qacc = np.random.default_rng(4).standard_normal(mj_model.nv)
  state["qacc"] = qacc.astype(np.float32).astype(float)  # both sides see the same numbers
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m, nconmax=8, njmax=40).replace(**state)
  weight = weights(d, ("qfrc_inverse", "qfrc_bias", "qfrc_passive", "xpos"))
  leaves = ("body_mass", "dof_damping", "dof_armature", "geom_pos", "opt.gravity")
  names = tuple(n for n in (*INPUTS, "qacc") if state[n].size)
  values = {n: getattr(d, n) for n in names}
  values |= {n: functools.reduce(getattr, n.split("."), m) for n in leaves}

  def loss(values: dict) -> jax.Array:
    moved = d.replace(**{n: values[n] for n in names})
    out = mjx.inverse(m.tree_replace({n: values[n] for n in leaves}), moved)
    return sum(jnp.sum(w * getattr(out, n)) for n, w in weight.items())

  got = jax.jit(jax.grad(loss))(values)
  flat = {n: x.ravel() for n, x in weight.items()}
  inputs = {k: v.copy() for k, v in state.items()}
  oracle = StageOracle(mj_model, inputs, flat, functions="inverse")
  oracle.value()
  assert oracle.d.nefc > 5 or text is ZOO
  for name in names:
    want = oracle.gradient(name)
    assert_close(np.asarray(got[name]).reshape(want.shape), want, STIFF, name)
  for name in leaves:
    want = oracle.parameter(name)
    found = np.asarray(got[name]).reshape(want.shape).copy()
    if name == "body_mass":
      found[0] = want[0] = 0
    assert_close(found, want, STIFF, name)


def test_inverse_dynamics_without_a_rule_are_refused_by_name():
  mj_model, m, d, _ = zoo()

  def loss(q: jax.Array, m: mjx.Model, name: str) -> jax.Array:
    return jnp.sum(getattr(mjx.inverse(m, d.replace(qpos=q)), name))

  for name in ("sensordata", "qfrc_constraint"):
    with pytest.raises(NotImplementedError, match=f"no analytic gradient from {name}"):
      jax.grad(loss)(d.qpos, m, name)
  flag = int(mujoco.mjtEnableBit.mjENBL_INVDISCRETE)
  other = m.tree_replace({"opt.enableflags": m.opt.enableflags | flag})
  with pytest.raises(NotImplementedError, match="the discrete inverse"):
    jax.grad(loss)(d.qpos, other, "qfrc_inverse")
