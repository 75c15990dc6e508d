"""Two float64 references for the derivatives of contacts, and scenes to take them in.

The first is C MuJoCo's own collision, differenced. Its distances of curved geoms are only good to
its tolerance. The second, for two convex geoms, finds the normal from nothing but their support
functions: it minimises the overlap h_a(n) + h_b(-n) over n near the contact's by nested golden
sections, kinks or not.
"""

import dataclasses

import mujoco
import numpy as np

STEP = 1e-6  # of the central differences, in metres and radians; C MuJoCo runs in float64
MARGIN = 0.1

GEOMS = {
  "plane": 'type="plane" size="5 5 .1"',
  "sphere": 'type="sphere" size=".3"',
  "capsule": 'type="capsule" size=".15 .35"',
  "ellipsoid": 'type="ellipsoid" size=".3 .4 .5"',
  "cylinder": 'type="cylinder" size=".3 .4"',
  "box": 'type="box" size=".3 .4 .5"',
  "mesh": 'type="mesh" mesh="rock"',
  "hfield": 'type="hfield" hfield="hills"',
}
SIZES = {
  "plane": 0,
  "hfield": 0,
  "sphere": 1,
  "capsule": 2,
  "ellipsoid": 3,
  "cylinder": 2,
  "box": 3,
  "mesh": 0,
}

# An irregular polytope: no two of its faces are parallel.
ROCK = (
  "-.40 -.35 -.30  .45 -.30 -.36  .38 .42 -.28  -.33 .40 -.41 "
  "-.30 -.28 .34  .33 -.36 .41  .30 .31 .36  -.37 .26 .30  .02 .05 .61"
)


# A field of 9 x 9 points whose cells are not flat.
HILLS = " ".join(
  f"{np.sin(1.3 * i + 0.4 * j) * np.cos(0.9 * j):.3f}" for i in range(9) for j in range(9)
)


def scene(first: str, second: str) -> mujoco.MjModel:
  """Two free geoms that may touch each other, with a margin."""
  xml = f"""
  <mujoco>
    <option ccd_tolerance="1e-9" ccd_iterations="200"/>
    <asset>
      <mesh name="rock" vertex="{ROCK}"/>
      <hfield name="hills" nrow="9" ncol="9" size="2 2 .5 .5" elevation="{HILLS}"/>
    </asset>
    <default><geom margin="{0 if first == "hfield" else MARGIN / 2}"/></default>
    <worldbody>
      <body mocap="true"><geom name="a" {GEOMS[first]}/></body>
      <body><freejoint/><geom name="b" {GEOMS[second]} mass="1"/></body>
    </worldbody>
  </mujoco>"""
  mjm = mujoco.MjModel.from_xml_string(xml)
  mjm.geom_rbound[mjm.geom_type != mujoco.mjtGeom.mjGEOM_PLANE] = 5.0  # sizes are varied
  mjm.geom_sameframe[:] = 0
  return mjm


@dataclasses.dataclass
class Pose:
  """Positions, rotations and sizes of the two geoms, in float64."""

  pos: np.ndarray  # (2, 3)
  mat: np.ndarray  # (2, 3, 3)
  size: np.ndarray  # (2, 3)

  def moved(self, direction: int, amount: float) -> "Pose":
    """Moved along one of 18 directions: 6 translations, 6 rotations in the world, 6 sizes."""
    pos, mat, size = self.pos.copy(), self.mat.copy(), self.size.copy()
    kind, body, axis = direction // 6, direction // 3 % 2, direction % 3
    if kind == 0:
      pos[body, axis] += amount
    elif kind == 1:
      mat[body] = rotation(np.eye(3)[axis] * amount) @ mat[body]
    else:
      size[body, axis] += amount
    return Pose(pos, mat, size)


def rotation(vector: np.ndarray) -> np.ndarray:
  """The rotation matrix of a rotation vector."""
  quat, mat = np.zeros(4), np.zeros(9)
  angle = np.linalg.norm(vector)
  mujoco.mju_axisAngle2Quat(quat, vector / max(angle, 1e-300), angle)
  mujoco.mju_quat2Mat(mat, quat)
  return mat.reshape(3, 3)


def c_contacts(mjm: mujoco.MjModel, mjd: mujoco.MjData, pose: Pose) -> np.ndarray:
  """C MuJoCo's contacts at a pose, a row each: dist, pos (3), frame (9)."""
  mjm.geom_size[:] = pose.size
  mjd.geom_xpos[:] = pose.pos
  mjd.geom_xmat[:] = pose.mat.reshape(2, 9)
  mujoco.mj_collision(mjm, mjd)
  rows = [np.concatenate([[c.dist], c.pos, c.frame]) for c in mjd.contact[: mjd.ncon]]
  return np.array(rows).reshape(-1, 13)


