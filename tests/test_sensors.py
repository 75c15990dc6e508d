"""Every sensor that MuJoCo Warp has reads what C MuJoCo's reads, with its cutoff and its delay."""

import helpers
import jax
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.types import SensorType

XML = """
<mujoco>
  <option magnetic="0.1 0.2 0.3"><flag energy="enable"/></option>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <site name="origin" pos="0.3 0 0.2"/>
    <camera name="eye" pos="0 -3 1" xyaxes="1 0 0 0 0.2 1" resolution="64 48"/>
    <body name="trunk" pos="0 0 0.19"><freejoint/>
      <geom name="trunk" type="box" size="0.3 0.2 0.2" mass="3"/>
      <site name="imu" pos="0.1 0 0.1" euler="10 20 30"/>
      <site name="sole" type="box" size="0.4 0.3 0.1" pos="0 0 -0.2"/>
      <site name="eye" pos="0 0 0.3" euler="200 10 0"/>
      <body name="arm" pos="0.3 0 0">
        <joint name="shoulder" type="ball" range="0 0.2" limited="true" damping="0.1"/>
        <geom name="arm" type="capsule" size="0.05" fromto="0 0 0 0.4 0 0"/>
        <body name="hand" pos="0.4 0 0">
          <joint name="wrist" axis="0 1 0" range="-0.2 0.3" limited="true" damping="0.1"/>
          <geom name="hand" type="sphere" size="0.08" pos="0.1 0 0"/>
          <site name="tip" pos="0.2 0 0"/>
        </body>
      </body>
    </body>
    <body name="ball" pos="1 0.5 1"><freejoint/><geom name="ball" size="0.1"/></body>
  </worldbody>
  <tendon>
    <fixed name="cord" range="-0.1 0.1" limited="true"><joint joint="wrist" coef="1.5"/></fixed>
    <spatial name="rope"><site site="imu"/><site site="tip"/></spatial>
  </tendon>
  <actuator>
    <position name="turn" joint="wrist" kp="5"/>
    <motor name="pull" tendon="rope" gear="0.7"/>
  </actuator>
  <sensor>
    <magnetometer site="imu"/> <camprojection site="tip" camera="eye"/>
    <rangefinder site="eye"/> <rangefinder site="eye" cutoff="0.1"/>
    <jointpos joint="wrist"/> <tendonpos tendon="rope"/> <actuatorpos actuator="pull"/>
    <ballquat joint="shoulder"/> <jointlimitpos joint="wrist"/> <tendonlimitpos tendon="cord"/>
    <framepos objtype="site" objname="tip" reftype="body" refname="trunk"/>
    <framexaxis objtype="geom" objname="arm"/> <frameyaxis objtype="xbody" objname="hand"/>
    <framezaxis objtype="site" objname="imu"/>
    <framequat objtype="camera" objname="eye" reftype="site" refname="imu"/>
    <framequat objtype="body" objname="hand"/>
    <subtreecom body="trunk"/> <clock/> <e_potential/> <e_kinetic/>
    <insidesite site="sole" objtype="site" objname="imu"/>
    <insidesite site="sole" objtype="geom" objname="trunk"/>
    <distance geom1="ball" geom2="floor" cutoff="5"/> <normal geom1="ball" geom2="hand" cutoff="5"/>
    <fromto geom1="hand" geom2="floor" cutoff="5"/>
    <velocimeter site="imu"/> <gyro site="imu"/> <gyro site="imu" cutoff="0.05"/>
    <jointvel joint="wrist"/> <tendonvel tendon="rope"/> <actuatorvel actuator="turn"/>
    <ballangvel joint="shoulder"/> <jointlimitvel joint="wrist"/> <tendonlimitvel tendon="cord"/>
    <framelinvel objtype="site" objname="tip" reftype="body" refname="trunk"/>
    <frameangvel objtype="geom" objname="hand"/>
    <subtreelinvel body="trunk"/> <subtreeangmom body="trunk"/>
    <touch site="sole"/> <accelerometer site="imu"/> <force site="imu"/> <torque site="imu"/>
    <contact geom1="trunk" data="found force dist pos" num="4" reduce="netforce"/>
    <contact geom1="ball" geom2="floor" data="found"/>
    <actuatorfrc actuator="turn"/> <tendonactuatorfrc tendon="rope"/>
    <jointactuatorfrc joint="wrist"/> <jointlimitfrc joint="wrist"/>
    <tendonlimitfrc tendon="cord"/>
    <framelinacc objtype="site" objname="tip"/> <frameangacc objtype="body" objname="hand"/>
  </sensor>
</mujoco>
"""

# float32 against float64; what depends on the solved acceleration loses another digit or two.
TOLERANCE = {1: 2e-5, 2: 2e-5, 3: 2e-3}


