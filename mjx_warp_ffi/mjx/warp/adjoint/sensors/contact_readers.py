"""Cotangents of contact sensors, collected by contact of the pool.

MJWarp's own kernels say which contacts a sensor reads, and in which order. A contact that the
sensor sees from its second geom has its frame turned about the third axis.
"""

import mujoco
import numpy as np
import warp as wp
from mujoco_warp._src import sensor as mjw_sensor
from mujoco_warp._src.support import contact_force_fn
from mujoco_warp._src.types import ConDataField, DeterminismType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import ContactPool
from mjx_warp_ffi.mjx.warp.adjoint.sensors.contact_seeds import ContactSeeds
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

wp.set_module_options({"enable_backward": False})

KIND = SensorType.CONTACT
FOUND, FORCE, TORQUE, DIST, POS, NORMAL, TANGENT, LINVEL, ANGVEL = (
  1 << int(ConDataField[name])
  for name in "FOUND FORCE TORQUE DIST POS NORMAL TANGENT LINVEL ANGVEL".split()
)
_UNORDERED, _NET = 0, 3
_TINY = wp.constant(float(mujoco.mjMINVAL))


@struct
class MatchedContacts:
  """The sensors, the contacts that each reads, and what the forces of these come from."""

  which: wp.array[int]
  adr: wp.array[int]
  dim: wp.array[int]
  intprm: wp.array2d[int]
  nmatch: wp.array2d[int]
  match: wp.array3d[int]
  adhesion: wp.array[float]
  efc_force: wp.array2d[float]
  cone: int
  njmax: int
  any_order: bool
  unknown: wp.array2d[float]


@wp.func
def _vector(cot: wp.array2d[float], world: int, a: int) -> wp.vec3:
  return wp.vec3(cot[world, a], cot[world, a + 1], cot[world, a + 2])


@wp.func
def _row(i: int, x: wp.vec3) -> wp.mat33:
  """A matrix with x in its row i, which is the first or the second, and zeros elsewhere."""
  zero = wp.vec3(0.0)
  y = wp.matrix_from_rows(x, zero, zero)
  if i == 1:
    y = wp.matrix_from_rows(zero, x, zero)
  return y


@wp.func
def _one(
  spec: int, world: int, a: int, c: int, side: float, cot: wp.array2d[float], seeds: ContactSeeds
):
  """The data of one contact, from the place a of sensordata on."""
  zero = wp.vec3(0.0)
  if (spec & FOUND) != 0:
    a += 1
  if (spec & FORCE) != 0:
    x = _vector(cot, world, a)
    wp.atomic_add(seeds.force, c, wp.spatial_vector(wp.vec3(x[0], x[1], side * x[2]), zero))
    a += 3
  if (spec & TORQUE) != 0:
    x = _vector(cot, world, a)
    wp.atomic_add(seeds.force, c, wp.spatial_vector(zero, wp.vec3(x[0], x[1], side * x[2])))
    a += 3
  if (spec & DIST) != 0:
    wp.atomic_add(seeds.dist, c, cot[world, a])
    a += 1
  if (spec & POS) != 0:
    wp.atomic_add(seeds.pos, c, _vector(cot, world, a))
    a += 3
  if (spec & NORMAL) != 0:
    wp.atomic_add(seeds.frame, c, _row(0, side * _vector(cot, world, a)))
    a += 3
  if (spec & TANGENT) != 0:
    wp.atomic_add(seeds.frame, c, _row(1, side * _vector(cot, world, a)))
    a += 3
  if (spec & LINVEL) != 0:
    x = _vector(cot, world, a)
    wp.atomic_add(seeds.velocity, c, wp.spatial_vector(wp.vec3(x[0], x[1], side * x[2]), zero))
    a += 3
  if (spec & ANGVEL) != 0:
    x = _vector(cot, world, a)
    wp.atomic_add(seeds.velocity, c, wp.spatial_vector(zero, wp.vec3(x[0], x[1], side * x[2])))


