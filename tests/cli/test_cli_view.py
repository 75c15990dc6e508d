"""The viewer's steps are MuJoCo Warp's, and its errors name what is wrong."""

import sys
import types

import mujoco
import numpy as np
import pytest

from mjx_warp_ffi.cli import common, rollout, view


def test_a_live_step_is_that_of_c_mujoco_forces_included():
  model = common.load_model("humanoid")
  data, reference = mujoco.MjData(model), mujoco.MjData(model)
  reference.ctrl[:] = data.ctrl[:] = 0.2
  step = view.live(model)
  for _ in range(10):
    step(model, data)
    mujoco.mj_step(model, reference)
  np.testing.assert_allclose(data.qpos, reference.qpos, rtol=0, atol=1e-4)  # float32, ten steps
  assert data.nefc == reference.nefc
  data.qpos[2] = 2.0  # a slider of the viewer
  step(model, data)
  assert abs(data.qpos[2] - 2.0) < 0.05


def test_a_rollout_is_played_from_its_first_state_and_again(tmp_path):
  out = tmp_path / "a.npz"
  arguments = ["cartpole", "--steps", "4", "--worlds", "2", "--ctrl-noise", "1", "--out", str(out)]
  assert rollout.main(arguments) == 0
  model = common.load_model("cartpole")
  data, step = mujoco.MjData(model), view.played(model, out, world=1)
  qpos = np.load(out)["qpos"][:, 1]
  for i in (0, 1, 2, 3, 0):
    step(model, data)
    np.testing.assert_array_equal(data.qpos, qpos[i])


def test_the_viewer_gets_the_model_the_state_and_the_step(monkeypatch, capsys):
  seen = {}

  class Viewer:
    def __init__(self, model, data, *, step_fn, server):
      seen.update(model=model, data=data, step=step_fn, server=server)

    def run(self):
      seen["step"](seen["model"], seen["data"])

  def fake(name, **attributes):
    module = types.ModuleType(name)
    module.__spec__ = types.SimpleNamespace()
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)

  fake("mjviser", Viewer=Viewer)
  fake("viser", ViserServer=lambda host, port: (host, port))
  assert view.main(["cartpole", "--port", "7070"]) == 0
  assert seen["server"] == ("127.0.0.1", 7070)  # nobody else on the network
  assert seen["data"].time == pytest.approx(seen["model"].opt.timestep)


def test_what_is_wrong_is_said_in_a_line(tmp_path, monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, "mjviser", None)
  monkeypatch.setattr(view.importlib.util, "find_spec", lambda name: None)
  assert view.main(["cartpole"]) == 2
  assert "pip install" in capsys.readouterr().err
  model = common.load_model("cartpole")
  with pytest.raises(common.ToolError, match="nothing.npz"):
    view.played(model, tmp_path / "nothing.npz", world=0)
  np.savez(tmp_path / "a.npz", qpos=np.zeros((3, 2, 5)))
  with pytest.raises(common.ToolError, match=r"expected \(steps, worlds, 2\)"):
    view.played(model, tmp_path / "a.npz", world=0)
  np.savez(tmp_path / "b.npz", qpos=np.zeros((3, 2, 2)))
  with pytest.raises(common.ToolError, match="--world 2"):
    view.played(model, tmp_path / "b.npz", world=2)
