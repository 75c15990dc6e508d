"""Contact geometry against float64 central differences of C MuJoCo's own collision functions."""

import dataclasses

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contact_geometry import ContactGeometry

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
}
SIZES = {"plane": 0, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3, "mesh": 0}

# An irregular polytope: no two of its faces are parallel.
ROCK = (
  "-.40 -.35 -.30  .45 -.30 -.36  .38 .42 -.28  -.33 .40 -.41 "
  "-.30 -.28 .34  .33 -.36 .41  .30 .31 .36  -.37 .26 .30  .02 .05 .61"
)


def scene(first: str, second: str) -> mujoco.MjModel:
  """Two free geoms that may touch each other, with a margin."""
  xml = f"""
  <mujoco>
    <option ccd_tolerance="1e-9" ccd_iterations="200"/>
    <asset><mesh name="rock" vertex="{ROCK}"/></asset>
    <default><geom margin="{MARGIN / 2}"/></default>
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
    start = rng.normal(size=3)
    low, high = 0.0, 3.0
    for _ in range(40):
      middle = (low + high) / 2
      pose = Pose(np.stack([start, start + middle * way]), mat, size)
      rows = c_contacts(mjm, mjd, pose)
      gap = rows[:, 0].min() if len(rows) else np.inf
      low, high = (middle, high) if gap < target else (low, middle)
    poses.append(pose)
  return poses


@dataclasses.dataclass
class Result:
  """Contacts of several worlds as Warp computes them, with their Jacobians."""

  world: np.ndarray  # (n,)
  mjwarp: np.ndarray  # (n, 13), as in the pool
  rows: np.ndarray  # (n, 13), recomputed
  jacobian: np.ndarray  # (n, 13, 18)


def warp_contacts(mjm: mujoco.MjModel, poses: list[Pose]) -> Result:
  """Runs MJWarp's collision on all poses, a world each, and differentiates every contact."""
  m = mjw.put_model(mjm)
  d = mjw.make_data(mjm, nworld=len(poses), nconmax=16, njmax=64)
  d.geom_xpos.assign(np.stack([pose.pos for pose in poses]))
  d.geom_xmat.assign(np.stack([pose.mat for pose in poses]))
  mjw.collision(m, d)
  geometry = ContactGeometry(mjm, m, d)
  geometry.forward(d.geom_xpos, d.geom_xmat)
  count = int(d.nacon.numpy()[0])
  world = d.contact.worldid.numpy()[:count]
  assert not geometry.unsupported
  return Result(
    world,
    _rows(d.contact.dist, d.contact.pos, d.contact.frame)[:count],
    _rows(geometry.dist, geometry.pos, geometry.frame)[:count],
    _jacobians(geometry, m, d, world),
  )


def _rows(dist: wp.array, pos: wp.array, frame: wp.array) -> np.ndarray:
  return np.concatenate([dist.numpy()[:, None], pos.numpy(), frame.numpy().reshape(-1, 9)], axis=1)


def _jacobians(geometry: ContactGeometry, m: mjw.Model, d: mjw.Data, world: np.ndarray):
  """One backward pass for each output and each contact of a world."""
  index = np.array([np.sum(world[:i] == w) for i, w in enumerate(world)], dtype=int)
  mats = d.geom_xmat.numpy().astype(float)
  generators = np.stack([np.cross(np.eye(3)[k], np.eye(3)).T for k in range(3)])
  result = np.zeros((len(world), 13, 18))
  for j in range(index.max(initial=-1) + 1):
    for output in range(13):
      seed = np.zeros((d.naconmax, 13))
      seed[np.flatnonzero(index == j), output] = 1
      gpos, gmat = wp.zeros_like(d.geom_xpos), wp.zeros_like(d.geom_xmat)
      gsize = wp.zeros(d.geom_xpos.shape, dtype=wp.vec3)
      m.geom_size = wp.array(np.tile(m.geom_size.numpy()[:1], (d.nworld, 1, 1)), dtype=wp.vec3)
      geometry.forward(d.geom_xpos, d.geom_xmat)
      geometry.backward(
        wp.array(seed[:, 0], dtype=float),
        wp.array(seed[:, 1:4], dtype=wp.vec3),
        grad_frame=wp.array(seed[:, 4:].reshape(-1, 3, 3), dtype=wp.mat33),
        grad_geom_xpos=gpos,
        grad_geom_xmat=gmat,
        grad_geom_size=gsize,
      )
      turn = np.einsum("wgij,kil,wglj->wgk", gmat.numpy(), generators, mats)
      full = np.concatenate([gpos.numpy(), turn, gsize.numpy()], axis=1).reshape(d.nworld, 18)
      chosen = index == j
      result[chosen, output] = full[world[chosen]]
  return result


@dataclasses.dataclass
class Comparison:
  """Relative errors of the Jacobians of one pair, and why contacts were left out."""

  errors: np.ndarray
  values: float
  other: int  # C MuJoCo finds other points there
  rough: int  # C MuJoCo's own differences are not smooth there

  def __str__(self) -> str:
    """A row of the table."""
    if not len(self.errors):
      return f"no contact compared; other {self.other}, rough {self.rough}"
    return (
      f"n {len(self.errors):4d}  median {np.median(self.errors):.1e}  "
      f"95 % {np.quantile(self.errors, 0.95):.1e}  max {self.errors.max():.1e}  "
      f"values {self.values:.1e}  other {self.other}  rough {self.rough}"
    )


def compare(first: str, second: str, count: int, rng: np.random.Generator) -> Comparison:
  """Jacobians of the contacts of a pair at random poses against C MuJoCo's."""
  mjm = scene(first, second)
  poses = random_poses(mjm, count, rng)
  result = warp_contacts(mjm, poses)
  mjd = mujoco.MjData(mjm)
  errors, values, other, rough = [], 0.0, 0, 0
  directions = np.ones(18, bool)
  directions[12:15] = np.arange(3) < SIZES[first]
  directions[15:] = np.arange(3) < SIZES[second]
  for i, w in enumerate(result.world):
    values = max(values, np.abs(result.rows[i] - result.mjwarp[i]).max())
    base, error = nearest(c_contacts(mjm, mjd, poses[w]), result.rows[i])
    if error > 1e-4:
      other += 1
      continue
    truth, roughness = c_jacobian(mjm, mjd, poses[w], base)
    if roughness > 1e-3:
      rough += 1
      continue
    difference = (result.jacobian[i] - truth)[:, directions]
    errors.append(np.linalg.norm(difference) / np.linalg.norm(truth[:, directions]))
  return Comparison(np.array(errors), values, other, rough)


PRIMITIVE = [
  ("plane", "sphere"),
  ("plane", "capsule"),
  ("plane", "ellipsoid"),
  ("plane", "cylinder"),
  ("plane", "box"),
  ("sphere", "sphere"),
  ("sphere", "capsule"),
  ("sphere", "cylinder"),
  ("sphere", "box"),
  ("capsule", "capsule"),
  ("capsule", "box"),
]


@pytest.mark.parametrize(("first", "second"), PRIMITIVE)
def test_closed_form_pairs_agree_with_differences_of_c_mujoco(first, second, rng):
  """Every output in all 12 pose directions and all sizes."""
  result = compare(first, second, 12, rng)
  print(f"\n{first}-{second}: {result}")
  assert len(result.errors) >= 8
  assert np.median(result.errors) < 1e-5
  assert result.errors.max() < 1e-3
