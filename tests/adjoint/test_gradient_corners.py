"""Gradients where a feature, a parameter and a limit of MuJoCo Warp meet: right, or refused."""

import ast
import pathlib

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import mjx_warp_ffi
from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data import fields

BOX = '<geom type="box" size=".1 .2 .15" pos=".1 .05 .02" contype="0" conaffinity="0"/>'
HINGE, BALL = '<joint axis="0 1 .2"/>', '<joint type="ball" pos=".1 .05 -.07"/>'
SLIDE = '<joint type="slide" axis="1 .2 .3"/>'


def put(xml):
  m = mjx.put_model(mujoco.MjModel.from_xml_string(f"<mujoco>{xml}</mujoco>"))
  return m, mjx.make_data(m)


def differences(f, x, eps=1e-6):
  """Central differences by each element."""
  steps = eps * np.eye(x.size).reshape(x.size, *x.shape)
  return np.array([(f(x + e) - f(x - e)) / (2 * eps) for e in steps]).reshape(x.shape)


MOTOR = """<worldbody><body><joint name="a" axis="0 1 0"/><geom size=".1" pos=".1 0 .1"/></body>
</worldbody><actuator><dcmotor joint="a" motorconst="0.4" resistance="0.9" input="pos vel"
controller="2 .5 .3 0 0 50"/></actuator>"""


def test_the_activation_of_a_motor_counts_also_where_its_parameters_have_a_gradient():
  m, d = put(MOTOR)
  assert m.na == 1
  x = dict(act=np.array([0.4]), ctrl=np.array([0.5, 0.1]), gain=np.asarray(m.actuator_gainprm))

  def loss(x):
    model = m.replace(actuator_gainprm=x["gain"])
    out = mjx.step(model, d.replace(qpos=jnp.array([0.3]), act=x["act"], ctrl=x["ctrl"]))
    return out.qvel[0] + 0.7 * out.act[0]

  def c_loss(**changes):
    c = mujoco.MjModel.from_xml_string(f"<mujoco>{MOTOR}</mujoco>")
    y = x | changes
    c.actuator_gainprm[:] = y["gain"]
    data = mujoco.MjData(c)
    data.qpos[:], data.act[:], data.ctrl[:] = 0.3, y["act"], y["ctrl"]
    mujoco.mj_step(c, data)
    return data.qvel[0] + 0.7 * data.act[0]

  got = jax.grad(loss)({k: jnp.asarray(v, jnp.float32) for k, v in x.items()})
  for name, value in x.items():
    want = differences(lambda y, name=name: c_loss(**{name: y}), value.astype(float))
    np.testing.assert_allclose(got[name], want, atol=1e-5, err_msg=name)


def test_no_rule_reads_a_parameter_when_it_is_built():
  # its array is filled by the call: until then it holds nothing, if each world has a row
  leaves = {f.name.split(".")[-1] for f in fields.model_leaves()}
  package = pathlib.Path(mjx_warp_ffi.__file__).parent
  found = [
    f"{path.name}:{node.lineno}"
    for path in sorted((package / "mjx").rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.Attribute)
    and node.attr == "numpy"
    and isinstance(node.value, ast.Attribute)
    and node.value.attr in leaves
  ]
  assert not found


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "discrete"])
@pytest.mark.parametrize("kind", ["filter", "integrator", "filterexact"])
def test_activations_are_kept_where_actuation_is_off(kind, integrator):
  m, d = put(f"""<option integrator="{integrator}"><flag actuation="disable"/></option>
    <worldbody><body><joint name="a"/><geom size=".1" pos=".1 0 .1"/></body></worldbody>
    <actuator><general joint="a" dyntype="{kind}" dynprm=".1" gainprm="2"/></actuator>""")
  act = jnp.array([0.4], jnp.float32)
  value, gradient = jax.value_and_grad(lambda a: mjx.step(m, d.replace(act=a)).act[0])(act)
  assert (float(value), gradient.tolist()) == (np.float32(0.4), [1.0])


