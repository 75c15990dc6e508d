"""The documentation builds without a warning, its code runs, and it says what the code says."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

import mjx_warp_ffi.mjx
import mjx_warp_ffi.third_party.warp as core
from support.helpers import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
# The headings of the troubleshooting page that quote others' messages.
OTHERS = (
  "scan body function carry input and carry output must have equal types",
  "Could not find or load the NVIDIA CUDA driver",
  "cannot assign to field '…'",
  "grad requires real- or complex-valued inputs …, but got int32",
  "vmap was requested to map its argument along axis 0, which implies that its rank should be at"
  " least 1",
)

# What is true after the code of a page.
AFTERWARDS = {
  "batching.md": """
assert distance.shape == done.shape == (500, N)
assert done.any() and jnp.isfinite(worlds.qpos).all()
assert len(set(model.body_mass[:, 1].tolist())) == N
assert peaks["nconmax"] > 0 and sizes["njmax"] > 0
""",
}


def _text(page: str) -> str:
  return (DOCS / page).read_text(encoding="utf-8")


def _blocks(markdown: str) -> list[str]:
  """The blocks of `python`, which run; those of `py` are fragments."""
  return re.findall(r"^```python\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)


def _run(command: list[str]) -> subprocess.CompletedProcess:
  return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)


@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(_text(page))])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path):
  script = tmp_path / "page.py"  # a file, since Warp reads the source of kernels
  code = [*_blocks(_text(page)), AFTERWARDS.get(page, "")]
  script.write_text("\n".join(code), encoding="utf-8")
  done = _run([sys.executable, "-W", "error::DeprecationWarning:__main__", str(script)])
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "most"), [("index.md", 21), ("batching.md", 39)])
def test_the_first_example_of_a_page_is_short(page, most):
  block = _blocks(_text(page))[0]
  lines = [line for line in block.splitlines() if line.strip()]
  assert len(lines) <= most


def test_the_site_builds_without_a_warning(tmp_path):
  pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
  pytest.importorskip("material", reason="the extra `docs` is not installed")
  command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
  done = _run(command)
  assert done.returncode == 0, done.stderr
  assert "put_model" in (tmp_path / "api" / "mjx.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
  ("module", "page"), [(mjx_warp_ffi.mjx, "api/mjx.md"), (core, "api/ffi.md")]
)
def test_every_public_name_is_in_the_reference(module, page):
  paths = re.findall(r"^::: ([\w.]+)$", _text(page), flags=re.M)
  # of a module the whole content would be shown, and its functions twice
  assert [path for path in paths if (ROOT / (path.replace(".", "/") + ".py")).exists()] == []
  documented = {p.rpartition(".")[2] for p in paths if p.startswith(f"{module.__name__}.")}
  tree = ast.parse(pathlib.Path(module.__file__).read_text(encoding="utf-8"))
  public = {
    alias.asname
    for node in tree.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if not re.fullmatch(r"\w+Type|\w+Bit|Impl", alias.asname or "")  # MuJoCo's enumerations
  }
  named = {name for name in public if f"`{name}`" in _text(page)}  # other names of the same thing
  assert public - documented - named == set()
  assert documented - public == set()


def test_every_file_that_the_map_of_the_code_names_is_there():
  names = set(re.findall(r"[\w/]+\.py\b", _text("internals.md")))
  found = (path for folder in ("mjx_warp_ffi", "tests") for path in (ROOT / folder).rglob("*.py"))
  files = {path.relative_to(ROOT).as_posix() for path in found}
  assert len(names) > 30
  assert [n for n in names if not any(f"/{file}".endswith(f"/{n}") for file in files)] == []


def _message(node: ast.AST) -> str | None:
  """A string as it is written, with … for what is filled in."""
  if isinstance(node, ast.Constant) and isinstance(node.value, str):
    return node.value
  if isinstance(node, ast.JoinedStr):
    parts = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
    return "".join(map(str, parts))
  return None


def _messages() -> list[str]:
  found = []
  for path in (ROOT / "mjx_warp_ffi").rglob("*.py"):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
      if (text := _message(node)) is not None:
        found.append(text)
  return found


def _quoted() -> list[str]:
  return re.findall(r"^### `([^`]+)`$", _text("troubleshooting.md"), flags=re.MULTILINE)


def _is_in(quote: str, message: str) -> bool:
  """Whether the parts of a quote between the … follow one another in a message."""
  quote = re.sub(r"^(Data|Model) (field|has)", r"… \2", quote)  # the code fills the owner in
  parts = [re.escape(part.strip()) for part in re.split(r"…|\{\}", quote) if part.strip()]
  return bool(re.search(".*".join(parts), message.replace("{}", "…"), flags=re.DOTALL))


def test_every_error_text_that_the_troubleshooting_page_quotes_is_one_of_the_package():
  messages = _messages()
  quotes = [quote for quote in _quoted() if quote not in OTHERS]
  assert len(quotes) > 20
  missing = [q for q in quotes if not any(_is_in(q, message) for message in messages)]
  assert missing == []


def test_a_quote_that_is_no_message_is_found():
  assert not _is_in("Data field … has a colour", "Data field qpos has shape 3")
  assert _is_in("Data field … has shape …", "Data field … has shape …, expected …")
