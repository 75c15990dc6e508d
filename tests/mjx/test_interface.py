"""Fields by name: what an object's row or numbers are, in Model and Data."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support.helpers import model_path

XML = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="target" mocap="true" pos="1 2 3"><site name="goal"/></body>
    <body name="root" pos="0 0 2"><freejoint name="free"/><geom name="trunk" size="0.1"/>
      <camera name="eye"/><light name="lamp"/>
      <body name="arm" pos="0 0 1">
        <joint name="shoulder" type="ball"/><geom name="upper" size="0.1"/>
        <body name="hand" pos="0 0 1"><joint name="wrist"/><geom name="palm" size="0.1"/>
          <site name="tip"/></body></body></body>
  </worldbody>
  <tendon><fixed name="cord"><joint joint="wrist" coef="2"/></fixed></tendon>
  <equality><weld name="hold" body1="hand" body2="target" active="false"/></equality>
  <actuator><motor name="twist" joint="wrist"/><intvelocity name="drive" joint="wrist" kp="3"/>
  </actuator>
  <sensor>
    <jointpos name="angle" joint="wrist"/><framepos name="place" objtype="site" objname="tip"/>
  </sensor>
</mujoco>
"""


@pytest.fixture(scope="module")
def robot():
  spec = mujoco.MjSpec.from_string(XML)
  mj_model = spec.compile()
  data = mujoco.MjData(mj_model)
  rng = np.random.default_rng(0)
  mujoco.mj_integratePos(mj_model, data.qpos, rng.normal(size=mj_model.nv), 1.0)
  data.qvel[:], data.ctrl[:] = rng.normal(size=mj_model.nv), (0.5, -0.5)
  mujoco.mj_forward(mj_model, data)
  return spec, mj_model, data, mjx.put_model(mj_model), mjx.put_data(mj_model, data)


DATA_FIELDS = [
  ("body", "arm", "xpos xquat xipos cvel subtree_com xfrc_applied"),
  ("joint", "free", "qpos qvel qacc qfrc_bias"),
  ("joint", "shoulder", "qpos qvel xanchor xaxis qfrc_constraint"),
  ("joint", "wrist", "qpos qvel qfrc_actuator"),
  ("geom", "palm", "xpos xmat"),
  ("site", "tip", "xpos xmat"),
  ("camera", "eye", "xpos xmat"),
  ("light", "lamp", "xpos xdir"),
  ("tendon", "cord", "length velocity"),
  ("actuator", "twist", "ctrl force length velocity"),
  ("actuator", "drive", "ctrl force"),
  ("sensor", "angle", "data"),
  ("sensor", "place", "data"),
]


@pytest.mark.parametrize(("kind", "name", "names"), DATA_FIELDS)
def test_a_field_of_an_object_is_that_of_mujocos_named_access(robot, kind, name, names):
  _, _, data, m, d = robot
  bound, theirs = getattr(d.bind(m), kind)(name), getattr(data, kind)(name)
  for field in names.split():
    got, expected = getattr(bound, field), getattr(theirs, field)
    np.testing.assert_allclose(np.ravel(got), np.ravel(expected), rtol=1e-6, err_msg=field)
  assert bound.id == theirs.id


def test_matrices_keep_their_shape_and_one_number_is_a_scalar(robot):
  *_, m, d = robot
  assert d.bind(m).geom("palm").xmat.shape == (3, 3)
  assert d.bind(m).joint("wrist").qpos.shape == ()
  assert d.bind(m).joint("shoulder").qpos.shape == (4,)
  assert d.bind(m).sensor("place").data.shape == (3,)


def test_several_objects_give_theirs_one_after_another(robot):
  _, mj_model, data, m, d = robot
  bound = d.bind(m).joint(["wrist", "free"])
  expected = np.r_[data.joint("wrist").qpos, data.joint("free").qpos]
  np.testing.assert_allclose(bound.qpos, expected, rtol=1e-6)
  assert d.bind(m).body(["arm", 0]).xpos.shape == (2, 3)
  np.testing.assert_allclose(m.bind().body(["arm", "hand"]).mass, mj_model.body_mass[3:5], 1e-6)


def test_a_model_has_leaves_and_static_fields(robot):
  _, mj_model, _, m, _ = robot
  np.testing.assert_allclose(m.bind().geom("palm").size, mj_model.geom("palm").size, rtol=1e-6)
  assert m.bind().joint("shoulder").type == mujoco.mjtJoint.mjJNT_BALL
  assert m.bind().joint("free").damping.shape == (6,)  # of the dofs
  np.testing.assert_allclose(m.bind().actuator("drive").gainprm[0], 3.0)
  heavier = m.bind().body("hand").set("mass", 9.0)
  assert heavier.body_mass[4] == 9.0 and m.body_mass[4] != 9.0
  with pytest.raises(AttributeError, match="structure"):
    m.bind().joint("wrist").set("type", 0)


