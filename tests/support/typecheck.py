"""Runs pyright on the package, and leaves out what it says of the bodies of Warp's kernels.

Kernels and Warp functions are in Warp's language, whose own compiler checks their types. They are
told by their decorators, `@wp.kernel` and `@wp.func`; everything around them is Python. Usage, from
the root of the repository: `python tests/support/typecheck.py [paths]`.
"""

import ast
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
_WARP = re.compile(r"(wp|warp)\.(kernel|func|func_native|func_grad|func_replay)\b")


def kernels(text: str) -> list[range]:
  """The lines of the kernels and Warp functions of a source, from their first decorator on."""
  found = []
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.FunctionDef) and any(
      _WARP.match(ast.unparse(d)) for d in node.decorator_list
    ):
      first = min(d.lineno for d in node.decorator_list)
      found.append(range(first, (node.end_lineno or first) + 1))
  return found


def outside_of_kernels(diagnostics: list[dict]) -> Iterator[str]:
  """The errors and warnings of pyright's JSON that do not lie in a kernel, a line of text each."""
  lines: dict[str, list[range]] = {}
  for found in diagnostics:
    path = found["file"]
    if path not in lines:
      lines[path] = kernels(pathlib.Path(path).read_text(encoding="utf-8"))
    line = found["range"]["start"]["line"] + 1
    if found["severity"] in ("error", "warning") and not any(line in span for span in lines[path]):
      rule = found.get("rule", "")
      name = pathlib.Path(path)
      name = name.relative_to(ROOT) if name.is_relative_to(ROOT) else name
      yield f"{name}:{line}: {found['message']} [{rule}]"


def main(paths: list[str]) -> int:
  """Prints what is left; returns 1 if there is something."""
  command = [sys.executable, "-m", "pyright", "--outputjson", *paths]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  try:
    report = json.loads(done.stdout)
  except json.JSONDecodeError:
    sys.stderr.write(done.stdout + done.stderr)
    return 1
  found = list(outside_of_kernels(report["generalDiagnostics"]))
  count = report["summary"]["filesAnalyzed"]
  sys.stdout.write("\n".join([*found, f"{len(found)} errors outside of kernels, {count} files\n"]))
  return bool(found) or not count


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