DAMPER = """<option integrator="{}"/><worldbody><body><joint name="a" axis="0 1 0"/>
<geom size=".1" pos=".1 0 .1"/></body></worldbody>
<actuator><damper joint="a" kv="1.6" gear="2" ctrlrange="0 1"/></actuator>"""


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "implicit", "discrete"])
def test_a_control_beyond_its_limits_acts_as_the_limit_and_has_no_gradient(integrator):
  xml = DAMPER.format(integrator)
  m, d = put(xml)
  c = mujoco.MjModel.from_xml_string(f"<mujoco>{xml}</mujoco>")

  def c_step(u):
    data = mujoco.MjData(c)
    data.qvel[:], data.ctrl[:] = 1, u
    mujoco.mj_step(c, data)
    return data.qvel[0]

  def step(u):
    return mjx.step(m, d.replace(qvel=jnp.ones(1), ctrl=u)).qvel[0]

  slope = jax.jit(jax.value_and_grad(step))
  for u in (-0.5, 0.5, 1.5):
    value, gradient = slope(jnp.array([u], jnp.float32))
    np.testing.assert_allclose(value, c_step(u), rtol=1e-6)
    np.testing.assert_allclose(gradient[0], (c_step(u + 1e-6) - c_step(u - 1e-6)) / 2e-6, atol=1e-5)


def tendon(bodies, sites, more='armature=".1"'):
  path = "".join(f'<site site="{s}"/>' for s in sites)
  return f"""<worldbody><site name="w" pos=".3 .2 .4"/>{bodies}</worldbody>
    <tendon><spatial {more}>{path}</spatial></tendon>"""


def body(name, joints, pos="0 0 .1"):
  return f'<body name="{name}" pos="{pos}">{joints}{BOX}<site name="{name}" pos=".1 .2 .1"/></body>'


def pinned(joints, kind):
  eq = f'<{kind} body1="b" body2="world" anchor=".1 .2 .3"/>'
  return f"<worldbody>{body('b', joints)}</worldbody><equality>{eq}</equality>"


RK4 = '<option integrator="RK4"><flag contact="disable"/></option>'
TWO = body("a", HINGE) + body("b", HINGE, ".4 .3 .2")
ACROSS = "armature of tendons across branches of the tree"
AFTER = "of bodies that have joints after a ball joint"


@pytest.mark.parametrize(
  ("xml", "what"),
  [
    (tendon(TWO, "ab"), ACROSS),
    (tendon(TWO, "wab"), ACROSS),
    (tendon(body("a", BALL + SLIDE), "wa"), f"armature of spatial tendons {AFTER}"),
    (pinned(BALL + SLIDE, "connect"), f"connects and welds {AFTER}"),
    (pinned(BALL + SLIDE, "weld"), f"connects and welds {AFTER}"),
    (RK4 + pinned(BALL, "connect"), "RK4 with connects or welds and contacts off"),
  ],
)
def test_what_mujoco_computes_otherwise_than_it_says_is_refused(xml, what):
  m, d = put(xml)
  with pytest.raises(NotImplementedError, match=what):
    jax.grad(lambda v: mjx.step(m, d.replace(qvel=v)).qpos.sum())(d.qvel)


@pytest.mark.parametrize(
  "xml",
  [
    tendon(TWO, "ab", ""),
    tendon(body("a", HINGE), "wa"),
    tendon(body("a", BALL + SLIDE), "wa", 'stiffness="2"'),
    pinned(BALL, "connect"),
    pinned(SLIDE + BALL, "weld"),
  ],
)
def test_their_neighbours_have_a_gradient(xml):
  m, d = put(xml)
  gradient = jax.grad(lambda v: mjx.step(m, d.replace(qvel=v)).qpos.sum())(d.qvel)
  assert jnp.isfinite(gradient).all() and gradient.any()


def test_a_contact_without_a_rule_is_nan_by_all_that_moves_it():
  m, d = put("""<worldbody><geom type="capsule" size=".14 .11"/>
    <body><freejoint/><geom type="ellipsoid" size=".06 .136 .109"/></body></worldbody>""")
  place = [0.07537869, -0.04443143, -0.14596140]  # so deep that no features explain it
  turn = [0.36309729, 0.27877891, -0.23166772, -0.85835467]
  d = d.replace(qpos=np.array(place + turn))
  names = ("geom_size", "geom_quat", "geom_pos")

  def loss(x):
    return mjx.step(m.replace(**x), d).qvel.sum()

  x = {n: getattr(m, n) for n in names}
  value, gradient = jax.jit(jax.value_and_grad(loss))(x)
  assert jnp.isfinite(value)
  for name in names:
    assert jnp.isnan(gradient[name]).all(), name