def nearest(rows: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, float]:
  """The contact among `rows` that is nearest to `row`, and how far it is."""
  if not len(rows):
    return row, np.inf
  errors = np.abs(rows - row).max(axis=1)
  return rows[errors.argmin()], errors.min()


def c_jacobian(mjm, mjd, pose: Pose, row: np.ndarray) -> tuple[np.ndarray, float]:
  """Central differences (13, 18) of one contact, and how far they are from smooth.

  The second value compares the differences with those of a step half as long.
  """
  jacobian = np.zeros((2, 13, 18))
  for k, step in enumerate((STEP, STEP / 2)):
    for direction in range(18):
      ends = []
      for sign in (1, -1):
        found, error = nearest(c_contacts(mjm, mjd, pose.moved(direction, sign * step)), row)
        if error > 100 * STEP:
          return jacobian[0], np.inf
        ends.append(found)
      jacobian[k, :, direction] = (ends[0] - ends[1]) / (2 * step)
  return jacobian[0], np.abs(jacobian[0] - jacobian[1]).max()


SECTION = (np.sqrt(5) - 1) / 2
CURVED_STEP = 1e-3  # a golden section knows n to 1e-8, so the differences are good to 1e-5


def support(mjm, geom: int, pose: dict, n: np.ndarray) -> np.ndarray:
  """The points (N, 3) of a geom that are furthest along the directions n (N, 3)."""
  pos, mat, size = (pose[key][:, geom] for key in ("pos", "mat", "size"))
  local = np.einsum("nji,nj->ni", mat, n)
  sign = np.where(local >= 0, 1.0, -1.0)
  kind = mujoco.mjtGeom(mjm.geom_type[geom])
  point = np.zeros_like(local)
  if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
    point = local * size[:, :1]
  elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
    point = local * size[:, :1]
    point[:, 2] += sign[:, 2] * size[:, 1]
  elif kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
    point = size**2 * local / np.linalg.norm(size * local, axis=1, keepdims=True)
  elif kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
    point[:, :2] = size[:, :1] * local[:, :2] / np.linalg.norm(local[:, :2], axis=1)[:, None]
    point[:, 2] = sign[:, 2] * size[:, 1]
  elif kind == mujoco.mjtGeom.mjGEOM_BOX:
    point = sign * size
  else:
    point = mjm.mesh_vert[(local @ mjm.mesh_vert.T).argmax(axis=1)].astype(float)
  return pos + np.einsum("nij,nj->ni", mat, point)


def golden(function, width: float, steps: int, count: int) -> np.ndarray:
  """The minima (count,) of `count` functions of one variable each, on [-width, width]."""
  low, high = np.full(count, -width), np.full(count, width)
  left, right = high - SECTION * (high - low), low + SECTION * (high - low)
  f_left, f_right = function(left), function(right)
  for _ in range(steps):
    smaller = f_left < f_right
    low, high = np.where(smaller, low, left), np.where(smaller, right, high)
    new = np.where(smaller, high - SECTION * (high - low), low + SECTION * (high - low))
    f_new = function(new)
    left, right, f_left, f_right = (
      np.where(smaller, new, right),
      np.where(smaller, left, new),
      np.where(smaller, f_new, f_right),
      np.where(smaller, f_left, f_new),
    )
  return (low + high) / 2