@wp.func
def _force(r: MatchedContacts, pool: ContactPool, world: int, c: int) -> wp.spatial_vector:
  """Force and torque of a contact in its frame."""
  return contact_force_fn(
    r.cone,
    pool.frame,
    pool.friction,
    pool.dim,
    pool.row,
    r.adhesion,
    r.efc_force,
    r.njmax,
    pool.nacon,
    world,
    c,
    False,
  )


@wp.func
def _decoded(match: int):
  """A contact of the pool, and the side from which the sensor sees it."""
  c = match
  side = wp.float32(1.0)
  if match < 0:
    c = ~match
    side = -1.0
  return c, side


@wp.func
def _net(
  r: MatchedContacts,
  pool: ContactPool,
  world: int,
  it: int,
  n: int,
  cot: wp.array2d[float],
  seeds: ContactSeeds,
):
  """The sum of the forces, and of the torques about the mean of the points by force."""
  k = r.which[it]
  a = r.adr[k]
  spec = r.intprm[k, 0]
  of_force = wp.vec3(0.0)
  of_torque = wp.vec3(0.0)
  of_mean = wp.vec3(0.0)
  if (spec & FOUND) != 0:
    a += 1
  if (spec & FORCE) != 0:
    of_force = _vector(cot, world, a)
    a += 3
  if (spec & TORQUE) != 0:
    of_torque = _vector(cot, world, a)
    a += 3
  if (spec & DIST) != 0:
    a += 1  # zero, as velocities are, and normal and tangent are axes
  if (spec & POS) != 0:
    of_mean = _vector(cot, world, a)
  total = wp.vec3(0.0)
  mean = wp.vec3(0.0)
  weight = wp.float32(0.0)
  for i in range(n):
    c, side = _decoded(r.match[world, it, i])
    f = wp.spatial_top(_force(r, pool, world, c))
    total += side * (wp.transpose(pool.frame[c]) @ f)
    mean += wp.length(f) * pool.pos[c]
    weight += wp.length(f)
  weight = wp.max(weight, _TINY)
  mean = mean / weight
  of_mean = of_mean - wp.cross(total, of_torque)
  for i in range(n):
    c, side = _decoded(r.match[world, it, i])
    wrench = _force(r, pool, world, c)
    f = wp.spatial_top(wrench)
    t = wp.spatial_bottom(wrench)
    frame = pool.frame[c]
    arm = pool.pos[c] - mean
    e = side * (of_force + wp.cross(of_torque, arm))
    g = side * of_torque
    size = wp.length(f)
    x = frame @ e
    if size > 0.0:
      x += f * (wp.dot(arm, of_mean) / (weight * size))
    wp.atomic_add(seeds.force, c, wp.spatial_vector(x, frame @ g))
    world_force = side * (wp.transpose(frame) @ f)
    wp.atomic_add(seeds.pos, c, wp.cross(world_force, of_torque) + (size / weight) * of_mean)
    turn = wp.matrix_from_rows(f[0] * e + t[0] * g, f[1] * e + t[1] * g, f[2] * e + t[2] * g)
    wp.atomic_add(seeds.frame, c, turn)


@wp.kernel
def _collect(
  # In:
  r: MatchedContacts,
  pool: ContactPool,
  size_of: wp.array[int],
  cot: wp.array2d[float],
  # Out:
  seeds: ContactSeeds,
):
  """Adds the cotangents of what a sensor reads, a thread per world and sensor."""
  world, it = wp.tid()
  k = r.which[it]
  n = wp.min(r.nmatch[world, it], r.match.shape[2])
  reduce = r.intprm[k, 1]
  if reduce == _NET:
    _net(r, pool, world, it, n, cot, seeds)
    return
  size = size_of[it]
  n = wp.min(n, r.dim[k] / size)
  for i in range(n):
    c, side = _decoded(r.match[world, it, i])
    _one(r.intprm[k, 0], world, r.adr[k] + i * size, c, side, cot, seeds)
  if r.any_order and reduce == _UNORDERED and r.nmatch[world, it] > 1:
    # the step that the cotangents are of may have had these contacts in another order
    for i in range(r.dim[k]):
      if i % size > 0 or (r.intprm[k, 0] & FOUND) == 0:
        if cot[world, r.adr[k] + i] != 0.0:
          r.unknown[world, 0] = 1.0


