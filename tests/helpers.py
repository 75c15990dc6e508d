"""What several test files need; imported as `import helpers`, since tests/ is on the path."""

import pathlib

import jax
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS = ROOT / "models"


def model_path(name: str) -> pathlib.Path:
  """The path of one of the project's MJCF files, by its name without the suffix."""
  path = MODELS / f"{name}.xml"
  if not path.exists():
    known = ", ".join(sorted(p.stem for p in MODELS.glob("*.xml")))
    raise ValueError(f"no model {name!r} in {MODELS}; there are: {known}")
  return path


def assert_same(got: jax.Array, expected: jax.Array, message: str = "") -> None:
  """The same bits on the CPU; on a GPU, where compilers fuse and threads add otherwise, nearly."""
  if jax.default_backend() == "cpu":
    np.testing.assert_array_equal(got, expected, err_msg=message)
  else:
    size = np.max(np.abs(np.nan_to_num(expected)), initial=1.0)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * size, err_msg=message)
