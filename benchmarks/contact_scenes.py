"""Two bodies that touch, and what C MuJoCo says of the derivatives of a step from there.

C MuJoCo's step in float64 is differenced. Where its collision is iterative and a surface curved,
its contacts are good to a tolerance and their differences are noise: there the step is differenced
with the contact moved along the derivative of the exact one, which the reference of the tests finds
from the support functions of the two geoms.
"""

import copy
import dataclasses
import itertools
import pathlib
import sys
import types

import mujoco
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from support import contact_geometry_reference as reference  # noqa: E402

LENGTHS = (1e-6, 1e-5, 1e-4)  # of the differences; the two that agree best are believed
DEPTHS = (-0.001, -0.004, -0.012)
STAGES = (
  "kinematics comPos camlight tendon makeM factorM collision makeConstraint transmission "
  "fwdVelocity fwdActuation fwdAcceleration fwdConstraint Euler"
).split()
FIXED = {"plane": 'size="3 3 .1"', "hfield": 'hfield="hills"'}
FREE = {
  "sphere": 'size=".15"',
  "capsule": 'size=".08 .17"',
  "ellipsoid": 'size=".15 .2 .25"',
  "cylinder": 'size=".15 .2"',
  "box": 'size=".15 .2 .25"',
  "mesh": 'mesh="rock"',
}
PAIRS = (
  *(("plane", name) for name in FREE),
  *itertools.combinations_with_replacement(FREE, 2),
  *(("hfield", name) for name in FREE),
)


def is_iterative(pair: tuple[str, str]) -> bool:
  """Whether C MuJoCo's collision of a pair converges to a tolerance only."""
  curved = {"ellipsoid", "cylinder"} & set(pair)
  return bool(curved) and pair[0] not in FIXED and pair != ("sphere", "cylinder")


def scene(cone: str, condim: int, pairs: tuple[tuple[str, str], ...] = PAIRS) -> mujoco.MjModel:
  """The bodies of some pairs: "plane" and "hfield" can be placed, "box0", "box1", ... are free."""
  bodies = []
  for t, size in FIXED.items():
    if any(t in pair for pair in pairs):
      bodies.append(f'<body name="{t}" mocap="true"><geom type="{t}" {size}/></body>')
  for t, size in FREE.items():
    for i in range(2):
      if any(t == pair[i] for pair in pairs):
        rest = f'friction="{0.8 - 0.2 * i} {0.01 + 0.02 * i} .02" solref="{0.02 + 0.01 * i} 1"'
        bodies.append(
          f'<body name="{t}{i}"><freejoint/><geom type="{t}" {size} mass="{1 + i}" {rest}/></body>'
        )
  rock = " ".join(f"{0.5 * float(x):.4f}" for x in reference.ROCK.split())
  m = mujoco.MjModel.from_xml_string(f"""<mujoco>
  <option timestep=".004" cone="{cone}" impratio="2" iterations="100" ls_iterations="100"
    tolerance="1e-10"/>
  <asset><mesh name="rock" vertex="{rock}"/>
    <hfield name="hills" nrow="9" ncol="9" size="1 1 .25 .25" elevation="{reference.HILLS}"/>
  </asset>
  <default><geom condim="{condim}" solimp=".5 .95 .01" friction=".7 .02 .01"/></default>
  <worldbody>{"".join(bodies)}</worldbody></mujoco>""")
  m.geom_sameframe[:] = 0  # else C MuJoCo ignores changes of the offsets
  return m


def exact(m: mujoco.MjModel) -> mujoco.MjModel:
  """A copy whose solver and collisions converge in float64."""
  m = copy.copy(m)
  m.opt.tolerance, m.opt.iterations = 0, 50
  m.opt.ls_tolerance, m.opt.ls_iterations = 1e-12, 100
  m.opt.ccd_tolerance, m.opt.ccd_iterations = 0, 1000
  return m


