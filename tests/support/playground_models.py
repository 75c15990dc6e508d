"""Stand-ins for the meshes that MuJoCo Playground would clone from the network.

Its package has the robots' XML files; what they look like, meshes and textures, is in MuJoCo
Menagerie. A small tetrahedron in the place of each mesh leaves joints, actuators, sensors and
primitive geoms as they are.
"""

from __future__ import annotations

import pathlib
import re
import struct

import numpy as np

_CORNERS = 0.05 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
_FACES = ((0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2))


def stand_in_menagerie(package: pathlib.Path, root: pathlib.Path) -> None:
  """Writes a Menagerie of stand-ins.

  Args:
    package: the folder of `mujoco_playground`.
    root: where Playground will look.
  """
  for source in package.rglob("*.py"):
    text = source.read_text(encoding="utf-8")
    names = re.findall(r'MENAGERIE_PATH / "(\w+)"', text)
    names += re.findall(r'_MENAGERIE_\w+ = "(\w+)"', text)
    xmls = list((source.parent / "xmls").rglob("*.xml"))
    there = {p.name for p in (source.parent / "xmls").rglob("*")}
    for name in names:
      folder = root / name / "assets"
      folder.mkdir(parents=True, exist_ok=True)
      for file in sorted({f for x in xmls for f in _files(x)} - there):
        (folder / file).write_bytes(_content(file))


def _files(xml: pathlib.Path) -> list[str]:
  """The names of the files that an XML file refers to, but for those that it includes."""
  elements = re.findall(r"<(?:mesh|texture|hfield)\b[^>]*>", xml.read_text(encoding="utf-8"))
  files = [re.search(r'\bfile="([^"]+)"', e) for e in elements]
  return [pathlib.PurePosixPath(f.group(1)).name for f in files if f]


def _content(name: str) -> bytes:
  suffix = name.rpartition(".")[2].lower()
  if suffix == "stl":
    triangles = b"".join(
      struct.pack("<12fH", 0, 0, 0, *_CORNERS[list(face)].ravel(), 0) for face in _FACES
    )
    return bytes(80) + struct.pack("<I", len(_FACES)) + triangles
  if suffix == "obj":
    corners = "".join(f"v {x} {y} {z}\n" for x, y, z in _CORNERS)
    return (corners + "".join(f"f {a + 1} {b + 1} {c + 1}\n" for a, b, c in _FACES)).encode()
  return _grey_png()


def _grey_png() -> bytes:
  """A grey image of 8 x 8 pixels."""
  import io

  from PIL import Image

  buffer = io.BytesIO()
  Image.new("RGB", (8, 8), (128, 128, 128)).save(buffer, format="PNG")
  return buffer.getvalue()
