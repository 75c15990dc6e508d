"""Every sensor that MuJoCo Warp has reads what C MuJoCo's reads, with its cutoff and its delay."""

import jax
import mujoco
import numpy as np
import pytest
from mujoco_warp._src.types import SensorType

from mjx_warp_ffi import mjx
from support import helpers
from support.sensor_model import XML

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