@dataclasses.dataclass
class State:
  """Where the two bodies of a pair are and how they move, and a linear function of the outcome."""

  pair: tuple[str, str]
  qpos: np.ndarray
  qvel: np.ndarray
  mocap_pos: np.ndarray
  mocap_quat: np.ndarray
  weight_qpos: np.ndarray
  weight_qvel: np.ndarray

  def write(self, d: mujoco.MjData) -> None:
    """Puts the state into a Data."""
    for name in ("qpos", "qvel", "mocap_pos", "mocap_quat"):
      getattr(d, name)[:] = getattr(self, name)
    d.qacc_warmstart[:] = 0

  def value(self, d: mujoco.MjData) -> float:
    """The linear function."""
    return float(self.weight_qpos @ d.qpos + self.weight_qvel @ d.qvel)

  def place(self, m: mujoco.MjModel, name: str, pos: np.ndarray, quat: np.ndarray) -> None:
    """Moves a body."""
    body = m.body(name)
    if body.mocapid[0] >= 0:
      self.mocap_pos[body.mocapid[0]], self.mocap_quat[body.mocapid[0]] = pos, quat
    else:
      adr = m.jnt_qposadr[body.jntadr[0]]
      self.qpos[adr : adr + 3], self.qpos[adr + 3 : adr + 7] = pos, quat


def names_of(pair: tuple[str, str]) -> tuple[str, str]:
  """The two bodies of a pair."""
  return pair[0] + "0" * (pair[0] in FREE), pair[1] + "1"


def at_rest(m: mujoco.MjModel, pair: tuple[str, str]) -> State:
  """All bodies far from one another."""
  qpos, mocap = m.qpos0.copy(), np.zeros((m.nmocap, 3))
  for i in range(m.njnt):
    qpos[7 * i : 7 * i + 3] = [5 + 2 * i, 0, 3]
  mocap[:, 2] = [-50.0, 50.0][: m.nmocap]  # the plane comes first
  quats = np.tile([1.0, 0, 0, 0], (m.nmocap, 1))
  zeros = np.zeros(m.nq), np.zeros(m.nv)
  return State(pair, qpos, np.zeros(m.nv), mocap, quats, *zeros)


