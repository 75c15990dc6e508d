"""Contact geometry against float64 central differences."""

import dataclasses

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from support.contact_geometry_reference import SIZES, Pose, random_poses, reference, rotation, scene


@dataclasses.dataclass
class Result:
  """Contacts of several worlds as Warp computes them, with their Jacobians."""

  world: np.ndarray  # (n,)
  mjwarp: np.ndarray  # (n, 13), as in the pool
  rows: np.ndarray  # (n, 13), recomputed
  jacobian: np.ndarray  # (n, 13, 18)

  def deep(self, depth: float) -> "Result":
    """Those of a depth: on a GPU MJWarp takes some cylinders that touch for apart."""
    chosen = np.abs(self.mjwarp[:, 0] + depth) < 0.1 * depth
    return Result(*(x[chosen] for x in dataclasses.astuple(self)))


def warp_contacts(mjm: mujoco.MjModel, poses: list[Pose]) -> Result:
  """Runs MJWarp's collision on all poses, a world each, and differentiates every contact."""
  m = mjw.put_model(mjm)
  m.geom_size = wp.array(np.stack([pose.size for pose in poses]), dtype=wp.vec3)
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
    _jacobians(geometry, d, world),
  )


def _rows(dist: wp.array, pos: wp.array, frame: wp.array) -> np.ndarray:
  return np.concatenate([dist.numpy()[:, None], pos.numpy(), frame.numpy().reshape(-1, 9)], axis=1)


def _jacobians(geometry: ContactGeometry, d: mjw.Data, world: np.ndarray) -> np.ndarray:
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
  rough: int  # the differences are not smooth there
  unknown: int  # the features were not found, and the gradient is NaN

  def __str__(self) -> str:
    """A row of the table."""
    if not len(self.errors):
      return f"no contact compared; other {self.other}, rough {self.rough}, unknown {self.unknown}"
    return (
      f"n {len(self.errors):4d}  median {np.median(self.errors):.1e}  "
      f"95 % {np.quantile(self.errors, 0.95):.1e}  max {self.errors.max():.1e}  "
      f"values {self.values:.1e}  other {self.other}  rough {self.rough}  "
      f"unknown {self.unknown}"
    )


def compare(first: str, second: str, count: int, rng, mjm=None) -> Comparison:
  """Jacobians of the contacts of a pair at random poses against the references."""
  mjm = mjm or scene(first, second)
  poses = random_poses(mjm, count, rng)
  result = warp_contacts(mjm, poses)
  mjd = mujoco.MjData(mjm)
  errors, values, other, rough, unknown = [], 0.0, 0, 0, 0
  directions = np.ones(18, bool)
  directions[12:15] = np.arange(3) < SIZES[first]
  directions[15:] = np.arange(3) < SIZES[second]
  for i, w in enumerate(result.world):
    values = max(values, np.abs(result.rows[i] - result.mjwarp[i]).max())
    if np.isnan(result.jacobian[i]).any():
      unknown += 1
      continue
    truth, roughness, error = reference(mjm, mjd, poses[w], result.rows[i], result.mjwarp[i, 4:7])
    if error > 1e-4:
      other += 1
      continue
    if roughness > 1e-3:
      rough += 1
      continue
    difference = (result.jacobian[i] - truth)[:, directions]
    errors.append(np.linalg.norm(difference) / np.linalg.norm(truth[:, directions]))
  return Comparison(np.array(errors), values, other, rough, unknown)


CONVEX = [
  ("plane", "mesh"),
  ("sphere", "ellipsoid"),
  ("sphere", "mesh"),
  ("capsule", "ellipsoid"),
  ("capsule", "cylinder"),
  ("capsule", "mesh"),
  ("ellipsoid", "ellipsoid"),
  ("ellipsoid", "cylinder"),
  ("ellipsoid", "box"),
  ("ellipsoid", "mesh"),
  ("cylinder", "cylinder"),
  ("cylinder", "box"),
  ("cylinder", "mesh"),
  ("box", "box"),
  ("box", "mesh"),
  ("mesh", "mesh"),
]

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


TERRAIN = [("hfield", name) for name in ("sphere", "capsule", "box", "mesh")]


@pytest.mark.parametrize(("first", "second"), PRIMITIVE)
def test_closed_form_pairs_agree_with_differences(first, second, rng):
  """Every output in all 12 pose directions and all sizes, in float32 against float64."""
  result = compare(first, second, 8, rng)
  assert len(result.errors) >= 6
  assert result.errors.max() < 1e-4
  assert result.values < 1e-5, "nearly all of them are MJWarp's own functions"


