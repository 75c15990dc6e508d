"""The demo, small: it runs, compares, draws, and fails when the worlds are wrong."""

import re

import mujoco
import numpy as np
import pytest

from mjx_warp_ffi.cli import common, demo, picture

SMALL = ["--worlds", "4", "--steps", "40", "--checked", "2", "--check-steps", "40"]


@pytest.fixture
def blank_frame(monkeypatch):
  """Leaves the ray tracer, which has a test of its own, out of the demo."""
  monkeypatch.setattr(picture, "crowd", lambda *_: np.ones((4, 6, 3)))


def test_the_demo_agrees_with_c_mujoco_and_writes_a_picture(tmp_path, capsys, blank_frame):
  out = tmp_path / "demo.png"
  assert demo.main([*SMALL, "--out", str(out)]) == 0
  text = capsys.readouterr().out
  assert re.search(r"steps per second +[\d,]+\n", text)
  assert re.search(r"real-time factor +[\d.,]+\n", text)
  assert float(re.search(r"largest error +(\S+)", text)[1]) < demo.TOLERANCE
  assert out.read_bytes().startswith(b"\x89PNG")


def test_the_demo_fails_when_the_worlds_are_wrong(tmp_path, capsys, blank_frame, monkeypatch):
  exact = demo.simulate_in_c
  monkeypatch.setattr(demo, "simulate_in_c", lambda *args, **kw: exact(*args, **kw) + 0.01)
  assert demo.main([*SMALL, "--out", str(tmp_path / "demo.png")]) == 2
  assert "report this" in capsys.readouterr().err


def test_a_rollout_that_turns_to_nan_fails_the_demo(tmp_path, capsys, blank_frame, monkeypatch):
  exact = demo.simulate_in_c
  monkeypatch.setattr(demo, "simulate_in_c", lambda *args, **kw: exact(*args, **kw) * np.nan)
  assert demo.main([*SMALL, "--out", str(tmp_path / "demo.png")]) == 2


def test_fewer_steps_than_a_chunk_are_refused(capsys):
  assert demo.main(["--steps", "5"]) == 2
  assert "--steps 5 is less than --chunk 20" in capsys.readouterr().err


def test_every_world_starts_elsewhere_with_a_unit_quaternion():
  model = common.load_model("humanoid")
  qpos = demo.initial_positions(model, 50)
  assert len(np.unique(qpos, axis=0)) == 50
  # float32 rounds each of the four components by at most 6e-8
  np.testing.assert_allclose(np.linalg.norm(qpos[:, 3:7], axis=1), 1, atol=3e-7)


def test_a_rendered_crowd_shows_bodies_in_front_of_the_floor():
  model = common.load_model("humanoid")
  qpos = np.tile(model.qpos0, (4, 1))
  frame = picture.crowd(common.find_model("humanoid"), qpos)
  assert frame.shape == (480, 720, 3)
  assert 0 <= frame.min() < frame.max() <= 1
  # The colours run from blue to orange over the copies; the floor is grey.
  saturation = np.ptp(frame, axis=-1)
  assert 0.01 < (saturation > 0.25).mean() < 0.5


def test_worlds_are_rendered_each_in_its_own_state():
  model = mujoco.MjModel.from_xml_string("""
    <mujoco><worldbody>
      <light pos="0 0 5"/><camera pos="0 -3 0" xyaxes="1 0 0 0 0 1"/>
      <body><joint type="slide" axis="1 0 0"/><geom size=".3" rgba="1 0 0 1"/></body>
    </worldbody></mujoco>""")
  left, right = picture.render(model, np.array([[-0.8], [0.8]]), camera=0, size=(40, 30))
  red_left, red_right = (frame[..., 0] - frame[..., 1] > 0.1 for frame in (left, right))
  assert red_left[:, :20].any() and not red_left[:, 20:].any()
  assert red_right[:, 20:].any() and not red_right[:, :20].any()
