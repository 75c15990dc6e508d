"""The type checker's errors are left out inside of Warp kernels, and nowhere else."""

import pytest

from support.helpers import ROOT
from support.typecheck import kernels, outside_of_kernels

SOURCE = """import warp as wp

@wp.kernel(
  module="unique")
def kernel(x: int):
  x = "a"

def factory():
  y: int = "a"
  @wp.func
  def inner(x: int):
    return x
  return inner

@wp.struct
class Struct:
  x: int = "a"
"""


def test_kernels_are_found_by_their_decorators():
  assert kernels(SOURCE) == [range(3, 7), range(10, 13)]


@pytest.mark.parametrize(
  ("line", "kept"),
  [(1, True), (4, False), (6, False), (8, True), (9, True), (12, False), (13, True), (17, True)],
)
def test_only_what_lies_in_a_kernel_is_left_out(tmp_path, line, kept):
  path = tmp_path / "a.py"
  path.write_text(SOURCE)
  place = {"start": {"line": line - 1, "character": 0}}
  error = {"file": str(path), "severity": "error", "message": "wrong", "rule": "r", "range": place}
  found = list(outside_of_kernels([error, error | {"severity": "information"}]))
  assert found == ([f"{path}:{line}: wrong [r]"] if kept else [])


def test_nothing_is_ignored():
  """Neither a path in the settings nor a line in the package."""
  settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.pyright]")[2]
  assert "ignore" not in settings.partition("\n[")[0]
  for path in (ROOT / "mjx_warp_ffi").rglob("*.py"):
    text = path.read_text(encoding="utf-8")
    assert "pyright: ignore" not in text and "type: ignore" not in text, path
