"""The nodes of a model: its joints, and the bodies without one.

A body with n joints is a chain of n nodes, of which the last is the body; a body without joints is
one node, and node 0 is the world. No kernel then loops over joints.
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
    arrays: what each node is, and the node of each body.
    bodies: of which body each node is a part, and of what that body begins with.
    paths: where each node stands in the tree.
    count: the number of nodes.
  """

  arrays: dict[str, np.ndarray]
  bodies: dict[str, np.ndarray]
  paths: dict[str, np.ndarray]
  count: int


def topology(m: mujoco.MjModel) -> Topology:
  """The nodes of a model."""
  nodes = []  # (body, joint or -1, first of its body, last of its body)
  for body in range(m.nbody):
    adr, num = m.body_jntadr[body], m.body_jntnum[body]
    joints = list(range(adr, adr + num)) or [NONE]
    nodes += [(body, j, j == joints[0], j == joints[-1]) for j in joints]
  body, jnt, first, last = (np.array(x) for x in zip(*nodes, strict=True))
  of_body = np.flatnonzero(last)
  parent = np.where(first, of_body[m.body_parentid[body]], np.arange(len(nodes)) - 1)
  has = jnt != NONE
  kind, qposadr, dofadr = (
    np.where(has, x[jnt], NONE) if m.njnt else np.full(len(nodes), NONE)
    for x in (m.jnt_type, m.jnt_qposadr, m.jnt_dofadr)
  )
  arrays = dict(
    parent=parent,
    placed=np.where(first & (kind != FREE), body, NONE),
    mocap=np.where(last, m.body_mocapid[body], NONE),
    jnt=jnt,
    kind=kind,
    qposadr=qposadr,
    dofadr=dofadr,
    of_body=of_body,
    free_root=_free_roots(m, of_body),
  )
  bodies = dict(body=body, above=m.body_parentid[body], first=np.searchsorted(body, body))
  return Topology(arrays, bodies, _paths(parent), len(nodes))


def _paths(parent: np.ndarray) -> dict[str, np.ndarray]:
  """What `path_sums.Paths` says of the nodes.

  They are numbered depth first, as bodies are: those of a subtree are `range(node, end)`.
  """
  count = len(parent)
  root, end = np.arange(count), np.arange(count) + 1
  for n in range(1, count):
    root[n] = root[parent[n]] if parent[n] else n
  for n in reversed(range(1, count)):
    end[parent[n]] = max(end[parent[n]], end[n])
  above = [[]]  # each node and those above it, but for the world
  for n in range(1, count):
    above.append([n, *above[parent[n]]])
  start = np.cumsum([0, *map(len, above)])
  chain = np.array([*itertools.chain.from_iterable(above)], dtype=int)
  return dict(parent=parent, root=root, end=end, start=start, chain=chain)


def _free_roots(m: mujoco.MjModel, of_body: np.ndarray) -> np.ndarray:
  """The node of the freely floating rigid body that each body is part of, or -1."""
  out = np.full(m.nbody, NONE)
  for body in range(1, m.nbody):
    root = m.body_rootid[body]
    joint = m.body_jntadr[root]
    if joint >= 0 and m.jnt_type[joint] == FREE and m.body_subtreemass[root] > 0:
      if np.sum(m.body_jntnum[m.body_rootid == root]) == 1:
        out[body] = of_body[root]
  return out
