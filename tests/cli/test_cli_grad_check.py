"""The gradient check: it agrees where the gradient is right and finds one that is wrong."""

import copy
import re

import jax
import numpy as np
import pytest
import rich.console

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import common, grad_check

SMALL = ["cartpole", "--states", "2", "--warmup", "10", "--parameters", ""]


@pytest.fixture
def check():
  arguments = grad_check.make_parser().parse_args(["--states", "1", "--warmup", "5"])
  return grad_check.make_check(common.load_model("cartpole"), arguments)


def test_the_gradient_of_a_step_agrees_field_by_field(capsys):
  assert grad_check.main(SMALL) == 0
  text = capsys.readouterr().out
  agreeing = re.findall(r"^ +(\w+) .* agrees", text, re.M)
  assert agreeing == ["qpos", "qvel", "ctrl", "qfrc_applied", "xfrc_applied"]


def test_a_wrong_gradient_is_found(capsys, monkeypatch):
  step = mjx.step
  stop = jax.lax.stop_gradient
  monkeypatch.setattr(mjx, "step", lambda m, d: step(m, d.replace(ctrl=stop(d.ctrl))))
  assert grad_check.main(SMALL) == 1
  assert re.findall(r"^ +(\w+) .* differs", capsys.readouterr().out, re.M) == ["ctrl"]


def test_nan_never_agrees(capsys):
  result = grad_check.Result("qpos", errors=[float("nan"), 0.0, float("nan")])
  console = rich.console.Console()
  assert not grad_check.show([result], console, tolerance=1.0)
  assert "differs" in capsys.readouterr().out


def test_differences_for_a_parameter_are_its_derivative(check):
  """In one Euler step gravity and mass act as h times their force over the inertia."""
  (mj_data,) = check.states
  found = grad_check.parameter_differences(check, mj_data, field="opt.gravity", chosen=np.arange(3))
  step = 1e-3

  def loss(shift):
    model = copy.copy(check.mj_model)
    model.opt.gravity[2] += shift
    return check.loss_in_c(model, copy.copy(mj_data))

  # The step is affine in gravity, so that any difference is exact to rounding.
  assert found[2] == pytest.approx((loss(step) - loss(-step)) / (2 * step), rel=1e-6)
  assert found[1] == pytest.approx(0, abs=1e-9)


def test_a_gradient_along_a_quaternion_has_no_part_in_the_tangent_space():
  model = common.load_model("humanoid")
  qpos = model.qpos0.copy()
  qpos[3:7] = [0.8, 0.0, 0.6, 0.0]
  gradient = np.zeros(model.nq)
  gradient[3:7] = qpos[3:7]
  np.testing.assert_allclose(grad_check.tangent(model, qpos, gradient=gradient), 0, atol=1e-9)
  gradient[3:7] = [-0.6, 0.0, 0.8, 0.0]  # along the rotation about y: half a unit a radian
  np.testing.assert_allclose(
    grad_check.tangent(model, qpos, gradient=gradient), 0.5 * (np.arange(model.nv) == 4), atol=1e-9
  )


def test_the_states_are_exact_in_float32_and_differ(check):
  model = common.load_model("hopper")
  states = grad_check.make_states(model, 3, warmup=5, seed=0)
  qpos = np.array([s.qpos for s in states])
  np.testing.assert_array_equal(qpos, qpos.astype(np.float32))
  assert len(np.unique(qpos, axis=0)) == 3


def test_a_parameter_that_is_none_is_refused(check):
  with pytest.raises(common.ToolError, match="no_such"):
    grad_check.check_parameter(check, "no_such")


def test_a_parameter_that_the_model_has_none_of_is_left_out(check):
  assert grad_check.check_parameter(check, "tendon_stiffness").note == "the model has none"


def test_the_reference_solver_is_run_to_convergence(check):
  assert check.mj_model.opt.tolerance == 0


def test_a_model_without_an_analytic_gradient_is_told_of_the_option(capsys, monkeypatch):
  def refuse(check):
    raise NotImplementedError("no analytic gradient for: sleeping")

  monkeypatch.setattr(grad_check, "check_inputs", refuse)
  assert grad_check.main(["cartpole", "--states", "1", "--warmup", "0"]) == 2
  assert "sleeping (here: --gradient fd)" in capsys.readouterr().err


def test_a_model_in_which_nothing_moves_is_refused(tmp_path, capsys):
  (tmp_path / "a.xml").write_text("<mujoco/>", encoding="utf-8")
  assert grad_check.main([str(tmp_path / "a.xml")]) == 2
  assert "no degree of freedom" in capsys.readouterr().err
