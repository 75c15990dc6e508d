"""Every element of MuJoCo's XML that physics feels steps as in C MuJoCo, or is refused by name."""

import collections
import re
from xml.etree import ElementTree

import jax
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers, sensor_model, xml_elements
from support.xml_refused import REFUSED

STEPS = 5
DOCS = helpers.ROOT / "docs" / "models.md"

# Elements without physics, and those that need a file or a plugin that MuJoCo does not bring.
ELSEWHERE = {
  *("asset/skin", "asset/skin/bone", "deformable/skin", "deformable/skin/bone"),
  *("asset/texture", "asset/material", "asset/material/layer"),
  "sensor/tactile",  # of test_mjwarp_models.py
  *("asset/mesh/plugin/config", "body/geom/plugin/config", "actuator/plugin/config"),
  # MuJoCo 4.0 has no plugin for bodies
  *("body/plugin", "body/plugin/config", "body/flexcomp/plugin", "body/flexcomp/plugin/config"),
}
WITHOUT_PHYSICS = ("compiler", "default", "size", "statistic", "visual", "custom")


def stepped_by_both(mj_model: mujoco.MjModel) -> tuple[mjx.Data, mujoco.MjData]:
  mj_model.opt.tolerance, mj_model.opt.iterations = 1e-12, 50  # float32 stops later than C
  data = mujoco.MjData(mj_model)
  if mj_model.nkey:
    mujoco.mj_resetDataKeyframe(mj_model, data, 0)
  data.qvel[:] += np.random.default_rng(0).normal(0, 0.1, mj_model.nv)
  data.ctrl[:] += 0.1
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, data)
  step = jax.jit(mjx.step)
  for _ in range(STEPS):
    d = step(m, d)
    mujoco.mj_step(mj_model, data)
  return d, data


def assert_the_same_state(d: mjx.Data, data: mujoco.MjData) -> None:
  assert not d.overflow
  for name in ("qpos", "qvel", "act", "history", "plastic", "sensordata"):
    got, expected = np.asarray(getattr(d, name)), getattr(data, name)
    # float32 over some steps; velocities and forces feel the stiffness of constraints and flexes
    scale = max(1.0, np.abs(expected).max(initial=0))
    atol = scale * (2e-6 if name == "qpos" else 2e-4)
    np.testing.assert_allclose(got, expected, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("name", xml_elements.STEPPED)
def test_a_model_steps_as_in_c(name):
  text = xml_elements.STEPPED[name]
  mj_model = mujoco.MjModel.from_xml_string(text, xml_elements.ASSETS)
  assert_the_same_state(*stepped_by_both(mj_model))


FLAGS = """
<mujoco>
  <option density="100" viscosity="1" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.39" gravcomp="0.5"><joint name="a" type="slide" axis="0 0 1" damping="1"/>
      <geom size="0.1" pos="0 0 -0.3"/>
      <body><joint name="b" axis="0 1 0" stiffness="20" springref="60" range="3 60"
        frictionloss="0.1"/>
        <geom type="capsule" size="0.05" fromto="0 0 0 0.2 0 -0.32"/><site name="s"/></body>
    </body>
  </worldbody>
  <equality><joint joint1="b" joint2="a" polycoef="0.05 0.5 0 0 0" solref="0.1 1"/></equality>
  <actuator><motor joint="b" gear="2" ctrlrange="-0.05 0.05"/></actuator>
  <sensor><gyro site="s"/><accelerometer site="s"/></sensor>
</mujoco>
"""
REFUSED_FLAGS = {"midphase", "autoreset"}
# Of ways to compute, and what this model does without.
UNFELT = {"warmstart", "filterparent", "refsafe", "eulerdamp", "nativeccd", "multiccd", "island"}
DISABLED = {
  name.removeprefix("mjDSBL_").lower(): int(bit)
  for name, bit in mujoco.mjtDisableBit.__members__.items()
  if name.startswith("mjDSBL_")
}


@pytest.mark.parametrize("flag", sorted(DISABLED.keys() - REFUSED_FLAGS))
def test_a_disabled_part_is_absent_as_in_c(flag):
  mj_model = mujoco.MjModel.from_xml_string(FLAGS)
  _, with_it = stepped_by_both(mj_model)
  mj_model.opt.disableflags |= DISABLED[flag]
  d, without = stepped_by_both(mj_model)
  assert_the_same_state(d, without)
  same = np.allclose(with_it.qvel, without.qvel, rtol=1e-9) and any(without.sensordata)
  assert same == (flag in UNFELT)


@pytest.mark.parametrize("feature", REFUSED)
def test_what_mujoco_warp_lacks_is_refused_with_its_reason(feature):
  text, reason = REFUSED[feature]
  mj_model = mujoco.MjModel.from_xml_string(text)
  with pytest.raises((NotImplementedError, ValueError), match=f"^{re.escape(reason)}$"):
    mjx.put_model(mj_model)


def test_the_docs_list_all_that_is_refused():
  rows = re.findall(r"^\| ([^|]+) \| `([^|]+)` \|$", DOCS.read_text(), re.M)
  assert rows == [(feature, reason) for feature, (_, reason) in REFUSED.items()]


def schema() -> set[str]:
  """The elements of MuJoCo's XML, as paths below the root; those of a body under `body`."""
  paths, stack = set(), []
  for line in mujoco.mj_printSchema(False, False).splitlines():
    if found := re.match(r"^( *)(?:\(world\))?(\w+) \(.\)", line):
      stack = [*stack[: len(found[1]) // 3], found[2]]
      paths.add("/".join(stack[1:]))
  return {p for p in paths if p and p.split("/")[0] not in WITHOUT_PHYSICS}


def elements(text: str) -> set[str]:
  """The paths of the elements in a model."""
  found = set()
  queue = collections.deque([("", ElementTree.fromstring(text))])
  while queue:
    path, element = queue.popleft()
    for child in element:
      inside = child.tag in ("frame", "replicate")
      body = child.tag == "worldbody" or (child.tag == "body" and path == "body")
      below = path if inside else "body" if body else f"{path}/{child.tag}".lstrip("/")
      found |= {below}
      queue.append((below, child))
  return found


def test_every_element_of_mujocos_schema_is_here():
  texts = [*xml_elements.STEPPED.values(), *(text for text, _ in REFUSED.values())]
  covered = set().union(*map(elements, [*texts, sensor_model.XML]))
  assert schema() - ELSEWHERE <= covered
  assert not ELSEWHERE & covered and ELSEWHERE <= schema()
