"""The doctor: what it makes of healthy and of broken machines."""

import dataclasses
import json

import pytest

from mjx_warp_ffi.cli import doctor

BOUNDS = {"jax": ">=0.8,<0.12", "warp-lang": ">=1.19,<1.20"}
HEALTHY = doctor.Facts(
  python=(3, 12, 1),
  versions={"jax": "0.11.2", "warp-lang": "1.19.0", "matplotlib": "3.9", "mujoco-mjx": "3.17.0"},
  bounds=BOUNDS,
  system="Linux-6.1",
  wsl=False,
  nvidia_gpu=True,
  driver=(13, 0),
  jax_platforms=("cpu", "cuda"),
  warp_devices=("cpu", "cuda:0"),
  settings={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
  cache="/home/me/.cache/warp",
  cache_writable=True,
)
NO_GPU = dataclasses.replace(
  HEALTHY, nvidia_gpu=False, driver=(), jax_platforms=("cpu",), warp_devices=("cpu",)
)


def test_a_healthy_machine_has_no_complaint():
  assert {finding.status for finding in doctor.diagnose(HEALTHY)} == {"ok"}


def test_a_machine_without_a_gpu_works_on_its_cpu():
  findings = {finding.subject: finding for finding in doctor.diagnose(NO_GPU)}
  assert findings["GPU"].status == "note"
  assert "bad" not in {finding.status for finding in findings.values()}


@pytest.mark.parametrize(
  ("facts", "change", "status", "remedy"),
  [
    (HEALTHY, {"python": (3, 10, 2)}, "bad", "Python 3.11"),
    (HEALTHY, {"versions": {"jax": "0.11.0"}}, "bad", "pip install 'warp-lang>=1.19,<1.20'"),
    (HEALTHY, {"versions": {"jax": "0.12.0", "warp-lang": "1.19.1"}}, "bad", "'jax>=0.8,<0.12'"),
    (HEALTHY, {"versions": {"jax": "0.8", "warp-lang": "1.19.1"}}, "note", "[peers]"),
    (HEALTHY, {"jax_platforms": ("cpu",)}, "bad", "[cuda13]"),
    (
      HEALTHY,
      {"jax_platforms": ("cpu",), "settings": {"JAX_PLATFORMS": "cpu"}},
      "bad",
      "unset JAX_PLATFORMS",
    ),
    (HEALTHY, {"jax_platforms": ()}, "bad", "unset JAX_PLATFORMS"),
    (HEALTHY, {"warp_devices": ("cpu",), "driver": ()}, "bad", "12.4"),
    (HEALTHY, {"driver": (12, 2)}, "bad", "update to 12.4"),
    (HEALTHY, {"settings": {}}, "note", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
    (HEALTHY, {"cache_writable": False}, "bad", "WARP_CACHE_PATH"),
    (NO_GPU, {"nvidia_gpu": True}, "note", "nvidia-smi"),
    (NO_GPU, {"wsl": True}, "note", "WSL"),
    (NO_GPU, {"settings": {"CUDA_VISIBLE_DEVICES": ""}}, "note", "unset CUDA_VISIBLE_DEVICES"),
    (NO_GPU, {"system": "macOS-14"}, "note", "on the CPU"),
  ],
)
def test_each_fault_is_found_with_its_remedy(facts, change, status, remedy):
  findings = doctor.diagnose(dataclasses.replace(facts, **change))
  assert any(f.status == status and remedy in f.remedy for f in findings)


def test_the_doctor_steps_a_model_here_and_reports_as_json(capsys):
  assert doctor.main(["--json"]) == 0
  content = json.loads(capsys.readouterr().out)
  trials = [f for f in content["findings"] if f["subject"].startswith("a step on")]
  assert "cpu" in trials[0]["subject"] + trials[-1]["subject"]
  assert all(f["status"] == "ok" for f in trials)
  assert content["facts"]["bounds"]["warp-lang"] == "<1.20,>=1.19"


def test_a_broken_step_is_a_finding_and_a_status(capsys, monkeypatch):
  def broken(m, d):
    raise RuntimeError("first line\nthe reason")

  monkeypatch.setattr("mjx_warp_ffi.mjx.step", broken)
  assert doctor.main([]) == 1
  assert "RuntimeError: the reason" in capsys.readouterr().out
