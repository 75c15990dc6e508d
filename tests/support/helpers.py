"""Paths, comparisons and the environment of programs, for tests of every folder."""

import os
import pathlib
from typing import Any

import jax
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"


def model_path(name: str) -> pathlib.Path:
  """The path of one of the project's MJCF files, by its name without the suffix."""
  path = MODELS / f"{name}.xml"
  if not path.exists():
    known = ", ".join(sorted(p.stem for p in MODELS.glob("*.xml")))
    raise ValueError(f"no model {name!r} in {MODELS}; there are: {known}")
  return path


def environment(**variables: str) -> dict[str, str]:
  """The variables of a process that imports `support` and this package, and those given."""
  paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")]
  return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | variables


def assert_same(got: jax.Array, expected: jax.Array, message: str = "") -> None:
  """The same bits on the CPU; on a GPU, where compilers fuse and threads add otherwise, nearly."""
  if jax.default_backend() == "cpu":
    np.testing.assert_array_equal(got, expected, err_msg=message)
  else:
    size = np.max(np.abs(np.nan_to_num(expected)), initial=1.0)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * size, err_msg=message)


def assert_same_leaves(got: Any, expected: Any) -> None:
  """As `assert_same`, for all arrays of Data or Model; on a GPU, constraint rows have no order."""
  ordered = jax.default_backend() == "cpu"
  for (path, x), y in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(expected), strict=True):
    name = jax.tree_util.keystr(path)
    if not ordered and name.endswith(".efc_address"):
      x, y = np.minimum(x, 0), np.minimum(y, 0)
    assert_same(x, y, name)