def test_setting_a_field_gives_a_new_data(robot):
  *_, m, d = robot
  changed = d.bind(m).joint("shoulder").set("qpos", [0, 1, 0, 0])
  np.testing.assert_array_equal(changed.qpos[7:11], [0, 1, 0, 0])
  np.testing.assert_array_equal(changed.qpos[:7], d.qpos[:7])
  changed = d.bind(m).body("target").set("mocap_pos", jnp.array([4.0, 5, 6]))
  np.testing.assert_array_equal(changed.mocap_pos, [[4, 5, 6]])
  changed = d.bind(m).actuator(["drive", "twist"]).set("ctrl", [7.0, 8.0])
  np.testing.assert_array_equal(changed.ctrl, [8, 7])
  changed = d.bind(m).equality("hold").set("active", True)
  assert changed.eq_active.tolist() == [True]


def test_elements_of_the_spec_are_bound_as_in_mjx(robot):
  spec, mj_model, data, m, d = robot
  hand = d.bind(m, spec.body("hand"))
  np.testing.assert_allclose(hand.xpos, data.body("hand").xpos, rtol=1e-6)
  bodies = d.bind(m, [spec.body("arm"), spec.body("hand")])
  np.testing.assert_allclose(bodies.xpos, data.xpos[3:5], rtol=1e-6)
  np.testing.assert_allclose(m.bind(spec.geom("palm")).size, mj_model.geom("palm").size, 1e-6)
  place = d.bind(m, spec.sensor("place"))
  np.testing.assert_allclose(
    place.sensordata if False else place.data, data.sensor("place").data, 1e-6
  )
  with pytest.raises(ValueError, match="one kind"):
    d.bind(m, [spec.body("arm"), spec.geom("palm")])
  other = mujoco.MjSpec.from_string("<mujoco><worldbody><body name='a'/></worldbody></mujoco>")
  other.compile()
  with pytest.raises(ValueError, match="another MjSpec"):
    d.bind(m, other.body("a"))


def test_batches_keep_their_leading_axes(robot):
  *_, m, d = robot
  worlds = jax.tree.map(lambda x: jnp.stack([x, x + x]), d)
  assert worlds.bind(m).body("arm").xpos.shape == (2, 3)
  assert worlds.bind(m).joint("free").qpos.shape == (2, 7)
  inside = jax.jit(jax.vmap(lambda d: d.bind(m).geom(["palm", "trunk"]).xmat))(worlds)
  assert inside.shape == (2, 2, 3, 3)


def test_unknown_names_list_what_there_is(robot):
  *_, m, d = robot
  with pytest.raises(KeyError, match="target, root, arm, hand"):
    d.bind(m).body("leg")
  with pytest.raises(AttributeError, match="valid kinds are"):
    d.bind(m).limb("arm")
  with pytest.raises(AttributeError, match="'ctrl' of a body"):
    _ = d.bind(m).body("arm").ctrl
  with pytest.raises(KeyError, match="the model has"):
    d.bind(m).geom(99)


STEPPED = ["hand", "drives"]  # equalities, tendons and muscles; every kind of actuator


@pytest.mark.parametrize("name", STEPPED)
def test_equalities_switched_and_forces_applied_at_run_time_act_as_in_c(name):
  mj_model = mujoco.MjModel.from_xml_path(str(model_path(name)))
  data = mujoco.MjData(mj_model)
  data.eq_active[:] = 1 - mj_model.eq_active0
  data.qfrc_applied[:] = 0.1
  data.xfrc_applied[1:] = 0.05
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  for _ in range(5):
    mujoco.mj_step(mj_model, data)
    d = jax.jit(mjx.step)(m, d)
  np.testing.assert_allclose(d.qpos, data.qpos, rtol=0, atol=2e-4)  # float32 over five steps
  np.testing.assert_allclose(d.qvel, data.qvel, rtol=0, atol=2e-2)


def test_a_keyframe_is_a_state():
  mj_model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody>"
    "<keyframe><key qpos='0.5' qvel='2'/></keyframe></mujoco>"
  )
  data = mujoco.MjData(mj_model)
  mujoco.mj_resetDataKeyframe(mj_model, data, 0)
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m).replace(qpos=m.key_qpos[0], qvel=m.key_qvel[0])
  mujoco.mj_step(mj_model, data)
  np.testing.assert_allclose(mjx.step(m, d).qpos, data.qpos, rtol=1e-6)


DELAYED = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody><body gravcomp="1"><joint name="slide" type="slide" damping="1"/>
    <geom size="0.1"/></body></worldbody>
  <actuator><motor joint="slide" delay="0.03" nsample="8"/></actuator>
</mujoco>
"""


def test_delayed_controls_act_when_they_do_in_c():
  mj_model = mujoco.MjModel.from_xml_string(DELAYED)
  data = mujoco.MjData(mj_model)
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  step, forces = jax.jit(mjx.step), []
  for i in range(8):
    data.ctrl[:] = i + 1
    d = step(m, d.replace(ctrl=np.float32([i + 1])))
    mujoco.mj_step(mj_model, data)
    forces.append(float(d.actuator_force[0]))
    np.testing.assert_allclose(d.qvel, data.qvel, rtol=1e-5, err_msg=str(i))
  assert forces[:3] == [0, 0, 0] and forces[4:] == [2, 3, 4, 5]
