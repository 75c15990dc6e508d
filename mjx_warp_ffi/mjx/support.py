"""Matrices, Jacobians, forces and constraint rows of a state, and the names of a model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from mjx_warp_ffi.mjx.data.pickles import public
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.functions import inertia
from mjx_warp_ffi.mjx.warp.functions import support as backend
from mjx_warp_ffi.mjx.warp.functions.contact_force import contact_force as contact_forces
from mjx_warp_ffi.mjx.warp.models import acceptance

_EXACT = jax.lax.Precision.HIGHEST  # a GPU's default would round the factors to 10 bits


@public
@struct.dataclass
class ConstraintRows:
  """The constraint rows of one world: `nefc` real ones, then padding up to `njmax`.

  In the padding `type`, `id` and `state` are -1 and everything else is zero.

  Attributes:
    nefc: number of rows; more than `njmax` if rows were lost.
    ne: number of equality rows, which come first.
    nf: number of friction rows, which come next.
    nl: number of limit rows, which come next; then come the contacts'.
    type: mjtConstraint, (njmax,).
    id: joint, dof, tendon, equality, or index into `Data.contact`, (njmax,).
    state: mjtConstraintState, (njmax,).
    pos: violation, (njmax,).
    margin: inclusion margin, (njmax,).
    D: constraint mass, (njmax,).
    vel: J qvel, (njmax,).
    aref: reference acceleration, (njmax,).
    frictionloss: friction loss, (njmax,).
    force: constraint force, (njmax,).
    J: Jacobian, (njmax, nv).
  """

  nefc: jax.Array
  ne: jax.Array
  nf: jax.Array
  nl: jax.Array
  type: jax.Array
  id: jax.Array
  state: jax.Array
  pos: jax.Array
  margin: jax.Array
  D: jax.Array
  vel: jax.Array
  aref: jax.Array
  frictionloss: jax.Array
  force: jax.Array
  J: jax.Array


def full_m(m: Model, d: Data) -> jax.Array:
  """The joint-space inertia matrix of the poses in a Data, as mj_fullM.

  Args:
    m: the model.
    d: one world, after `forward` or a stage from `com_pos` on.

  Returns:
    The matrix, (nv, nv), in kg, kg m or kg m^2. With `forward` it has a gradient with respect to
    the state, NaN where tendons or actuators have armature.

  Raises:
    ValueError: for a wrong shape or dtype, or a Data of another model.
  """
  return inertia.full_m(m, d) if m.nv else jnp.zeros((0, 0), jnp.float32)


def mul_m(m: Model, d: Data, vec: jax.Array) -> jax.Array:
  """The inertia matrix times a vector, as mj_mulM.

  Args:
    m: the model.
    d: one world, as for `full_m`.
    vec: the vector, (nv,).

  Returns:
    M vec, (nv,).
  """
  return jnp.matmul(full_m(m, d), jnp.asarray(vec, jnp.float32), precision=_EXACT)


def tendon_jacobian(m: Model, d: Data) -> jax.Array:
  """The derivative of the tendon lengths in qvel, MjData.ten_J, as a dense (ntendon, nv)."""
  empty = 0 in (m.nv, m.ntendon)
  return jnp.zeros((m.ntendon, m.nv), jnp.float32) if empty else backend.tendon_jacobian(m, d)[0]


def actuator_moment(m: Model, d: Data) -> jax.Array:
  """The derivative of the actuator lengths at qpos, as a dense (nactuator, nv)."""
  size = (m.spec.mj_model.nactuator, m.nv)
  return jnp.zeros(size, jnp.float32) if 0 in size else backend.actuator_moment(m, d)[0]


def deriv_smooth_vel(m: Model, d: Data) -> jax.Array:
  """The derivative of passive and actuator forces in qvel, at the state.

  Args:
    m: the model.
    d: the state of one world.

  Returns:
    The symmetric matrix that implicitfast uses, (nv, nv): without the derivatives of Coriolis
    forces.
  """
  return backend.deriv_smooth_vel(m, d)[0] if m.nv else jnp.zeros((0, 0), jnp.float32)


def jac(m: Model, d: Data, point: jax.Array, body_id: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Jacobians of points that are fixed to bodies, as mj_jac.

  Args:
    m: the model.
    d: one world, after `forward` or a stage from `com_pos` on.
    point: world coordinates, (..., 3).
    body_id: the bodies, (...).

  Returns:
    The Jacobians of position and of rotation, each (..., nv, 3).
  """
  _check_bodies(m, body_id)
  point, body = jnp.asarray(point, jnp.float32), jnp.asarray(body_id)
  moves = jnp.asarray(inertia.moves(m.spec))[body][..., None]
  offset = point - d.subtree_com[jnp.asarray(m.body_rootid)[body]]
  rotation = jnp.where(moves, d.cdof[:, :3], 0.0)
  linear = jnp.where(moves, d.cdof[:, 3:], 0.0)
  return linear + jnp.cross(rotation, offset[..., None, :]), rotation


