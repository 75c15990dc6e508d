"""Writes the meshes and the height field of the models: `python models/make_assets.py`.

The files are kept in `models/assets/`, and a test compares them with what this script makes.
Numbers are rounded before they are written, so that the bytes do not depend on the machine.
"""

import pathlib
import struct
import sys
import zlib

import numpy as np

ASSETS = pathlib.Path(__file__).parent / "assets"


def obj(vertices, faces):
  """Returns the Wavefront text of a mesh: vertices (n, 3) in metres, faces as rows of indices."""
  lines = ["v " + " ".join(f"{x:.4f}" for x in vertex) for vertex in vertices]
  lines += ["f " + " ".join(str(i + 1) for i in face) for face in faces]
  return "\n".join(lines) + "\n"


def wedge():
  """Returns a ramp: a prism over a right triangle, whose faces are few and flat."""
  profile = [(-0.1, -0.05), (0.1, -0.05), (-0.1, 0.08)]
  vertices = [(x, y, z) for y in (-0.08, 0.08) for x, z in profile]
  faces = [(0, 1, 2), (3, 5, 4), (0, 3, 4, 1), (1, 4, 5, 2), (2, 5, 3, 0)]
  return obj(vertices, faces)


def stone():
  """Returns a convex stone: rings of vertices on an ellipsoid, between two poles."""
  size, rings, around = np.array([0.12, 0.09, 0.07]), 3, 7
  polar = np.pi * np.arange(1, rings + 1) / (rings + 1)
  turn = 2 * np.pi * (np.arange(around)[None, :] + 0.5 * np.arange(rings)[:, None]) / around
  x = np.sin(polar)[:, None] * np.cos(turn)
  y = np.sin(polar)[:, None] * np.sin(turn)
  z = np.broadcast_to(np.cos(polar)[:, None], x.shape)
  vertices = np.concatenate([np.stack([x, y, z], -1).reshape(-1, 3), [[0, 0, 1], [0, 0, -1]]])
  top, bottom = rings * around, rings * around + 1
  faces = []
  for i in range(around):
    j = (i + 1) % around
    faces.append((top, i, j))
    for ring in range(rings - 1):
      a, b = ring * around, (ring + 1) * around
      faces += [(a + i, b + i, a + j), (a + j, b + i, b + j)]
    faces.append((bottom, (rings - 1) * around + j, (rings - 1) * around + i))
  return obj(vertices * size, faces)


def hills(size=21):
  """Returns gentle hills with a rising rim, as the rows of an image of bytes, 0 to 255."""
  grid = np.linspace(-1, 1, size)
  x, y = np.meshgrid(grid, grid)
  waves = 0.14 * np.sin(5.0 * x + 0.7) * np.cos(4.0 * y) + 0.08 * np.sin(6.0 * y - 3.0 * x)
  rim = np.clip(np.maximum(abs(x), abs(y)) - 0.7, 0, None) ** 2 * 7
  height = 0.3 + waves * np.clip(2 * np.hypot(x, y), 0, 1) + rim
  return np.round(255 * np.clip(height, 0, 1)).astype(np.uint8)


def png(image):
  """Returns the bytes of a greyscale PNG, stored without compression to be the same everywhere."""
  height, width = image.shape

  def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

  header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
  rows = b"".join(b"\0" + row.tobytes() for row in image)
  body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")
  return b"\x89PNG\r\n\x1a\n" + body


def make_assets():
  """Returns a dict from file name to content in bytes."""
  return {
    "wedge.obj": wedge().encode(),
    "stone.obj": stone().encode(),
    "hills.png": png(hills()),
  }


def main(directory=ASSETS):
  """Writes every asset into the directory."""
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  for name, content in make_assets().items():
    (directory / name).write_bytes(content)


if __name__ == "__main__":
  main(*sys.argv[1:])
