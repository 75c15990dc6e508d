"""Every notebook runs from top to bottom at a small size, and keeps outputs of a whole run."""

import ast
import os
import subprocess
import sys

import nbformat
import pytest

from support.helpers import ROOT

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
# Those that take less than about 20 s at the small size, with warm kernels on an idle machine.
QUICK = ("quickstart", "bring_your_kernel")


def _read(name: str) -> nbformat.NotebookNode:
  return nbformat.read(NOTEBOOKS[name], as_version=4)


def test_there_are_notebooks():
  assert "quickstart" in NOTEBOOKS


@pytest.mark.parametrize(
  "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NOTEBOOKS]
)
def test_a_notebook_runs_from_top_to_bottom(name):
  # A process of its own, since this one turns warnings of the kernel's libraries into errors.
  command = [sys.executable, "execute.py", name, "--small", "--check"]
  done = subprocess.run(
    command, cwd=ROOT / "notebooks", env=os.environ, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr[-5000:]
  assert name in done.stdout


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_keeps_the_outputs_of_one_run_in_order(name):
  cells = [cell for cell in _read(name).cells if cell.cell_type == "code"]
  assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
  outputs = [output for cell in cells for output in cell.outputs]
  assert any("image/png" in str(output.get("data", "")) for output in outputs)
  assert not [output for output in outputs if output.output_type == "error"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_tells_what_it_does_before_it_does_it(name):
  cells = _read(name).cells
  assert cells[0].cell_type == "markdown"
  assert cells[0].source.startswith("# ")
  words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
  assert words > 100


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_takes_nothing_of_the_tests(name):
  code = "\n".join(cell.source for cell in _read(name).cells if cell.cell_type == "code")
  modules = set()
  for node in ast.walk(ast.parse(code)):
    if isinstance(node, ast.Import):
      modules |= {alias.name.split(".")[0] for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      modules.add((node.module or "").split(".")[0])
  assert not modules & {"support", "tests"}


def test_a_notebook_that_raises_fails(tmp_path):
  notebook = nbformat.v4.new_notebook()
  notebook.cells = [nbformat.v4.new_code_cell("raise ValueError('as it must')")]
  nbformat.write(notebook, tmp_path / "bad.ipynb")
  script = (ROOT / "notebooks" / "execute.py").read_text(encoding="utf-8")
  (tmp_path / "execute.py").write_text(script, encoding="utf-8")
  command = [sys.executable, "execute.py", "bad", "--small"]
  done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode != 0
  assert "as it must" in done.stderr