def _rotation(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
  """A random quaternion and its matrix."""
  quat, mat = rng.normal(size=4), np.zeros(9)
  quat /= np.linalg.norm(quat)
  mujoco.mju_quat2Mat(mat, quat)
  return quat, mat.reshape(3, 3)


def random_state(m: mujoco.MjModel, pair: tuple[str, str], rng: np.random.Generator) -> State:
  """Two geoms of the pair's own scene that overlap by a random depth, rounded to float32."""
  d, s = mujoco.MjData(m), at_rest(m, pair)
  (quat, mat), (other, _) = _rotation(rng), _rotation(rng)
  start, way, shift = 0.1 * rng.normal(size=3), rng.normal(size=3), np.zeros(3)
  if pair[0] in FIXED:
    way, shift = mat[:, 2], mat @ np.append(rng.uniform(-0.5, 0.5, size=2), 0)
  s.place(m, names_of(pair)[0], start, quat)
  target = rng.choice(DEPTHS) * rng.uniform(0.7, 1.4)
  low, high = 0.0, 2.0
  for _ in range(30):
    middle = (low + high) / 2
    s.place(m, names_of(pair)[1], start + shift + middle * way / np.linalg.norm(way), other)
    s.write(d)
    mujoco.mj_kinematics(m, d)
    mujoco.mj_collision(m, d)
    depth = min((c.dist for c in d.contact[: d.ncon]), default=1.0)
    low, high = (middle, high) if depth < target else (low, middle)
  s.qvel[:] = 0.3 * rng.normal(size=m.nv)
  s.weight_qpos, s.weight_qvel = rng.normal(size=m.nq), rng.normal(size=m.nv)
  for name in ("qpos", "qvel", "mocap_pos", "mocap_quat", "weight_qpos", "weight_qvel"):
    setattr(s, name, getattr(s, name).astype(np.float32).astype(float))
  return s


class Moving:
  """The contact of two curved geoms, moved along the derivative of the exact one."""

  def __init__(self, m: mujoco.MjModel, s: State):
    d = mujoco.MjData(m)
    s.write(d)
    mujoco.mj_kinematics(m, d)
    mujoco.mj_collision(m, d)
    self.start = d.geom_xpos.copy(), d.geom_xmat.reshape(-1, 3, 3).copy()
    pose = reference.Pose(*self.start, m.geom_size.copy())
    self.known = d.ncon == 1
    if self.known:
      c = d.contact[0]
      row = np.concatenate([[c.dist], c.pos, c.frame])
      shapes = types.SimpleNamespace(geom_type=m.geom_type, mesh_vert=m.mesh_vert)
      found = reference.support_jacobian(shapes, pose, row, row[4:7])
      self.row, self.slopes, rough = found
      self.known = rough < 1e-2 and np.abs(self.row - row).max() < 1e-3

  def write(self, d: mujoco.MjData) -> None:
    """Replaces the contact at the poses that the geoms have now."""
    turn = np.einsum("gij,gkj->gik", d.geom_xmat.reshape(-1, 3, 3) - self.start[1], self.start[1])
    turn = (
      np.stack(
        [
          turn[:, 2, 1] - turn[:, 1, 2],
          turn[:, 0, 2] - turn[:, 2, 0],
          turn[:, 1, 0] - turn[:, 0, 1],
        ],
        axis=1,
      )
      / 2
    )
    way = np.concatenate([(d.geom_xpos - self.start[0]).ravel(), turn.ravel()])
    row = self.row + self.slopes[:, :12] @ way
    if d.ncon == 1:
      d.contact[0].dist, d.contact[0].pos, d.contact[0].frame = row[0], row[1:4], row[4:]


def step(m: mujoco.MjModel, d: mujoco.MjData, moving: Moving | None = None) -> None:
  """A step of Euler, with the contact replaced."""
  if moving is None:
    mujoco.mj_step(m, d)
    return
  for name in STAGES:
    getattr(mujoco, f"mj_{name}")(m, d)
    if name == "collision":
      moving.write(d)


def differences(
  m: mujoco.MjModel, s: State, eps: float, moving: Moving | None = None
) -> dict[str, np.ndarray]:
  """The gradient by central differences of C MuJoCo, that of qpos in the tangent space."""
  d = mujoco.MjData(m)

  def value(name: str, k: int, h: float) -> float:
    s.write(d)
    if name == "qpos":
      mujoco.mj_integratePos(m, d.qpos, h * np.eye(m.nv)[k], 1)
    else:
      d.qvel[k] += h
    step(m, d, moving)
    return s.value(d)

  return {
    n: np.array([(value(n, k, eps) - value(n, k, -eps)) / (2 * eps) for k in range(m.nv)])
    for n in ("qpos", "qvel")
  }


def error(x: np.ndarray, truth: np.ndarray) -> float:
  """The largest error over the largest entry."""
  return float(np.abs(x - truth).max() / max(np.abs(truth).max(), 1e-12))


def truth(m: mujoco.MjModel, s: State) -> tuple[dict[str, np.ndarray], float, np.ndarray]:
  """The gradient in an exact scene, how far two lengths of the differences disagree, and qvel."""
  d = mujoco.MjData(m)
  moving = Moving(m, s) if is_iterative(s.pair) else None
  if moving and not moving.known:
    return {}, np.inf, d.qvel
  noise, want = np.inf, {}
  last = differences(m, s, LENGTHS[0], moving)
  for eps in LENGTHS[1:]:
    found = differences(m, s, eps, moving)
    apart = max(error(found[n], last[n]) for n in found)
    if apart < noise:
      noise, want = apart, last
    if noise < 1e-4:
      break
    last = found
  s.write(d)
  step(m, d, moving)
  return want, noise, d.qvel
