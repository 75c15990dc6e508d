"""The tree of a model: its nodes, what hangs on what, and which degree of freedom moves what.

The nodes are the joints, and the bodies without one: a body with n joints is a chain of n nodes, of
which the last is the body itself; a body without joints is one node, and node 0 is the world. Who
walks over nodes meets at most one joint at each, and needs no loop over the joints of a body.

Bodies and nodes are numbered depth first: those of a subtree follow one another.
"""

import dataclasses
import itertools

import mujoco
import numpy as np

NONE = -1
FREE = int(mujoco.mjtJoint.mjJNT_FREE)
BALL = int(mujoco.mjtJoint.mjJNT_BALL)
SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
HINGE = int(mujoco.mjtJoint.mjJNT_HINGE)


@dataclasses.dataclass(frozen=True)
class Topology:
  """The nodes of a model as numpy arrays.

  Attributes:
    arrays: of each node its `parent`, the body that it places (`placed`, the first node of a body
      without a free joint), the `mocap` body that it is, its joint (`jnt`) with `kind`, `qposadr`
      and `dofadr`, -1 where there is none; of each body its node (`of_body`) and the node of the
      freely floating rigid body that it is part of (`free_root`, or -1).
    bodies: of each node the `body` that it is part of, the body `above` that (by body), and the
      `first` node of its body.
    paths: of each node its `parent`, the first node on the path from the world (`root`) and the
      `end` of its subtree, which is `range(node, end)`; the node and those above it, without the
      world, are `chain[start[node] : start[node + 1]]`.
    count: the number of nodes.
  """

  arrays: dict[str, np.ndarray]
  bodies: dict[str, np.ndarray]
  paths: dict[str, np.ndarray]
  count: int


def topology(mj_model: mujoco.MjModel) -> Topology:
  """The nodes of a model."""
  nodes = []  # (body, joint or -1, first of its body, last of its body)
  for body in range(mj_model.nbody):
    adr, num = mj_model.body_jntadr[body], mj_model.body_jntnum[body]
    joints = list(range(adr, adr + num)) or [NONE]
    nodes += [(body, j, j == joints[0], j == joints[-1]) for j in joints]
  body, jnt, first, last = (np.array(x) for x in zip(*nodes, strict=True))
  of_body = np.flatnonzero(last)
  parent = np.where(first, of_body[mj_model.body_parentid[body]], np.arange(len(nodes)) - 1)
  has = jnt != NONE
  kind, qposadr, dofadr = (
    np.where(has, x[jnt], NONE) if mj_model.njnt else np.full(len(nodes), NONE)
    for x in (mj_model.jnt_type, mj_model.jnt_qposadr, mj_model.jnt_dofadr)
  )
  arrays = dict(
    parent=parent,
    placed=np.where(first & (kind != FREE), body, NONE),
    mocap=np.where(last, mj_model.body_mocapid[body], NONE),
    jnt=jnt,
    kind=kind,
    qposadr=qposadr,
    dofadr=dofadr,
    of_body=of_body,
    free_root=_free_roots(mj_model, of_body),
  )
  bodies = dict(body=body, above=mj_model.body_parentid[body], first=np.searchsorted(body, body))
  return Topology(arrays, bodies, _paths(parent), len(nodes))


def _ends(parent: np.ndarray) -> np.ndarray:
  """The ends of subtrees: that of an element is `range(element, end)`."""
  end = np.arange(len(parent)) + 1
  for n in range(len(parent) - 1, 0, -1):  # children come after their parents
    end[parent[n]] = max(end[parent[n]], end[n])
  return end


def _paths(parent: np.ndarray) -> dict[str, np.ndarray]:
  """Where each node stands in the tree, see `Topology`."""
  count = len(parent)
  root = np.arange(count)
  for n in range(1, count):
    root[n] = root[parent[n]] if parent[n] else n
  above = [[]]  # each node and those above it, but for the world
  for n in range(1, count):
    above.append([n, *above[parent[n]]])
  start = np.cumsum([0, *map(len, above)])
  chain = np.array([*itertools.chain.from_iterable(above)], dtype=int)
  return dict(parent=parent, root=root, end=_ends(parent), start=start, chain=chain)


def _free_roots(mj_model: mujoco.MjModel, of_body: np.ndarray) -> np.ndarray:
  """The node of the freely floating rigid body that each body is part of, or -1."""
  out = np.full(mj_model.nbody, NONE)
  for body in range(1, mj_model.nbody):
    root = mj_model.body_rootid[body]
    joint = mj_model.body_jntadr[root]
    if joint >= 0 and mj_model.jnt_type[joint] == FREE and mj_model.body_subtreemass[root] > 0:
      if np.sum(mj_model.body_jntnum[mj_model.body_rootid == root]) == 1:
        out[body] = of_body[root]
  return out


def body_ends(mj_model: mujoco.MjModel) -> np.ndarray:
  """The ends of the subtrees of bodies, (nbody,): that of a body is `range(body, end)`."""
  return _ends(mj_model.body_parentid)


def subtrees(mj_model: mujoco.MjModel) -> np.ndarray:
  """Whether the second body is the first or below it, as numbers, (nbody, nbody) float32."""
  bodies = np.arange(mj_model.nbody)
  below = (bodies[:, None] <= bodies) & (bodies < body_ends(mj_model)[:, None])
  return below.astype(np.float32)


def moves(mj_model: mujoco.MjModel) -> np.ndarray:
  """Whether a degree of freedom moves a body, (nbody, nv) bool."""
  bodies, own = np.arange(mj_model.nbody)[:, None], mj_model.dof_bodyid
  return (own <= bodies) & (bodies < body_ends(mj_model)[own])


def dof_nodes(mj_model: mujoco.MjModel, nodes: Topology) -> np.ndarray:
  """The node of the joint of each degree of freedom, (nv,)."""
  joints = nodes.arrays["jnt"]
  has = joints != NONE
  of_joint = np.zeros(mj_model.njnt, dtype=int)
  of_joint[joints[has]] = np.flatnonzero(has)
  return of_joint[mj_model.dof_jntid]


def moved_nodes(mj_model: mujoco.MjModel, nodes: Topology) -> np.ndarray:
  """Whether a degree of freedom moves a node, (nv, nodes) bool."""
  own = dof_nodes(mj_model, nodes)[:, None]
  each = np.arange(nodes.count)
  return (own <= each) & (each < nodes.paths["end"][own])


def common_node(nodes: Topology, pair: tuple[int, int]) -> int:
  """The deepest node above two nodes, or one of them if it is above the other."""
  node, second = (int(n) for n in pair)
  while not node <= second < nodes.paths["end"][node]:
    node = int(nodes.arrays["parent"][node])
  return node
