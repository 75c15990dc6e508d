"""The model's derived constants as functions of its leaves, all at `qpos0`.

There joints with one degree of freedom have not moved. With the inertia matrix M and the Jacobian J
of what a constant belongs to, the inverse weights are diagonals of J M⁻¹ Jᵀ, averaged over
directions (MuJoCo's documentation, "Computation", section on constraints).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data.enums import EqType, GeomType, ObjType
from mjx_warp_ffi.mjx.numerics.quaternions import conjugate, matrix, multiply, normalize, rotate
from mjx_warp_ffi.mjx.numerics.topology import (
  BALL,
  FREE,
  SLIDE,
  Topology,
  dof_nodes,
  moves,
  subtrees,
  topology,
)

Leaves = dict[str, jax.Array]


def norm(x: jax.Array) -> jax.Array:
  """Lengths of vectors, with a derivative of zero at zero."""
  square = jnp.sum(x * x, axis=-1)
  zero = square < 1e-24
  return jnp.where(zero, jnp.float32(0), jnp.sqrt(jnp.where(zero, jnp.float32(1), square)))


_AXES = np.eye(3, dtype=np.float32)
# `body_simple` of bodies that only slide along axes of the world. For the inverse weights of these
# mj_setConst divides by the mass alone, without armature, in all directions, joint or not.
_SLIDING = 2
_PRIMITIVES = (
  *(GeomType.SPHERE, GeomType.CAPSULE, GeomType.CYLINDER, GeomType.ELLIPSOID),
  GeomType.BOX,
)


@dataclasses.dataclass(frozen=True)
class Rest:
  """A model at `qpos0`: poses, and the velocities that each degree of freedom gives.

  Attributes:
    mj: the model's structure.
    leaves: the leaves of Model by name.
    xpos: positions of the bodies, (nbody, 3).
    xquat: their orientations, (nbody, 4).
    axis: angular velocity of a unit rate of each degree of freedom, (nv, 3).
    slide: its linear velocity, (nv, 3).
    anchor: the point that it turns about, (nv, 3).
    moves: whether it moves a body, (nbody, nv).
  """

  mj: mujoco.MjModel
  leaves: Leaves
  xpos: jax.Array
  xquat: jax.Array
  axis: jax.Array
  slide: jax.Array
  anchor: jax.Array
  moves: np.ndarray

  def place(self, bodies: np.ndarray, offsets: jax.Array) -> jax.Array:
    """World positions of points of bodies."""
    return self.xpos[bodies] + rotate(self.xquat[bodies], offsets)

  def rates(self, bodies: np.ndarray, points: jax.Array) -> jax.Array:
    """Velocities of points that ride on bodies, (n, nv, 3)."""
    turned = jnp.cross(self.axis, points[:, None] - self.anchor)
    return jnp.where(self.moves[bodies][..., None], self.slide + turned, jnp.float32(0))

  def turns(self, bodies: np.ndarray) -> jax.Array:
    """Angular velocities of bodies, (n, nv, 3)."""
    return jnp.where(self.moves[bodies][..., None], self.axis, jnp.float32(0))


def rest(mj: mujoco.MjModel, leaves: Leaves) -> Rest:
  """The model at `qpos0`."""
  top = topology(mj)
  x, q = _poses(top, leaves)
  bodies = top.arrays["of_body"]
  axis, slide, anchor = _axes(mj, top, leaves, (x, q))
  return Rest(mj, leaves, x[bodies], q[bodies], axis, slide, anchor, moves(mj))


def _poses(top: Topology, leaves: Leaves) -> tuple[jax.Array, jax.Array]:
  """Positions and orientations of the nodes, in a loop over them: unrolled, it compiles slowly."""
  names = ("parent", "placed", "kind", "jnt", "qposadr")
  table = {name: jnp.asarray(top.arrays[name][1:], jnp.int32) for name in names}
  # joints may be none, and a joint's coordinates fewer than a free joint's, which are read anyway
  qpos0 = jnp.concatenate([leaves["qpos0"], jnp.zeros(7, jnp.float32)])
  jnt_pos = jnp.concatenate([leaves["jnt_pos"], jnp.zeros((1, 3), jnp.float32)])

  def place(poses: tuple[jax.Array, jax.Array], node: Leaves) -> tuple[Any, None]:
    x, q = poses[0][node["parent"]], poses[1][node["parent"]]
    placed, body = node["placed"] >= 0, jnp.maximum(node["placed"], 0)
    x = jnp.where(placed, x + rotate(q, leaves["body_pos"][body]), x)
    q = jnp.where(placed, multiply(q, leaves["body_quat"][body]), q)
    q = normalize(q)
    own = jax.lax.dynamic_slice_in_dim(qpos0, node["qposadr"], 7)
    after = normalize(multiply(q, normalize(own[:4])))
    offset = jnt_pos[node["jnt"]]
    free, ball = node["kind"] == FREE, node["kind"] == BALL
    x = jnp.where(ball, x + rotate(q, offset) - rotate(after, offset), x)
    x = jnp.where(free, own[:3], x)
    q = jnp.where(ball, after, jnp.where(free, normalize(own[3:]), q))
    at = node["node"]
    return (poses[0].at[at].set(x), poses[1].at[at].set(q)), None

  table["node"] = jnp.arange(1, top.count, dtype=jnp.int32)
  x = jnp.zeros((top.count, 3), jnp.float32)
  q = jnp.zeros((top.count, 4), jnp.float32).at[:, 0].set(1)
  return jax.lax.scan(place, (x, q), table)[0]


def _axes(
  mj: mujoco.MjModel, top: Topology, leaves: Leaves, poses: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, ...]:
  """Angular and linear velocities of unit rates, and anchors, by degree of freedom."""
  joint = mj.dof_jntid
  node = dof_nodes(mj, top)
  x, q = poses[0][node], poses[1][node]
  kind, k = mj.jnt_type[joint], np.arange(mj.nv) - mj.jnt_dofadr[joint]
  shifts = ((kind == SLIDE) | ((kind == FREE) & (k < 3)))[:, None]
  free, several = (kind == FREE)[:, None], np.isin(kind, (FREE, BALL))[:, None]
  unit = _AXES[k % 3]
  axis = rotate(q, jnp.where(several, unit, leaves["jnt_axis"][joint]))
  axis = jnp.where(shifts & free, unit, axis)
  zero = jnp.float32(0)
  anchor = x + jnp.where(free, zero, rotate(q, leaves["jnt_pos"][joint]))
  return jnp.where(shifts, zero, axis), jnp.where(shifts, axis, zero), anchor


def centres(at: Rest) -> jax.Array:
  """Centres of mass of the bodies, (nbody, 3)."""
  return at.place(np.arange(at.mj.nbody), at.leaves["body_ipos"])


def dof_weights(mj: mujoco.MjModel, leaves: Leaves, *, inverse_mass: jax.Array) -> jax.Array:
  """`dof_invweight0`: all translations of a joint get their mean, and all rotations theirs."""
  joint = mj.dof_jntid
  turn = (mj.jnt_type[joint] == FREE) & (np.arange(mj.nv) - mj.jnt_dofadr[joint] >= 3)
  group = 2 * joint + turn
  mean = (group[:, None] == group).astype(np.float32)
  mean /= mean.sum(axis=1, keepdims=True)
  sliding = mj.body_simple[mj.dof_bodyid] == _SLIDING
  lightness = 1 / jnp.where(sliding, leaves["body_mass"][mj.dof_bodyid], jnp.float32(1))
  return jnp.where(sliding, lightness, mean @ jnp.diagonal(inverse_mass))


def body_weights(at: Rest, inverse_mass: jax.Array) -> jax.Array:
  """`body_invweight0`: means over the directions of translation and of rotation."""
  mj, bodies = at.mj, np.arange(at.mj.nbody)

  def mean(rates: jax.Array) -> jax.Array:
    return jnp.einsum("bvi,vw,bwi->b", rates, inverse_mass, rates) / 3

  zero, sliding = jnp.float32(0), mj.body_simple == _SLIDING
  lightness = 1 / jnp.where(sliding, at.leaves["body_mass"], jnp.float32(1))
  shift = jnp.where(sliding, lightness, mean(at.rates(bodies, centres(at))))
  both = jnp.stack([shift, mean(at.turns(bodies))], axis=-1)
  return jnp.where((mj.body_weldid != 0)[:, None], both, zero)


def equality_data(at: Rest) -> jax.Array:
  """`eq_data`: the second anchor of a connect, and the relative pose of a weld that asks for it."""
  mj, data = at.mj, at.leaves["eq_data"]
  welds = mj.eq_type == EqType.WELD
  bodies = mj.eq_objtype == ObjType.BODY
  b1, b2 = (np.where(bodies, x, 0) for x in (mj.eq_obj1id, mj.eq_obj2id))
  own, other = np.where(welds, b2, b1), np.where(welds, b1, b2)
  anchor = rotate(conjugate(at.xquat[other]), at.place(own, data[:, :3]) - at.xpos[other])
  turned = multiply(conjugate(at.xquat[b1]), at.xquat[b2])
  posed = jnp.concatenate([data[:, :3], anchor, turned, data[:, 10:]], axis=1)
  joined = data.at[:, 3:6].set(anchor)
  connects = (bodies & (mj.eq_type == EqType.CONNECT))[:, None]
  asked = (bodies & welds)[:, None] & (data[:, 11:12] != 0)
  return jnp.where(connects, joined, jnp.where(asked, posed, data))


def references(at: Rest, kind: str) -> Leaves:
  """Poses of cameras (`kind` is "cam") or lights ("light") relative to what they may track."""
  mj, leaves = at.mj, at.leaves
  body, target = getattr(mj, f"{kind}_bodyid"), getattr(mj, f"{kind}_targetbodyid")
  below = subtrees(mj)
  mass = below @ leaves["body_mass"]
  moment = below @ (leaves["body_mass"][:, None] * centres(at))
  empty = (mass < mujoco.mjMINVAL)[:, None]
  com = jnp.where(empty, centres(at), moment / jnp.where(empty, jnp.float32(1), mass[:, None]))
  offset = rotate(at.xquat[body], leaves[f"{kind}_pos"])
  place = at.xpos[body] + offset - com[np.where(target >= 0, target, body)]
  out = {f"{kind}_pos0": offset, f"{kind}_poscom0": place}
  if kind == "cam":
    out["cam_mat0"] = matrix(normalize(multiply(at.xquat[body], leaves["cam_quat"])))
  else:
    direction = rotate(at.xquat[body], leaves["light_dir"])
    out["light_dir0"] = direction / jnp.maximum(norm(direction), 1e-12)[:, None]
  return out


def _half_sizes(kind: int, size: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Radii of the bounding spheres of primitives of a kind, and halves of their boxes."""
  x, y, z = size.T
  if kind == GeomType.SPHERE:
    return x, jnp.stack([x, x, x], axis=-1)
  if kind == GeomType.CAPSULE:
    return x + y, jnp.stack([x, x, x + y], axis=-1)
  if kind == GeomType.CYLINDER:
    return jnp.hypot(x, y), jnp.stack([x, x, y], axis=-1)
  if kind == GeomType.ELLIPSOID:
    return jnp.max(size, axis=-1), size
  return norm(size), size  # a box


def geom_bounds(mj: mujoco.MjModel, leaves: Leaves) -> Leaves:
  """`geom_rbound` and `geom_aabb`; those of planes and meshes stay."""
  radius, box = leaves["geom_rbound"], leaves["geom_aabb"]
  for kind in np.intersect1d(mj.geom_type, _PRIMITIVES):
    which = np.flatnonzero(mj.geom_type == kind)
    bound, half = _half_sizes(int(kind), leaves["geom_size"][which])
    radius = radius.at[which].set(bound)
    box = box.at[which].set(jnp.concatenate([jnp.zeros_like(half), half], axis=-1))
  which = np.flatnonzero(mj.geom_type == GeomType.HFIELD)
  if len(which):
    size = mj.hfield_size.astype(np.float32)
    x, y, up, down = jnp.asarray(size)[leaves["geom_dataid"][which]].T
    radius = radius.at[which].set(jnp.sqrt(x**2 + y**2 + jnp.maximum(up, down) ** 2))
    box = box.at[which].set(jnp.stack([0 * x, 0 * y, (up - down) / 2, x, y, (up + down) / 2], -1))
  return {"geom_rbound": radius, "geom_aabb": box}