@pytest.mark.parametrize(("first", "second"), CONVEX + TERRAIN)
def test_pairs_of_gjk_and_epa_agree_with_differences(first, second, rng):
  """The reference for curved pairs is good to about 1e-4."""
  result = compare(first, second, 4, rng)
  assert len(result.errors) >= 2
  assert result.errors.max() < 1e-3
  assert not result.unknown


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), PRIMITIVE + CONVEX + TERRAIN)
def test_table_of_errors(first, second, rng):
  """More poses of each pair; `-s` prints the table."""
  result = compare(first, second, 40, rng)
  print(f"\n{first}-{second}: {result}")
  assert np.median(result.errors) < 1e-4
  assert np.quantile(result.errors, 0.95) < 1e-3
  assert result.unknown <= 0.1 * (result.unknown + len(result.errors))


def stack(first: str, second: str, tilts: list[float]) -> tuple[mujoco.MjModel, list[Pose]]:
  """Poses of the second geom lying on the first, a millimetre deep, turned about the vertical."""
  mjm = scene(first, second)
  poses = []
  for k, tilt in enumerate(tilts):
    turn = rotation(np.array([tilt, -0.7 * tilt, 0])) @ rotation(np.array([0, 0, 0.3 + 0.2 * k]))
    height = sum(mjm.geom_size[g, 2 if mjm.geom_type[g] == 6 else 1] for g in range(2)) - 1e-3
    pos = np.array([[0, 0, 0], [0.05, -0.08, height]])
    poses.append(Pose(pos, np.stack([np.eye(3), turn]), mjm.geom_size.copy()))
  return mjm, poses


@pytest.mark.parametrize("pair", [("box", "box"), ("cylinder", "cylinder"), ("cylinder", "box")])
def test_the_normal_of_two_flat_faces_rides_on_the_second_geom(pair):
  """MJWarp's rule for faces that it clips, also where edges and corners would explain as much."""
  mjm, poses = stack(*pair, [0.0, 0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-3, 1e-2])
  result = warp_contacts(mjm, poses).deep(1e-3)
  assert len(result.world) >= 6  # MJWarp misses some of these contacts, more of them on a GPU
  assert np.abs(result.rows - result.mjwarp).max() < 1e-5
  rotations = result.jacobian[:, 4:7, 6:12]  # of the normal, which is nearly z
  first, second = rotations[:, :, :3], rotations[:, :, 3:]
  np.testing.assert_allclose(first, 0, atol=1e-5)
  turning = [np.cross(np.eye(3), row[4:7]).T for row in result.rows]
  np.testing.assert_allclose(second, np.stack(turning), atol=1e-5)


@pytest.mark.parametrize(
  ("first", "second", "offset"),
  [
    ("plane", "cylinder", (0, 0, 0.399)),
    ("plane", "capsule", (0, 0, 0.499)),
    ("plane", "ellipsoid", (0, 0, 0.499)),
    ("sphere", "box", (0, 0, 0.799)),
    ("capsule", "capsule", (0, 0.299, 0)),
    ("capsule", "box", (0, 0, 0.849)),
    ("cylinder", "cylinder", (0, 0.599, 0)),
    ("ellipsoid", "box", (0, 0, 0.999)),
  ],
)
def test_gradients_are_finite_where_the_axes_of_the_geoms_are_aligned(first, second, offset):
  """Upright, flat or parallel: kinks, where the derivative of one side is as good as any."""
  mjm = scene(first, second)
  turns = np.stack([np.eye(3), np.eye(3)])
  pose = Pose(np.array([[0, 0, 0], offset]), turns, mjm.geom_size.copy())
  result = warp_contacts(mjm, [pose])
  assert len(result.world)
  if result.mjwarp[:, 0].min() > -1e-6:
    pytest.skip("MuJoCo Warp takes these geoms for apart, as on a GPU two upright cylinders")
  assert np.isfinite(result.jacobian).all()
  assert np.abs(result.jacobian).max() < 10  # the smallest radius is 0.15


def test_box_box_without_native_ccd_agrees_with_differences(rng):
  """MJWarp then clips the boxes as MuJoCo does, with the reference face's normal."""
  mjm = scene("box", "box")
  mjm.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_NATIVECCD
  result = compare("box", "box", 12, rng, mjm=mjm)
  assert len(result.errors) >= 8
  assert result.errors.max() < 1e-3
  assert not result.unknown


def _two_boxes(offset: float) -> tuple[mjw.Model, mjw.Data, ContactGeometry]:
  """One edge contact of two boxes, whose position in the pool is then moved by `offset`."""
  mjm = scene("sphere", "mesh")
  poses = random_poses(mjm, 1, np.random.default_rng(3))
  m = mjw.put_model(mjm)
  d = mjw.make_data(mjm, nworld=1, nconmax=8, njmax=32)
  d.geom_xpos.assign(poses[0].pos[None])
  d.geom_xmat.assign(poses[0].mat[None])
  mjw.collision(m, d)
  assert d.nacon.numpy()[0] == 1
  d.contact.pos.assign(d.contact.pos.numpy() + offset)
  return m, d, ContactGeometry(mjm, m, d)