def reads(mjm: mujoco.MjModel, k: int) -> tuple[bool, bool]:
  """Whether a sensor reads where contacts are or move, and whether it reads their forces."""
  if mjm.sensor_type[k] != KIND:
    return False, False
  spec, net = int(mjm.sensor_intprm[k, 0]), mjm.sensor_intprm[k, 1] == _NET
  forces = bool(spec & (FORCE | TORQUE | (POS if net else 0)))
  return forces if net else bool(spec & ~(FOUND | FORCE | TORQUE)), forces


class ContactSensors:
  """Collects the cotangents of the contact sensors.

  Args:
    rec: the recording.
    pool: its contacts.
    seeds: where the cotangents go.
    weights: the cotangents of sensordata.

  Attributes:
    unknown: (nworld, 1), not zero where it is not known which contacts the step has read.
  """

  def __init__(self, rec: Recording, *, pool: ContactPool, seeds: ContactSeeds, weights: wp.array):
    """Allocates what the search for the contacts needs."""
    m, d, mjm = rec.m, rec.d, rec.mjm
    which = [k for k in range(mjm.nsensor) if any(reads(mjm, k))]
    self.unknown = wp.zeros((d.nworld, 1), dtype=float)
    sensed = rec.needs.solves and "sensordata" in rec.cotangents
    self.count = len(which) if sensed else 0
    if not self.count:
      return
    self._rec, self._pool, self._seeds, self._weights = rec, pool, seeds, weights
    r = self._matched = MatchedContacts()
    r.which = rec.constant(np.array(which))
    r.adr, r.dim, r.intprm = m.sensor_adr, m.sensor_dim, m.sensor_intprm
    shape = (d.nworld, self.count)
    r.nmatch = wp.zeros(shape, dtype=int)
    r.match = wp.zeros((*shape, m.opt.contact_sensor_maxmatch), dtype=int)
    self._criteria = wp.zeros(r.match.shape, dtype=float)
    r.adhesion, r.efc_force = d.contact.adhesion, d.efc.force
    r.cone, r.njmax = int(m.opt.cone), d.njmax
    r.any_order, r.unknown = d.qpos.device.is_cuda, self.unknown
    sizes = [mjm.sensor_dim[k] // mjm.sensor_intprm[k, 2] for k in which]
    self._size = rec.constant(np.array(sizes))

  def collect(self) -> None:
    """Adds to the seeds; after the recompute."""
    if self.count:
      self._match()
      inputs = [self._matched, self._pool, self._size, self._weights, self._seeds]
      wp.launch(_collect, self._matched.nmatch.shape, inputs=inputs)

  def _match(self) -> None:
    """Which contacts each sensor reads, as MJWarp finds them."""
    m, d, con, r = self._rec.m, self._rec.d, self._rec.d.contact, self._matched
    r.nmatch.zero_()
    r.match.fill_(-1)
    self._criteria.fill_(1.0e32)
    fixed = bool(m.opt.deterministic & DeterminismType.ATOMICS)
    sensors = [getattr(m, f"sensor_{f}") for f in "objtype objid reftype refid intprm".split()]
    contacts = [getattr(con, f) for f in "dist pos frame friction dim geom efc_address".split()]
    wp.launch(
      mjw_sensor._contact_match_builder(0, fixed),
      dim=(self.count, d.naconmax),
      inputs=[
        *(m.opt.cone, m.opt.contact_sensor_maxmatch),
        *(m.body_parentid, m.geom_bodyid, m.site_type, m.site_size, *sensors),
        *(d.site_xpos, d.site_xmat, *contacts, con.worldid, con.type, con.adhesion),
        *(d.efc.force, d.njmax, d.nacon, r.which),
      ],
      outputs=[d.overflow, r.nmatch, r.match, self._criteria],
    )
    wp.launch_tiled(
      mjw_sensor._contact_sort(m.opt.contact_sensor_maxmatch),
      dim=r.nmatch.shape,
      inputs=[m.sensor_intprm, r.which, r.nmatch, r.match, self._criteria],
      outputs=[r.match],
      block_dim=m.block_dim.contact_sort,
    )
