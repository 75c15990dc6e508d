"""What several test files need; imported as `import helpers`, since tests/ is on the path."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS = ROOT / "models"


def model_path(name: str) -> pathlib.Path:
  """The path of one of the project's MJCF files, by its name without the suffix."""
  path = MODELS / f"{name}.xml"
  if not path.exists():
    known = ", ".join(sorted(p.stem for p in MODELS.glob("*.xml")))
    raise ValueError(f"no model {name!r} in {MODELS}; there are: {known}")
  return path