def jac_body(m: Model, d: Data, body_id: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Jacobians of body frames, as mj_jacBody; see `jac`."""
  _check_bodies(m, body_id)
  return jac(m, d, d.xpos[jnp.asarray(body_id)], body_id)


def jac_body_com(m: Model, d: Data, body_id: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Jacobians of the centers of mass of bodies, as mj_jacBodyCom; see `jac`."""
  _check_bodies(m, body_id)
  return jac(m, d, d.xipos[jnp.asarray(body_id)], body_id)


def jac_site(m: Model, d: Data, site_id: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Jacobians of sites, as mj_jacSite; see `jac`."""
  site = jnp.asarray(site_id)
  return jac(m, d, d.site_xpos[site], jnp.asarray(m.site_bodyid)[site])


def jac_geom(m: Model, d: Data, geom_id: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Jacobians of geoms, as mj_jacGeom; see `jac`."""
  geom = jnp.asarray(geom_id)
  return jac(m, d, d.geom_xpos[geom], jnp.asarray(m.geom_bodyid)[geom])


def apply_ft(
  m: Model,
  d: Data,
  force: jax.Array,
  torque: jax.Array,
  point: jax.Array,
  body_id: jax.Array,
) -> jax.Array:
  """Generalized force of a force and torque on a body, as mj_applyFT.

  Args:
    m: the model.
    d: one world, as for `jac`.
    force: world frame, (..., 3), N.
    torque: world frame, (..., 3), N m.
    point: where the force acts, world coordinates, (..., 3).
    body_id: the body, (...).

  Returns:
    The generalized force, (..., nv).
  """
  jacp, jacr = jac(m, d, point, body_id)
  columns = (jnp.asarray(force, jnp.float32), jnp.asarray(torque, jnp.float32))
  parts = [
    jnp.einsum("...ij,...j->...i", j, x, precision=_EXACT)
    for j, x in zip((jacp, jacr), columns, strict=True)
  ]
  return parts[0] + parts[1]


def xfrc_accumulate(m: Model, d: Data) -> jax.Array:
  """Generalized force of `d.xfrc_applied`, as mj_xfrcAccumulate.

  Args:
    m: the model.
    d: one world, as for `jac`.

  Returns:
    The generalized force, (nv,).
  """
  force, torque = d.xfrc_applied[:, :3], d.xfrc_applied[:, 3:]
  bodies = np.arange(m.nbody)
  return jnp.sum(apply_ft(m, d, force, torque, d.xipos, bodies), axis=0)


def constraint_rows(m: Model, d: Data) -> ConstraintRows:
  """The constraint rows at the state, solved.

  Args:
    m: the model.
    d: the state of one world.

  Returns:
    The rows. They and their order may differ from MuJoCo's within equality, friction, limit and
    contact rows.
  """
  values = dict(zip((a.name for a in backend.ROWS), _rows(m, d), strict=True))
  return ConstraintRows(**values)


def _rows(m: Model, d: Data) -> tuple[jax.Array, ...]:
  if m.nv and d.sizes.njmax:
    return backend.constraint_rows(m, d)
  sizes = {"njmax": d.sizes.njmax, "nv": m.nv}
  return tuple(jnp.zeros([sizes[s] for s in a.sizes], a.field.dtype) for a in backend.ROWS)


def contact_force(
  m: Model, d: Data, contact_id: jax.Array | None = None, to_world_frame: bool = False
) -> jax.Array:
  """Forces and torques of contacts at the state, solved, as mj_contactForce.

  They belong to the contacts of `forward(m, d)`, in their order, and act on the second geom.

  Args:
    m: the model.
    d: the state of one world.
    contact_id: index into `Data.contact`, (...); all of them if None.
    to_world_frame: in the world's frame instead of the contact's, whose x axis is the normal.

  Returns:
    Force (3) and torque (3), (..., 6) or (nconmax, 6), N and N m; zero in the padding.
  """
  if not (m.nv and d.sizes.njmax and d.sizes.nconmax):
    forces = jnp.zeros((d.sizes.nconmax, 6), jnp.float32)
  else:
    forces, frames = contact_forces(m, d)
    if to_world_frame:
      parts = forces.reshape(-1, 2, 3)
      forces = jnp.einsum("cij,cki->ckj", frames, parts, precision=_EXACT).reshape(-1, 6)
  return forces if contact_id is None else forces[jnp.asarray(contact_id)]


def id2name(m: Model | mujoco.MjModel, typ: mujoco.mjtObj, i: int) -> str | None:
  """The name of an object, None if it has none or is none; as mj_id2name."""
  return mujoco.mj_id2name(_mj_model(m), typ, i)


def name2id(m: Model | mujoco.MjModel, typ: mujoco.mjtObj, name: str) -> int:
  """The id of an object by its name, -1 if there is none; as mj_name2id."""
  return mujoco.mj_name2id(_mj_model(m), typ, name)


def is_sparse(m: Model | mujoco.MjModel) -> bool:
  """Whether MuJoCo Warp keeps the constraint Jacobian of this model sparse."""
  return acceptance.is_sparse(_mj_model(m))


def _mj_model(m: Model | mujoco.MjModel) -> mujoco.MjModel:
  return m.spec.mj_model if isinstance(m, Model) else m


def _check_bodies(m: Model, body_id: Any) -> None:
  if isinstance(body_id, jax.core.Tracer):
    return  # an index that is too large gives the last body, as JAX's indexing does
  if np.any(np.asarray(body_id) >= m.nbody) or np.any(np.asarray(body_id) < 0):
    raise ValueError(f"body_id must be between 0 and {m.nbody - 1}, got {body_id}")
