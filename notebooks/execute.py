"""Runs notebooks from top to bottom and keeps their outputs in the files.

Examples:
  python notebooks/execute.py                      # all of them
  python notebooks/execute.py quickstart --small   # one, at the size that the tests use
  python notebooks/execute.py quickstart --check   # run it, but leave the file as it is
"""

import argparse
import os
import pathlib
import sys
import time

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent
TIMEOUT = 3600  # seconds for one cell


def names() -> list[str]:
  """The names of the notebooks, without the suffix."""
  return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def execute(name: str, *, small: bool) -> nbformat.NotebookNode:
  """Runs a notebook in a fresh kernel of this interpreter, in the folder of the notebooks.

  Args:
    name: its name, without the suffix.
    small: at the size of the tests, by the environment variable MJX_WARP_SMALL.

  Returns:
    The notebook with its outputs.

  Raises:
    nbclient.exceptions.CellExecutionError: a cell raised.
  """
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  environment = {**os.environ, "MJX_WARP_SMALL": "1" if small else ""}
  client = nbclient.NotebookClient(
    notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(FOLDER)}}
  )
  client.create_kernel_manager()
  with client.setup_kernel(env=environment):
    for index, cell in enumerate(notebook.cells):
      client.execute_cell(cell, index)
  return _cleaned(notebook)


def _cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
  """Without what is of this run alone: times, Python's version, and words that no GPU was found."""
  for cell in notebook.cells:
    cell.metadata.pop("execution", None)
    if cell.cell_type == "code":
      cell.outputs = [o for o in cell.outputs if "Warp CUDA warning" not in o.get("text", "")]
  notebook.metadata["language_info"] = {"name": "python"}
  return notebook


def main() -> int:
  """The entry point.

  Returns:
    The exit status.
  """
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("notebooks", nargs="*", choices=[*names(), []], default=names())
  parser.add_argument("--small", action="store_true", help="the size of the tests")
  parser.add_argument("--check", action="store_true", help="do not write the outputs")
  args = parser.parse_args()
  for name in args.notebooks:
    start = time.perf_counter()
    notebook = execute(name, small=args.small)
    if not args.check:
      nbformat.write(notebook, FOLDER / f"{name}.ipynb")
    sys.stdout.write(f"{name}: {time.perf_counter() - start:.0f} s\n")
  return 0


if __name__ == "__main__":
  sys.exit(main())
