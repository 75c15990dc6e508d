"""The repository keeps the rules of `structure.py`, and each rule can fail."""

import json
import os
import re
import subprocess
import sys

import pytest

from support import structure
from support.helpers import ROOT
from support.structure import Source


def _sources(*folders: str) -> list[Source]:
  paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
  return [Source(p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8")) for p in paths]


def _python_blocks(markdown: str) -> list[str]:
  return re.findall(r"^```python\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("rule", structure.IN_PACKAGE, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule):
  found = [violation for source in _sources("mjx_warp_ffi") for violation in rule(source)]
  assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", structure.EVERYWHERE, ids=lambda rule: rule.__name__)
def test_tests_and_scripts_keep(rule):
  sources = _sources("tests", "benchmarks", "models", "docs", "examples")
  assert len(sources) > 2
  found = [violation for source in sources for violation in rule(source)]
  assert not found, "\n".join(found)


MJX, BACKEND, CORE = structure.MJX, structure.BACKEND, structure.CORE
INSTALL = structure.PACKAGE + "install.py"

BAD = [
  ("plain_additions", "a.py", "@wp.kernel\ndef f(x: wp.array[int]):\n  x[0] += 1", "x[i] + y"),
  ("plain_additions", "a.py", "@wp.func\ndef f(s: S):\n  s.x[0, 1] -= 1.0", "wp.atomic_add"),
  ("file_size", "a.py", "x = 1\n" * 401, "401 lines"),
  ("function_size", "a.py", "def f():\n" + "  x = 1\n" * 60, "f has 61 lines"),
  ("callback_size", "a.py", "@CFUNCTYPE(a)\ndef f():\n" + "  x = 1\n" * 20, "callback f"),
  ("callback_size", "a.py", "def f():\n" + "  x = 1\n" * 20 + "g = Handler(f)", "callback f"),
  ("callback_size", "a.py", "class A:\n def f(s):\n" + "  x\n" * 20 + "H.Handler(A.f)", "back f"),
  ("parameters", "a.py", "def f(a, b, *, c, d, e, g, h, i, j): pass", "9 parameters"),
  ("parameters", "a.py", "def _f(a, b, c, d, e, g, h, i, j): pass", "9 parameters"),
  ("parameters", "a.py", "def f(a, b, c): pass", "make c keyword-only"),
  ("parameters", "a.py", "class A:\n  def f(self, a, b, c): pass", "make c keyword-only"),
  ("parameters", "a.py", "def f(rec, a, b, c): pass", "make c keyword-only"),
  ("import_borders", MJX + "a.py", "import jax._src.core", "jax._src.core"),
  ("import_borders", MJX + "a.py", "import jax\njax._src.core.x", "jax._src"),
  ("import_borders", CORE + "warp/a.py", "from warp._src import context", "private calls"),
  ("import_borders", CORE + "warp/a.py", "import warp as wp\nwp._src.x()", "private calls"),
  ("import_borders", structure.CLI + "a.py", "from mujoco_warp._src import types", "only the back"),
  ("import_borders", MJX + "a.py", "from mujoco import mjx", "mujoco-mjx is optional"),
  ("import_borders", MJX + "a.py", "import_module('mujoco.mjx')", "mujoco-mjx is optional"),
  ("import_borders", CORE + "warp/a.py", "from ...mjx import io", "knows nothing of mjx"),
  ("import_borders", CORE + "a.py", "from mjx_warp_ffi.mjx import io", "knows nothing of mjx"),
  ("import_borders", CORE + "warp/a.py", "class A(ctypes.Structure): pass", "C structs"),
  ("lazy_mjx_import", INSTALL, "from mujoco import mjx", "inside the function"),
  ("init_reexports", "a/__init__.py", "from .a import b", "an __init__.py holds only"),
  ("init_reexports", "a/__init__.py", "import a as a", "an __init__.py holds only"),
  ("init_reexports", "a/__init__.py", "x = 1", "an __init__.py holds only"),
  ("no_print", "a.py", "def f():\n  print(1)", "print in the package"),
  ("module_globals", "a.py", "cache = {}", "mutable module global cache"),
  ("module_globals", "a.py", "SEEN: dict = dict()\nSEEN[1] = 2", "mutable module global SEEN"),
  ("module_globals", "a.py", "SEEN = []\ndef f():\n  SEEN.append(1)", "global SEEN"),
  ("module_globals", "a.py", "def f():\n  global x\n  x = 1", "global x"),
  ("docstrings", "a.py", "x = 1", "the module has no docstring"),
  ("docstrings", "a.py", "'''Doc.'''\ndef f(): pass", "f has no docstring"),
]


@pytest.mark.parametrize(("rule", "path", "text", "found"), BAD)
def test_a_source_that_breaks_a_rule_is_found(rule, path, text, found):
  violations = list(getattr(structure, rule)(Source(path, text)))
  assert len(violations) == 1
  assert found in violations[0]


GOOD = [
  ("plain_additions", "a.py", "@wp.kernel\ndef f(x: wp.array[int]):\n  v = g()\n  v[0] += 1"),
  ("plain_additions", "a.py", "def f(x):\n  x[0] += 1"),
  ("parameters", "a.py", "@wp.kernel\ndef f(a, b, c, d, e, g, h, i, j): pass"),
  ("parameters", "a.py", "def f(rec, a, b, *, c): pass"),
  ("parameters", "a.py", "def _f(a, b, c): pass\ndef f():\n  def g(a, b, c): pass"),
  ("import_borders", CORE + "warp/runtime.py", "import warp._src.context"),
  ("import_borders", BACKEND + "a.py", "import mujoco_warp._src.types"),
  ("import_borders", MJX + "a.py", "from .warp import ffi\nfrom .warp.fields import x"),
  ("lazy_mjx_import", INSTALL, "def f():\n  from mujoco import mjx"),
  ("init_reexports", "a/__init__.py", "'''Doc.'''\nfrom .a import b as b"),
  ("no_print", structure.CLI + "a.py", "console.print(1)"),
  ("module_globals", "a.py", "NAMES = {1: 2}\n_targets = {}\n_targets[1] = 2"),
]


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_a_source_that_keeps_a_rule_passes(rule, path, text):
  assert not list(getattr(structure, rule)(Source(path, text)))


def test_every_rule_has_a_source_that_breaks_it():
  assert {rule.__name__ for rule in structure.IN_PACKAGE} == {rule for rule, *_ in BAD}


def test_notebooks_are_short_and_hold_no_library_code():
  for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found = list(structure.notebook(path.name, cells))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
  ("cells", "found"),
  [
    ([""] * 26, "26 cells"),
    (["%matplotlib inline\ndef f():\n" + "  x = 1\n" * 25], "f is library code"),
    (["import warp._src"], "warp._src is private"),
    (["from mjx_warp_ffi.mjx.warp import ffi"], "is private"),
  ],
)
def test_a_notebook_that_breaks_a_rule_is_found(cells, found):
  cells = [{"cell_type": "code", "source": [text]} for text in cells]
  (violation,) = structure.notebook("a.ipynb", cells)
  assert found in violation


def test_python_blocks_are_found_in_markdown():
  assert _python_blocks("a\n```python\nx = 1\n```\n```sh\nls\n```\n") == ["x = 1\n"]


def test_the_readme_runs():
  """As a newcomer would run it: one fresh process, block after block, JAX's own settings."""
  code = "\n".join(_python_blocks((ROOT / "README.md").read_text(encoding="utf-8")))
  code += "\nassert qpos.shape == (100, 64, m.nq)"
  code += "\nassert (gradient > 0).all(), gradient  # a push to the right moves the cart there\n"
  command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code]
  done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