def _backward(geometry: ContactGeometry, d: mjw.Data, grad_dist: np.ndarray) -> wp.array:
  """The gradient of the positions for one of the distances."""
  grads = wp.zeros_like(d.geom_xpos), wp.zeros_like(d.geom_xmat)
  geometry.backward(
    wp.array(grad_dist, dtype=float),
    wp.zeros_like(geometry.pos),
    grad_frame=wp.zeros_like(geometry.frame),
    grad_geom_xpos=grads[0],
    grad_geom_xmat=grads[1],
  )
  return grads[0]


def test_a_contact_that_no_feature_explains_keeps_its_values_and_poisons_its_gradient():
  """Only where the loss depends on it."""
  _, d, geometry = _two_boxes(offset=0.2)
  geometry.forward(d.geom_xpos, d.geom_xmat)
  assert geometry.pos.numpy()[0] == pytest.approx(d.contact.pos.numpy()[0], abs=0)
  assert np.isnan(_backward(geometry, d, np.eye(8)[0]).numpy()).all()
  assert (_backward(geometry, d, np.eye(8)[1]).numpy() == 0).all()


def test_contacts_that_do_not_exist_are_neither_written_nor_read():
  """The capacity is 8, one exists; a pool that overflowed counts more than it holds."""
  _, d, geometry = _two_boxes(offset=0.0)
  geometry.dist.fill_(np.nan)
  geometry.forward(d.geom_xpos, d.geom_xmat)
  assert np.isfinite(geometry.dist.numpy()).tolist() == [True] + [False] * 7
  grad = _backward(geometry, d, np.array([1.0] + [np.nan] * 7)).numpy()
  normal = d.contact.frame.numpy()[0, 0]
  np.testing.assert_allclose(grad[0], [-normal, normal], atol=1e-3)  # MJWarp's own noise
  d.nacon.fill_(1000)
  geometry.forward(d.geom_xpos, d.geom_xmat)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_forward_and_backward_can_be_captured(device):
  """A graph replayed at other poses gives what launches give there."""
  with wp.ScopedDevice(device):
    mjm = scene("capsule", "box")
    first, second = (random_poses(mjm, 4, np.random.default_rng(seed)) for seed in (0, 1))
    m = mjw.put_model(mjm)
    d = mjw.make_data(mjm, nworld=4, nconmax=8, njmax=32)
    geometry = ContactGeometry(mjm, m, d)
    grad, unused = wp.zeros_like(d.geom_xpos), wp.zeros_like(d.geom_xmat)
    ones = wp.ones_like(geometry.dist), wp.zeros_like(geometry.pos), wp.zeros_like(geometry.frame)

    def run() -> None:
      grad.zero_()
      geometry.forward(d.geom_xpos, d.geom_xmat)
      geometry.backward(
        ones[0],
        ones[1],
        grad_frame=ones[2],
        grad_geom_xpos=grad,
        grad_geom_xmat=unused,
      )

    def place(poses: list[Pose]) -> None:
      d.geom_xpos.assign(np.stack([pose.pos for pose in poses]))
      d.geom_xmat.assign(np.stack([pose.mat for pose in poses]))
      mjw.collision(m, d)

    place(first)
    with wp.ScopedCapture() as capture:  # before any launch: nothing is left to load
      run()
    place(second)
    wp.capture_launch(capture.graph)
    replayed = grad.numpy()
    run()
    np.testing.assert_allclose(replayed, grad.numpy(), atol=1e-6)
    assert np.abs(replayed).max() > 0.1


def test_gradients_are_added_to_what_is_there():
  """So several parts of a loss can share the buffers."""
  _, d, geometry = _two_boxes(offset=0.0)
  geometry.forward(d.geom_xpos, d.geom_xmat)
  once = _backward(geometry, d, np.eye(8)[0]).numpy()
  grad = wp.full_like(d.geom_xpos, wp.vec3(1.0, 1.0, 1.0))
  geometry.backward(
    wp.array(np.eye(8)[0], dtype=float),
    wp.zeros_like(geometry.pos),
    grad_frame=wp.zeros_like(geometry.frame),
    grad_geom_xpos=grad,
    grad_geom_xmat=wp.zeros_like(d.geom_xmat),
  )
  np.testing.assert_allclose(grad.numpy(), once + 1, atol=1e-6)


def test_a_model_with_a_flex_is_refused_by_name():
  """Nothing here differentiates its contacts."""
  mjm = mujoco.MjModel.from_xml_string("""
  <mujoco><worldbody>
    <geom type="plane" size="1 1 .1"/>
    <flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" pos="0 0 1" radius=".01">
      <contact selfcollide="none"/>
    </flexcomp>
  </worldbody></mujoco>""")
  m = mjw.put_model(mjm)
  assert "FLEX" in ContactGeometry(mjm, m, mjw.make_data(mjm)).unsupported