def tense(seed: int = 0) -> tuple[mujoco.MjModel, mujoco.MjData]:
  """A state with contacts and active limits."""
  mj_model = mujoco.MjModel.from_xml_string(XML)
  mj_model.opt.tolerance, mj_model.opt.iterations = 0, 50  # float32 stops later than C
  data = mujoco.MjData(mj_model)
  for _ in range(40):
    mujoco.mj_step(mj_model, data)
  data.joint("wrist").qpos[:] = 0.4
  data.joint("shoulder").qpos[:] = np.array([np.cos(0.2), np.sin(0.2), 0, 0])
  data.qvel[:] = np.random.default_rng(seed).normal(0, 0.2, mj_model.nv)
  data.ctrl[:] = 0.5, -0.7
  for name in ("qpos", "qvel", "qacc_warmstart"):
    getattr(data, name)[:] = getattr(data, name).astype(np.float32)
  return mj_model, data


def test_each_sensor_reads_what_cs_reads():
  mj_model, data = tense()
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  result = jax.jit(mjx.forward)(m, d)
  mujoco.mj_forward(mj_model, data)
  mujoco.mj_forward(mj_model, data)  # a kinetic energy is a call late in C
  assert result.ncon == data.ncon > 0
  for i in range(mj_model.nsensor):
    kind = mujoco.mjtSensor(mj_model.sensor_type[i]).name
    at = slice(mj_model.sensor_adr[i], mj_model.sensor_adr[i] + mj_model.sensor_dim[i])
    got, expected = np.asarray(result.sensordata[at]), data.sensordata[at]
    scale = max(1.0, np.abs(expected).max())
    tolerance = TOLERANCE[int(mj_model.sensor_needstage[i])] * scale
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance, err_msg=f"{i} {kind}")


def test_every_type_of_mujoco_warp_is_among_them():
  mj_model = mujoco.MjModel.from_xml_string(XML)
  elsewhere = {"TACTILE", "USER"}  # a mesh of touch pads, in test_mjwarp_models.py; a callback
  assert set(mj_model.sensor_type) == {int(s) for s in SensorType if s.name not in elsewhere}


def test_sensors_of_a_batch_are_those_of_each_world():
  mj_model, _ = tense()
  m = mjx.put_model(mj_model)
  worlds = [mjx.put_data(mj_model, tense(seed)[1]) for seed in range(3)]
  batch = jax.tree.map(lambda *x: np.stack(x), *worlds)
  together = jax.jit(jax.vmap(mjx.forward, (None, 0)))(m, batch).sensordata
  for i, one in enumerate(worlds):
    helpers.assert_same(together[i], mjx.forward(m, one).sensordata)


def test_disabled_sensors_read_zero():
  mj_model, data = tense()
  mj_model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_SENSOR
  d = mjx.put_data(mj_model, data)
  d = d.replace(sensordata=d.sensordata + 1)
  assert not np.asarray(mjx.forward(mjx.put_model(mj_model), d).sensordata).any()


DELAYED = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody><body><joint name="slide" type="slide"/><geom size="0.1"/></body></worldbody>
  <actuator><motor joint="slide" ctrllimited="false"/></actuator>
  <sensor>
    <jointpos joint="slide"/>
    <jointpos joint="slide" delay="0.03" nsample="8"/>
    <jointvel joint="slide" delay="0.025" nsample="8" interp="linear"/>
  </sensor>
</mujoco>
"""


def test_delayed_sensors_read_the_past_as_in_c():
  mj_model = mujoco.MjModel.from_xml_string(DELAYED)
  data = mujoco.MjData(mj_model)
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  assert mj_model.nhistory > 0
  step = jax.jit(mjx.step)
  for i in range(12):
    data.ctrl[:] = np.sin(i)
    d = step(m, d.replace(ctrl=np.float32([np.sin(i)])))
    mujoco.mj_step(mj_model, data)
    np.testing.assert_allclose(d.sensordata, data.sensordata, rtol=0, atol=2e-5, err_msg=str(i))
  assert abs(data.sensordata[0] - data.sensordata[1]) > 1e-3


@pytest.mark.parametrize("site", ["eye", "origin"])
def test_a_rangefinder_reads_what_a_ray_of_its_site_meets(site):
  xml = XML.replace('<rangefinder site="eye"/>', f'<rangefinder site="{site}"/>')
  mj_model = mujoco.MjModel.from_xml_string(xml)
  m, d = mjx.put_model(mj_model), mjx.make_data(mj_model)
  d = mjx.forward(m, d)
  at = d.bind(m).site(site)
  dist, _ = mjx.ray(m, d, at.xpos, at.xmat[:, 2], bodyexclude=int(m.bind().site(site).bodyid))
  i = [int(k) for k in mj_model.sensor_type].index(mujoco.mjtSensor.mjSENS_RANGEFINDER)
  np.testing.assert_allclose(d.sensordata[mj_model.sensor_adr[i]], dist, rtol=1e-5)
