"""The test models of MuJoCo Warp and MJX step here as in MuJoCo Warp, whatever they are about."""

import pathlib

import jax
import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi import mjx

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


def load(name: str) -> mujoco.MjModel:
  try:
    folder, path = name.split("/", 1)
    return mujoco.MjModel.from_xml_path(str(FOLDERS[folder] / path))
  except ValueError as error:
    pytest.skip(f"MuJoCo does not compile it: {error}")


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
@pytest.mark.parametrize("name", FILES)
def test_a_test_model_steps_as_in_mujoco_warp(name):
  mj_model = load(name)
  try:
    m = mjx.put_model(mj_model)
  except NotImplementedError as error:
    pytest.skip(f"MuJoCo Warp refuses it: {error}")
  d = mjx.put_data(mj_model, start(mj_model))
  try:
    reference = stepped_by_mjwarp(mj_model, d)
  except np.linalg.LinAlgError as error:  # a body without inertia
    pytest.skip(f"MuJoCo Warp's put_data refuses it: {error}")
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
