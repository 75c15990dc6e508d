"""MuJoCo Warp's search for the contacts of an SDF in float64, for the tests of its derivative.

C MuJoCo searches likewise, but has other slopes in boxes, takes planes another way and puts the
contact on the other side of the point that it finds.
"""

from collections.abc import Callable

import mujoco
import numpy as np

Type = mujoco.mjtGeom
CORNERS = np.array([[i & 1, i >> 1 & 1, i >> 2 & 1] for i in range(8)])


def _unit(x: np.ndarray) -> np.ndarray:
  return x / max(np.linalg.norm(x), 1e-300)


def _sphere(p, size):
  return np.linalg.norm(p) - size[0], _unit(p)


def _capsule(p, size):
  away = p - [0, 0, np.clip(p[2], -size[1], size[1])]
  return np.linalg.norm(away) - size[0], _unit(away)


def _ellipsoid(p, size):
  a, b = p / size, p / size**2
  k0, k1 = np.linalg.norm(a), np.linalg.norm(b)
  slope = b / k0 * (2 * k0 - 1) / k1 - b / size**2 * k0 * (k0 - 1) / k1**3
  return k0 * (k0 - 1) / k1, _unit(slope)


def _cylinder(p, size):
  radius = np.hypot(p[0], p[1])
  side, cap = np.array([p[0], p[1], 0]) / radius, np.array([0, 0, np.sign(p[2])])
  out = np.array([radius - size[0], abs(p[2]) - size[1]])
  dist = min(out.max(), 0) + np.linalg.norm(np.maximum(out, 0))
  if (out > 0).all():
    return dist, _unit(side * out[0] + cap * out[1])
  return dist, side if out[0] > out[1] else cap


def _box(p, size):
  room = size - np.abs(p)
  if room.min() > 0:
    way = _unit(size / room)
    return -(room / way).min(), way * np.sign(p)
  out = np.maximum(-room, 0)
  return np.linalg.norm(out), _unit(out) * np.sign(p)


FIELDS = {
  Type.mjGEOM_PLANE: lambda p, size: (p[2], np.array([0.0, 0, 1])),
  Type.mjGEOM_SPHERE: _sphere,
  Type.mjGEOM_CAPSULE: _capsule,
  Type.mjGEOM_ELLIPSOID: _ellipsoid,
  Type.mjGEOM_CYLINDER: _cylinder,
  Type.mjGEOM_BOX: _box,
}


class Octree:
  """The distance to a mesh, interpolated in the cells of its octree."""

  def __init__(self, m: mujoco.MjModel, mesh: int):
    start = m.mesh_octadr[mesh]
    stop = start + m.mesh_octnum[mesh]
    self.box = m.oct_aabb[start:stop].reshape(-1, 2, 3)
    self.child = m.oct_child[start:stop].reshape(-1, 8)
    self.coeff = m.oct_coeff[start:stop].reshape(-1, 8)

  def _value(self, p):
    """The value, and its slope in the cell."""
    center, half = self.box[0]
    out = np.abs(p - center) - half
    inside = np.where(out >= 0, p - np.sign(p - center) * (out + 1e-4), p)
    away = np.linalg.norm(np.maximum(out, 0)) if (out > 0).any() else 0.0
    if not (out > 0).any():
      inside = p
    node = 0
    while self.child[node].max() >= 0:
      up = inside - self.box[node, 0] + self.box[node, 1] >= self.box[node, 1]
      node = self.child[node][4 * up[2] + 2 * up[1] + up[0]]
    center, half = self.box[node]
    c = (inside - center + half) / (2 * half)
    ends = np.where(CORNERS == 1, c, 1 - c)
    value = ends.prod(axis=1) @ self.coeff[node]
    signs = 2 * CORNERS - 1
    slope = [
      (signs[:, j] * np.delete(ends, j, axis=1).prod(axis=1)) @ self.coeff[node] / (2 * half[j])
      for j in range(3)
    ]
    return away + value, np.array(slope), away

  def __call__(self, p):
    value, slope, away = self._value(p)
    if away > 0:
      slope = np.array([(self._value(p + e)[0] - value) / 1e-4 for e in 1e-4 * np.eye(3)])
    return value, slope


def _field(m: mujoco.MjModel, g: int) -> Callable:
  """The distance and its slope, of a point in the frame of a geom."""
  if m.geom_type[g] == Type.mjGEOM_SDF:
    return Octree(m, m.geom_dataid[g])
  return lambda p: FIELDS[Type(m.geom_type[g])](p, m.geom_size[g])


def contacts(m: mujoco.MjModel, poses: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
  """The contacts (count, 7) of the first two geoms from every start: distance, position, normal."""
  (pos1, rot1), (pos2, rot2) = poses
  rel, shift = rot1.T @ rot2, rot1.T @ (pos2 - pos1)
  first, second = (_field(m, g) for g in (0, 1))

  def both(x):
    (a, slope_a), (b, slope_b) = first(rel @ x + shift), second(x)
    return a, b, rel.T @ slope_a, slope_b

  boxes = m.geom_aabb[:2].reshape(2, 2, 3)
  corners = boxes[1, 0] + (2 * CORNERS - 1) * boxes[1, 1]
  corners = corners @ rel.T + shift
  low = np.maximum(boxes[0, 0] - boxes[0, 1], corners.min(axis=0))
  high = np.minimum(boxes[0, 0] + boxes[0, 1], corners.max(axis=0))
  rows = []
  for k in range(m.opt.sdf_initpoints):
    share = np.array([mujoco.mju_Halton(k, base) for base in (2, 3, 5)])
    x = rel.T @ (low + (high - low) * share - shift)
    for _ in range(m.opt.sdf_iterations):
      x = _step(both, x, False)[0]
    x, dist = _step(both, x, True)
    _, _, slope_a, slope_b = both(x)
    n = rot2 @ _unit(_unit(slope_a) - _unit(slope_b))
    rows.append(np.concatenate([[dist], rot2 @ x + pos2 - n * dist / 2, n]))
  return np.array(rows)


def _objective(a: float, b: float, last: bool) -> float:
  return max(a, b) if last else a + b + abs(max(a, b))


def _step(both: Callable, x: np.ndarray, last: bool) -> tuple[np.ndarray, float]:
  """A step downhill with a line search."""
  a, b, slope_a, slope_b = both(x)
  start = _objective(a, b, last)
  way = slope_a if a > b else slope_b
  if not last:
    way = slope_a + slope_b + way * np.sign(max(a, b))
  if way @ way < 1e-12:
    return x, start
  length = 1.0
  while True:
    new = x - length * way
    a, b, _, _ = both(new)
    change = _objective(a, b, last) - start
    if length <= 1e-4 or change <= -0.1 * length * (way @ way):
      break
    length /= 2
  if change > 0:
    return x, start
  return new, start + change
