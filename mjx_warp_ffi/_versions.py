"""The version of this package, and whether those of the packages that it builds on fit.

pip keeps the versions within the bounds of pyproject.toml; this is for environments where they
were changed afterwards. Too old, or missing, is an error that says what to install; newer than
tested is a warning, since it may well work.
"""

import importlib.metadata
import re
import warnings
from collections.abc import Mapping

_NAME = "mjx-warp-ffi"


def is_within(version: str, bounds: str) -> bool:
  """True when a version satisfies bounds such as ">=1.19,<1.20"."""
  value = _numbers(version)
  for bound in bounds.split(","):
    limit = _numbers(bound)
    operator = bound.strip()[:2].strip("0123456789")
    holds = {
      ">=": value >= limit,
      "<=": value[: len(limit)] <= limit,
      "==": value[: len(limit)] == limit,
      ">": value > limit,
      "<": value < limit,
    }
    if not holds.get(operator, True):
      return False
  return True


def _numbers(text: str) -> tuple[int, ...]:
  return tuple(map(int, re.findall(r"\d+", text)[:3]))


def required() -> dict[str, str]:
  """The packages that this one needs, with their bounds; empty in a source tree never installed."""
  try:
    requirements = importlib.metadata.requires(_NAME) or []
  except importlib.metadata.PackageNotFoundError:
    return {}
  matches = (re.match(r"([\w-]+)([<>=!~][^;]*)$", text) for text in requirements)
  return {match[1]: match[2].strip() for match in matches if match}


def installed(names: Mapping[str, str]) -> dict[str, str]:
  """The versions of those packages that are installed."""
  found = {}
  for name in names:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found


def check(bounds: Mapping[str, str], found: Mapping[str, str]) -> None:
  """Compares versions with their bounds.

  Args:
    bounds: of each package that is needed.
    found: the versions that are installed.

  Raises:
    ImportError: one is missing or too old; the text has the command that installs it.
  """
  for name, bound in bounds.items():
    command = f"pip install '{name}{bound}'"
    if name not in found:
      raise ImportError(f"mjx_warp_ffi needs {name}, which is not installed: {command}")
    if is_within(found[name], bound):
      continue
    text = f"mjx_warp_ffi was tested with {name}{bound}, found {found[name]}: {command}"
    lower = ",".join(part for part in bound.split(",") if part.strip().startswith(">"))
    if lower and not is_within(found[name], lower):
      raise ImportError(text)
    warnings.warn(text, stacklevel=2)


def _own_version() -> str:
  try:
    return importlib.metadata.version(_NAME)
  except importlib.metadata.PackageNotFoundError:
    return "0+unknown"


__version__ = _own_version()
check(required(), installed(required()))
