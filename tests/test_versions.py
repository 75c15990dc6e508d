"""Versions outside the bounds are named at import, with the command that mends them."""

import importlib.metadata
import subprocess
import sys

import pytest

import mjx_warp_ffi
from mjx_warp_ffi import _versions as versions

BOUNDS = {"jax": "<0.12,>=0.8", "warp-lang": "<1.20,>=1.19"}
GOOD = {"jax": "0.10.2", "warp-lang": "1.19.0"}


@pytest.mark.parametrize(
  ("version", "bounds", "within"),
  [
    ("1.19.0", ">=1.19,<1.20", True),
    ("1.19", ">=1.19.1", False),
    ("1.20.0", ">=1.19,<1.20", False),
    ("1.20.0.dev20261101", "<1.20", False),
    ("0.10.2", ">=0.9", True),
    ("4.0.0.dev1", "==4.0", True),
    ("4.1.0", "==4.0", False),
    ("4.0.1", "<=4.0", True),
    ("2", ">2", False),
  ],
)
def test_versions_are_compared_by_number(version, bounds, within):
  assert versions.is_within(version, bounds) is within


def test_versions_within_the_bounds_pass():
  versions.check(BOUNDS, GOOD)


@pytest.mark.parametrize("found", [{"jax": "0.10.2"}, GOOD | {"warp-lang": "1.18.2"}])
def test_a_missing_or_older_package_is_an_error_with_the_remedy(found):
  with pytest.raises(ImportError, match="pip install 'warp-lang<1.20,>=1.19'"):
    versions.check(BOUNDS, found)


def test_a_newer_package_is_a_warning():
  with pytest.warns(UserWarning, match="tested with jax<0.12,>=0.8, found 0.12.1"):
    versions.check(BOUNDS, GOOD | {"jax": "0.12.1"})


def test_the_bounds_are_those_of_the_installed_package():
  assert versions.required()["warp-lang"] == "<1.20,>=1.19"
  assert "matplotlib" not in versions.required()  # an extra
  assert mjx_warp_ffi.__version__ == importlib.metadata.version("mjx-warp-ffi")


def test_a_missing_dependency_is_named_when_the_package_is_imported():
  code = (
    "import importlib.metadata as m; old = m.version\n"
    "def version(name):\n"
    "  if name == 'warp-lang': raise m.PackageNotFoundError(name)\n"
    "  return old(name)\n"
    "m.version = version\n"
    "import mjx_warp_ffi\n"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert done.returncode == 1
  assert "ImportError: mjx_warp_ffi needs warp-lang, which is not installed" in done.stderr