def extent(mjm, geom: int, pose: dict, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The two ends of what touches along n: equal at a point, apart at an edge."""
  frame = np.stack([make_frame(row, row).reshape(3, 3) for row in n])
  angles = np.arange(8) * np.pi / 4 + 0.1
  ways = [np.cos(t) * frame[:, 1] + np.sin(t) * frame[:, 2] for t in angles]
  points = np.stack([support(mjm, geom, pose, n + 1e-5 * way) for way in ways])
  spread = np.linalg.norm(points[:4] - points[4:], axis=2)
  best = spread.mean(axis=1).argmax()
  return points[best], points[best + 4]


def make_frame(n: np.ndarray, like: np.ndarray) -> np.ndarray:
  """MuJoCo's tangents of a normal, with the choice that it makes for `like`."""
  tangent = np.eye(3)[1 if abs(like[1]) < 0.5 else 2]
  tangent = tangent - n * (n @ tangent)
  tangent /= np.linalg.norm(tangent)
  return np.concatenate([n, tangent, np.cross(n, tangent)])


def support_contacts(mjm, poses: list[Pose], row: np.ndarray, like: np.ndarray) -> np.ndarray:
  """The contact (N, 13) near `row` at each pose, from the support functions."""
  count = len(poses)
  pose = {key: np.stack([getattr(p, key) for p in poses]) for key in ("pos", "mat", "size")}
  frame = make_frame(row[4:7], row[4:7]).reshape(3, 3)

  def normal(u, v):
    n = frame[0] + u[:, None] * frame[1] + v[:, None] * frame[2]
    return n / np.linalg.norm(n, axis=1, keepdims=True)

  def overlap(u, v):
    n = normal(u, v)
    return np.einsum("ni,ni->n", n, support(mjm, 0, pose, n) - support(mjm, 1, pose, -n))

  def inner(u):
    return golden(lambda v: overlap(u, v), 0.06, 75, count)  # across a kink: to the last digit

  u = golden(lambda u: overlap(u, inner(u)), 0.06, 42, count)
  n = normal(u, inner(u))
  dist = -overlap(u, inner(u))
  ends = [extent(mjm, 0, pose, n), extent(mjm, 1, pose, -n)]
  strict = [np.linalg.norm(a - b, axis=1).max() < 1e-2 for a, b in ends]
  half = 0.5 * dist[:, None] * n
  points = [(ends[0][0] + ends[0][1]) / 2 + half, (ends[1][0] + ends[1][1]) / 2 - half]
  if all(strict):
    pos = (points[0] + points[1]) / 2
  elif any(strict):
    pos = points[0] if strict[0] else points[1]
  else:
    along, other = ends[0][1] - ends[0][0], ends[1][1] - ends[1][0]
    gap = ends[1][0] - ends[0][0] - 2 * half
    across = np.cross(along, other)
    with np.errstate(invalid="ignore"):
      s = np.einsum("ni,ni->n", np.cross(gap, other), across) / (across**2).sum(axis=1)
    pos = ends[0][0] + s[:, None] * along + half
  frames = np.stack([make_frame(row_n, like) for row_n in n])
  return np.concatenate([dist[:, None], pos, frames], axis=1)


def support_jacobian(
  mjm, pose: Pose, row: np.ndarray, like: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
  """The contact near `row`, its Jacobian (13, 18), and how far the differences are from smooth."""
  steps = [k * CURVED_STEP for k in (1, -1, 0.5, -0.5)]
  moved = [pose.moved(direction, step) for step in steps for direction in range(18)]
  rows = support_contacts(mjm, [pose, *moved], row, like)
  ends = rows[1:].reshape(4, 18, 13)
  coarse = (ends[0] - ends[1]).T / (2 * CURVED_STEP)
  fine = (ends[2] - ends[3]).T / CURVED_STEP
  return rows[0], (4 * fine - coarse) / 3, np.abs(coarse - fine).max()


def random_poses(mjm: mujoco.MjModel, count: int, rng: np.random.Generator) -> list[Pose]:
  """Poses in which the two geoms overlap a little, or are apart by less than the margin."""
  mjd = mujoco.MjData(mjm)
  size = mjm.geom_size.copy()
  poses = []
  while len(poses) < count:
    mat = np.stack([rotation(rng.normal(size=3) * 2) for _ in range(2)])
    way = rng.normal(size=3)
    way /= np.linalg.norm(way)
    if mjm.geom_type[0] == mujoco.mjtGeom.mjGEOM_PLANE:
      way = mat[0, :, 2]
    target = rng.choice([-0.02, -0.002, 0.02]) * rng.uniform(0.5, 1.5)
    if mjm.geom_type[0] == mujoco.mjtGeom.mjGEOM_HFIELD:
      way = mat[0] @ np.array([0, 0, 1])
      target = -0.01
    start = rng.normal(size=3)
    shift = (
      mat[0]
      @ np.append(rng.uniform(-1, 1, size=2), 0)
      * (mjm.geom_type[0] == mujoco.mjtGeom.mjGEOM_HFIELD)
    )
    low, high = 0.0, 3.0
    for _ in range(40):
      middle = (low + high) / 2
      pose = Pose(np.stack([start, start + shift + middle * way]), mat, size)
      rows = c_contacts(mjm, mjd, pose)
      gap = rows[:, 0].min() if len(rows) else np.inf
      low, high = (middle, high) if gap < target else (low, middle)
    poses.append(pose)
  return poses


def reference(
  mjm, mjd, pose: Pose, row: np.ndarray, like: np.ndarray
) -> tuple[np.ndarray, float, float]:
  """The Jacobian of a contact by the better of the two references, its roughness and mismatch."""
  base, error = nearest(c_contacts(mjm, mjd, pose), row)
  truth, roughness = c_jacobian(mjm, mjd, pose, base)
  curved = not set(mjm.geom_type) <= {0, 6, 7}
  if curved and mjm.geom_type[0] > 1 and (roughness > 1e-7 or error > 1e-6):
    base, other, other_roughness = support_jacobian(mjm, pose, row, like)
    other_error = np.abs(base - row).max()
    if np.isnan(other).any():  # an edge within a step of the contact
      return other, np.inf, 0.0
    if other_error < 1e-4 or error > 1e-4:
      return other, other_roughness, other_error
  return truth, roughness, error
