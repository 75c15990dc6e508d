"""The rollout tool: what it writes can be read back, and bad input is named."""

import re

import mujoco
import numpy as np
import pytest
from PIL import Image

from mjx_warp_ffi.cli import common, picture, rollout

TINY = ["--width", "32", "--height", "24", "--fps", "50"]


def test_arrays_and_a_video_are_written(tmp_path, capsys):
  out, video = tmp_path / "a.npz", tmp_path / "a.gif"
  arguments = ["cartpole", "--worlds", "2", "--steps", "12", "--chunk", "5", "--ctrl-noise", "0.1"]
  assert rollout.main([*arguments, *TINY, "--out", str(out), "--video", str(video)]) == 0
  model = common.load_model("cartpole")
  with np.load(out, allow_pickle=False) as saved:
    assert set(saved) == set(rollout.SAVED)
    assert saved["qpos"].shape == (12, 2, model.nq)
    dt = model.opt.timestep
    # float32 adds up the time steps
    np.testing.assert_allclose(saved["time"], dt * np.arange(1, 13), rtol=1e-5)
    assert np.abs(saved["qpos"][-1, 0] - saved["qpos"][-1, 1]).max() > 0
  with Image.open(video) as image:
    assert image.size == (32, 24)
  assert capsys.readouterr().out.count("wrote") == 2


def test_the_rollout_is_that_of_c_mujoco(tmp_path):
  model = common.load_model("cartpole")
  ctrl = np.full((20, model.nu), 0.5)
  np.savez(tmp_path / "u.npz", ctrl=ctrl)
  out = tmp_path / "a.npz"
  arguments = ["cartpole", "--steps", "30", "--ctrl", str(tmp_path / "u.npz"), "--out", str(out)]
  assert rollout.main(arguments) == 0
  mj_data = mujoco.MjData(model)
  mj_data.ctrl[:] = 0.5  # the last controls are held
  for _ in range(30):
    mujoco.mj_step(model, mj_data)
  with np.load(out) as saved:
    # float32 over 30 smooth steps
    np.testing.assert_allclose(saved["qpos"][-1, 0], mj_data.qpos, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ([], "nothing to write"),
    (["--out", "a.npz", "--world", "1"], "not one of 1"),
    (["--video", "a.avi"], r"\.gif, \.webp or \.mp4"),
    (["--out", "a.npz", "--keyframe", "no"], "no keyframe 'no'"),
    (["--out", "a.npz", "--ctrl", "no.npz"], "no.npz"),
  ],
)
def test_bad_arguments_are_named(arguments, message, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert rollout.main(["cartpole", *arguments]) == 2
  assert re.search(message, capsys.readouterr().err)


def test_controls_with_pickles_are_refused(tmp_path):
  path = tmp_path / "u.npy"
  np.save(path, np.array([object()]), allow_pickle=True)
  with pytest.raises(common.ToolError, match="pickles are not read"):
    rollout.load_controls(path, steps=1, worlds=1, nu=1)


def test_controls_of_another_shape_are_refused(tmp_path):
  path = tmp_path / "u.npy"
  np.save(path, np.zeros((5, 3)))
  with pytest.raises(common.ToolError, match=r"shape \(5, 2, 3\), expected \(steps, 1\)"):
    rollout.load_controls(path, steps=5, worlds=2, nu=1)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
  path = tmp_path / "u.npz"
  path.write_bytes(b"PK\x03\x04 and no more")
  with pytest.raises(common.ToolError, match="u.npz"):
    rollout.load_controls(path, steps=5, worlds=2, nu=1)


def test_a_model_without_a_camera_is_seen_from_the_front(tmp_path):
  path = tmp_path / "a.xml"
  path.write_text(
    "<mujoco><worldbody><light pos='0 0 3'/><body><freejoint/><geom size='.3'/></body></worldbody>"
    "</mujoco>"
  )
  model, camera = picture.with_camera(path, None)
  (frame,) = picture.render(model, model.qpos0[None], camera=camera, size=(40, 30))
  assert frame[12:18, 17:23].max() > 0.1  # the ball in the middle
  with pytest.raises(common.ToolError, match="no camera 'side'; there are: none"):
    picture.with_camera(path, "side")


def test_a_camera_is_found_by_name_and_number():
  path = common.find_model("humanoid")
  model, first = picture.with_camera(path, None)
  assert first == 0
  name = model.camera(model.ncam - 1).name
  assert picture.with_camera(path, name)[1] == model.ncam - 1
  assert picture.with_camera(path, str(model.ncam - 1))[1] == model.ncam - 1


def test_an_unstable_world_is_reported(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(
    rollout, "simulate", lambda *_, **__: ({"qpos": np.full((2, 3, 1), np.nan)}, 2)
  )
  assert rollout.main(["cartpole", "--worlds", "3", "--out", str(tmp_path / "a.npz")]) == 1
  text = capsys.readouterr().out
  assert "2 worlds had more contacts" in text and "3 worlds became unstable" in text
