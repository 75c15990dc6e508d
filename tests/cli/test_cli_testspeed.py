"""Timing side by side: what is run, how it is counted, and how it is written down."""

import io
import json
import re

import mujoco
import numpy as np
import pytest
import rich.console

from mjx_warp_ffi.cli import common, contenders, testspeed, timing

SMALL = ["cartpole", "--worlds", "1,3", "--steps", "4", "--rounds", "2"]


@pytest.fixture
def cartpole():
  return common.load_model("cartpole")


def test_the_tool_prints_a_row_for_each_batch_size(capsys):
  assert testspeed.main(SMALL) == 0
  text = capsys.readouterr().out
  assert [m[1] for m in re.finditer(r"^ +(\d+) +mjx_warp_ffi +[\d.,]+ ", text, re.M)] == ["1", "3"]


def test_a_table_of_wide_numbers_keeps_the_names_whole_in_80_columns():
  names = ("mjwarp captured", "mjx_warp_ffi", "mjx_warp_ffi gradient")
  wide = dict(cpu_microseconds=1.0, lower_seconds=123.4, first_seconds=123.4, megabytes=53387.0)
  rows = [timing.Row("pile", 32768, name, 123456.7, 10.25, **wide) for name in names]
  console = rich.console.Console(width=80, file=io.StringIO())
  timing.show(rows, console)
  text = console.file.getvalue()
  for word in ("captured", "mjx_warp_ffi", "gradient", "123,456.7", "53,387"):
    assert word in text, text


def test_peers_and_the_gradient_are_timed_and_saved(tmp_path):
  out = tmp_path / "speed.json"
  arguments = ["cartpole", "--worlds", "2", "--steps", "4", "--rounds", "1", "--peers"]
  assert testspeed.main([*arguments, "--gradient", "--json", str(out)]) == 0
  content = json.loads(out.read_text(encoding="utf-8"))
  rows = {row["contender"]: row for row in content["rows"]}
  assert list(rows) == [
    *testspeed.choose(testspeed.make_parser().parse_args(["--peers"])),
    ("mjx_warp_ffi gradient"),
  ]
  for name in ("mjwarp captured", "mjx_warp_ffi", "C MuJoCo", "mjx_warp_ffi gradient"):
    assert rows[name]["microseconds"] > 0, rows[name]["note"]
  assert rows["mjwarp captured"]["ratio"] == 1
  assert content["command"].startswith("mjx-warp-testspeed cartpole")
  assert content["environment"]["warp-lang"].startswith("1.19")
  table = out.with_suffix(".md").read_text(encoding="utf-8")
  assert table.count("\n| cartpole | 2 |") == len(rows)


def test_all_contenders_simulate_the_same_states(cartpole):
  """What is compared must be the same work: ours and the captured step end alike."""
  work = contenders.make_workload(cartpole, 3, steps=20)
  ours = contenders.ours(work).run()
  prepared = contenders.mjwarp(work)
  ends = []
  for _ in range(2):
    prepared.reset()
    ends.append(prepared.run().numpy())
  # the same kernels on the same states; float32 sums may be ordered differently
  np.testing.assert_allclose(ours.qpos, ends[0], rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(ends[0], ends[1])


def test_worlds_differ_and_keep_unit_quaternions():
  work = contenders.make_workload(common.load_model("humanoid"), 5, steps=1)
  assert len(np.unique(work.qpos, axis=0)) == 5
  np.testing.assert_allclose(np.linalg.norm(work.qpos[:, 3:7], axis=1), 1, atol=3e-7)


def test_substeps_do_not_change_the_number_of_steps(cartpole):
  one = contenders.ours(contenders.make_workload(cartpole, 2, steps=6))
  three = contenders.ours(contenders.make_workload(cartpole, 2, steps=6, substeps=3))
  np.testing.assert_array_equal(one.run().time, three.run().time)


@pytest.mark.parametrize(
  "arguments", [["cartpole", "--steps", "5", "--substeps", "2"], ["no_such_model"]]
)
def test_bad_arguments_are_refused(arguments, capsys):
  assert testspeed.main(arguments) == 2
  assert "error:" in capsys.readouterr().err


def test_options_replace_the_models(cartpole):
  arguments = ["--integrator", "implicitfast", "--solver", "cg", "--iterations", "3"]
  testspeed.adjust(cartpole, testspeed.make_parser().parse_args(arguments))
  assert cartpole.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST
  assert cartpole.opt.solver == mujoco.mjtSolver.mjSOL_CG
  assert cartpole.opt.iterations == 3


def test_a_contender_that_cannot_run_is_left_out_with_its_reason(cartpole):
  def broken(work):
    raise common.ToolError("not installed: pip install it\nmore")

  ticks = iter(range(100))
  clock = contenders.Prepared(lambda: next(ticks), lambda: None, None, 0.0)
  work = contenders.make_workload(cartpole, 1, steps=10)
  with common.make_progress(rich.console.Console(quiet=True)) as progress:
    rows = timing.time_side_by_side(
      {"a": broken, "b": lambda _: clock}, work, model="m", rounds=3, progress=progress
    )
  assert rows[0].note == "not installed: pip install it" and rows[0].microseconds is None
  assert rows[1].ratio == 1 and next(ticks) == 3
