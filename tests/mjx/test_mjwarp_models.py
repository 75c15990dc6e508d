"""The test models of MuJoCo Warp and MJX step here as in MuJoCo Warp, or it is known why not."""

import pathlib
import re

import jax
import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp
from mujoco_warp._src import collision_sdf
from mujoco_warp.test_data.collision_sdf.utils import register_sdf_plugins

from mjx_warp_ffi import mjx
from support import helpers

FOLDERS = {
  "mujoco_warp": pathlib.Path(mjw.__file__).parent / "test_data",
  "mjx": pathlib.Path(mujoco.__file__).parent / "mjx" / "test_data",  # of the extra `peers`
}
FILES = [
  f"{name}/{path.relative_to(folder).as_posix()}"
  for name, folder in FOLDERS.items()
  for path in sorted(folder.rglob("*.xml"))
]

STEPS = 3
# Those that do not step: who refuses them, and how its message begins.
REFUSED = {
  "mujoco_warp/collision_sdf/torus.xml": (
    "MuJoCo's compiler",
    "Error: Error opening file 'torus.obj'",
  ),
  "mjx/actuator/arm26.xml": (
    "MuJoCo's compiler",
    "Error: Lengthrange computation did not converge in actuator 1",
  ),
  "mjx/actuator/general_dyntype.xml": (
    "MuJoCo Warp's `put_data`",
    "Matrix is not positive definite",
  ),
  "mjx/constraints.xml": (
    "MuJoCo's compiler",
    "Error: joint 'joint5' in tendon 1, wrap 1 must be slide or hinge",
  ),
}


@pytest.fixture(scope="module", autouse=True)
def plugins():
  """Functions for MuJoCo's plugins of signed distances."""
  own = collision_sdf.user_sdf, collision_sdf.user_sdf_grad
  register_sdf_plugins(mjw)
  mjx.register_sdf(collision_sdf.user_sdf, collision_sdf.user_sdf_grad)
  yield
  mjx.register_sdf(*own)


def load(name: str) -> mujoco.MjModel:
  folder, path = name.split("/", 1)
  return mujoco.MjModel.from_xml_path(str(FOLDERS[folder] / path))


def stepped_by_mjwarp(mj_model: mujoco.MjModel, sizes: mjx.Data) -> mjw.Data:
  m, d = mjw.put_model(mj_model), None
  with wp.ScopedDevice("cpu"):
    d = mjw.put_data(
      mj_model, start(mj_model), nconmax=sizes.sizes.nconmax, njmax=sizes.sizes.njmax
    )
    for _ in range(STEPS):
      mjw.step(m, d)
  return d


def start(mj_model: mujoco.MjModel) -> mujoco.MjData:
  data = mujoco.MjData(mj_model)
  if mj_model.nkey:
    mujoco.mj_resetDataKeyframe(mj_model, data, 0)
  mujoco.mj_forward(mj_model, data)
  return data


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if name not in REFUSED])
def test_a_test_model_steps_as_in_mujoco_warp(name):
  mj_model = load(name)
  m, d = mjx.put_model(mj_model), mjx.put_data(mj_model, start(mj_model))
  reference = stepped_by_mjwarp(mj_model, d)
  step = jax.jit(mjx.step)
  for _ in range(STEPS):
    d = step(m, d)
  for field in ("qpos", "qvel", "act", "sensordata"):
    got, expected = np.asarray(getattr(d, field)), getattr(reference, field).numpy()[0]
    if got.size:
      assert np.isfinite(got).all()
      # the same code; where contacts lie in another order their sum rounds otherwise
      scale = max(1.0, np.abs(expected).max())
      np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 * scale, err_msg=field)


@pytest.mark.parametrize("name", [name for name in REFUSED if name in FILES])
def test_a_test_model_that_does_not_step_is_refused_with_its_reason(name):
  who, message = REFUSED[name]
  error = ValueError if "compiler" in who else np.linalg.LinAlgError
  with pytest.raises(error, match=f"^{re.escape(message)}"):
    stepped_by_mjwarp(mj_model := load(name), mjx.make_data(mj_model))


def test_the_docs_list_the_test_models_that_do_not_step():
  text = (helpers.ROOT / "docs" / "models.md").read_text(encoding="utf-8")
  rows = re.findall(r"^\| `(.+\.xml)` \| (.+) \| `(.+)` \|$", text, re.M)
  assert rows == [(name, *reason) for name, reason in REFUSED.items()]
