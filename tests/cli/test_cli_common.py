"""Finding, loading and refusing models; help; errors."""

import numpy as np
import pytest

from mjx_warp_ffi.cli import common
from support.helpers import MODELS

PENDULUM = (MODELS / "double_pendulum.xml").read_text(encoding="utf-8")


def test_a_bundled_model_is_found_by_its_name():
  assert common.load_model("double_pendulum").nq == 2


def test_every_bundled_model_loads():
  names = [path.stem for path in common.models_dir().glob("*.xml")]
  assert len(names) >= 5
  for name in names:
    assert common.load_model(name).nv > 0


def test_a_model_is_found_by_its_path(tmp_path):
  path = tmp_path / "mine.xml"
  path.write_text(PENDULUM, encoding="utf-8")
  assert common.load_model(str(path)).nq == 2


@pytest.mark.parametrize(
  ("name", "text", "message"),
  [
    ("no_such_model", None, "there are: .*double_pendulum"),
    ("a.mjb", "", "expected an MJCF or URDF"),
    ("a.xml", "", "a.xml"),
    ("a.xml", "<mujoco><worldbody><geom type='ball'/></worldbody></mujoco>", "invalid keyword"),
    ("a.xml", "<mujoco>" * 100_000, "a.xml"),
    ("a.xml", "\0\xff" * 100, "a.xml"),
  ],
  ids=["unknown", "binary", "empty", "invalid", "deep", "garbled"],  # pytest exports them
)
def test_a_file_that_is_no_model_is_refused_with_the_reason(tmp_path, name, text, message):
  path = tmp_path / name
  if text is not None:
    path.write_text(text, encoding="utf-8")
  with pytest.raises(common.ToolError, match=message):
    common.load_model(str(path) if text is not None else name)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
  path = tmp_path / "a.xml"
  with path.open("wb") as file:
    file.truncate(common.MAX_MODEL_BYTES + 1)
  with pytest.raises(common.ToolError, match="more than"):
    common.load_model(str(path))


def test_a_model_that_fills_the_memory_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(common, "LOAD_MEMORY_BYTES", 2**31)
  path = tmp_path / "a.xml"
  asset = "<asset><hfield name='h' nrow='30000' ncol='30000' size='1 1 1 1'/></asset>"
  path.write_text(f"<mujoco>{asset}</mujoco>", encoding="utf-8")
  with pytest.raises(common.ToolError, match="a.xml: "):
    common.load_model(str(path))


def test_a_parser_that_crashes_or_hangs_does_not_take_the_tool_with_it(tmp_path, monkeypatch):
  path = tmp_path / "a.xml"
  path.write_text(PENDULUM, encoding="utf-8")
  monkeypatch.setattr(common, "_TRIAL", "import os; os.abort()")
  with pytest.raises(common.ToolError, match="signal 6"):
    common.load_model(str(path))
  monkeypatch.setattr(common, "_TRIAL", "import time; time.sleep(60)")
  monkeypatch.setattr(common, "LOAD_SECONDS", 0.1)
  with pytest.raises(common.ToolError, match="not loaded after"):
    common.load_model(str(path))


def test_an_installed_package_uses_the_models_inside_it(tmp_path, monkeypatch):
  (tmp_path / "models").mkdir()
  monkeypatch.setattr(common, "__file__", str(tmp_path / "cli" / "common.py"))
  assert common.models_dir() == tmp_path / "models"


def test_a_tool_error_is_one_line_and_a_status(capsys):
  def body(argv):
    raise common.ToolError("no such thing")

  assert common.run_tool(body, []) == 2
  assert "error: no such thing" in capsys.readouterr().err


def test_names_in_brackets_are_no_markup(capsys):
  def body(argv):
    common.find_model("[/bold]x.xml")

  assert common.run_tool(body, []) == 2
  assert "no file '[/bold]x.xml'" in capsys.readouterr().err


def test_a_feature_without_support_and_an_interrupt_are_no_tracebacks(capsys):
  def refuses(argv):
    raise NotImplementedError("mjSOL_PGS is unsupported.")

  def interrupted(argv):
    raise KeyboardInterrupt

  assert common.run_tool(refuses, []) == 2
  assert capsys.readouterr().err == "error: mjSOL_PGS is unsupported.\n"
  assert common.run_tool(interrupted, []) == 130


@pytest.mark.parametrize("name", ["none/a.npz", "", "a.txt"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path, name):
  with pytest.raises(common.ToolError, match=r"folder|expected a name that ends in \.npz"):
    common.check_output(tmp_path / name, ".npz")
  common.check_output(tmp_path / "a.npz", ".npz")


@pytest.mark.parametrize(
  "content", [b"", b"PK\x03\x04" + bytes(50), b"\x93NUMPY\x01\x00", b"x" * 99]
)
def test_a_file_that_is_no_array_is_refused_with_the_reason(tmp_path, content):
  path = tmp_path / "a.npz"
  path.write_bytes(content)
  with pytest.raises(common.ToolError, match="a.npz: "):
    common.load_array(path, "qpos")


def test_pickles_are_not_read_and_a_missing_array_is_named(tmp_path):
  path = tmp_path / "a.npz"
  np.savez(path, qpos=np.array([{}]), ctrl=np.ones(3))
  with pytest.raises(common.ToolError, match="pickles are not read"):
    common.load_array(path, "qpos")
  with pytest.raises(common.ToolError, match="qvel"):
    common.load_array(path, "qvel")
  assert common.load_array(path, "ctrl").tolist() == [1, 1, 1]


def test_help_keeps_the_examples_and_states_the_defaults():
  parser = common.make_parser("tool", "Does it.\n\nExamples:\n  tool --n 3\n")
  parser.add_argument("--n", type=common.positive, default=7, help="how many")
  text = parser.format_help()
  assert "Examples:\n  tool --n 3\n" in text
  assert "how many (default: 7)" in text


def test_a_count_of_zero_is_refused(capsys):
  parser = common.make_parser("tool", "")
  parser.add_argument("--n", type=common.positive)
  with pytest.raises(SystemExit):
    parser.parse_args(["--n", "0"])
  assert "expected at least 1, got 0" in capsys.readouterr().err
