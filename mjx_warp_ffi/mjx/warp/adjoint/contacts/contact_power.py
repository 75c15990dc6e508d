"""The power of contacts, pyramidal and elliptic.

A contact's rows are linear in the relative velocity of the two bodies at the contact point, in the
axes of the contact frame. Point, frame and distance move with the geoms (`geometry/`); the zone of
the cone and the active rows stay as they are at the solution.
"""

import functools
from collections.abc import Iterator

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src.constraint import _contact_kbimp
from mujoco_warp._src.types import ConeType, ConstraintState, ContactType, vec5

from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import TOUCH, Rows, row_law, soft_law, stiffness
from mjx_warp_ffi.mjx.warp.adjoint.contacts import materials
from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry import ContactGeometry
from mjx_warp_ffi.mjx.warp.adjoint.contacts.soft_contacts import SoftContacts
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import geom_pose, geom_pose_adjoint
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import (
  ContactPool,
  arms_of,
  bodies_of,
  relative,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import Kernel, struct


@struct
class ContactCompliance:
  """What makes the rows of contacts stiff or soft besides their materials."""

  body_invweight0: wp.array2d[wp.vec2]
  impratio_invsqrt: wp.array[float]
  mass: wp.array[float]  # of a discrete step, by contact: see `law.Rows`
  metric: wp.array[float]
  width: float  # of smoothed contacts, by which margins are wider, else 0
  looseness: float  # of their friction, else 1


@wp.func
def _stiffness(
  rows: Rows, compliance: ContactCompliance, c: int, weight: float, law: wp.vec4
) -> float:
  """The stiffness D of a contact, along its normal."""
  out = stiffness(rows, weight, law, 0.0, 1.0)
  if rows.discrete:
    out = stiffness(rows, weight, law, compliance.mass[c], compliance.metric[c])
  return out


@wp.func
def _ratio(compliance: ContactCompliance, world: int) -> float:
  """The root of 1 / impratio."""
  stored = of_world(compliance.impratio_invsqrt, world)
  return stored * compliance.looseness


@wp.func
def _pyramid_power(
  rows: Rows,
  contacts: ContactPool,
  compliance: ContactCompliance,
  c: int,
  world: int,
  weight: float,
  law: wp.vec4,
  pos: float,
  v: wp.spatial_vector,
  a: wp.spatial_vector,
  w: wp.spatial_vector,
) -> float:
  """The edges of a pyramid, or the one row of a frictionless contact."""
  dim = contacts.dim[c]
  mu = contacts.friction[c]
  spring = law[0] * pos
  p = wp.float32(0.0)
  if dim == 1:
    r = contacts.row[c, 0]
    if r >= 0:
      if rows.state[world, r] == ConstraintState.QUADRATIC:
        stiff = _stiffness(rows, compliance, c, weight, law)
        p = -stiff * (a[0] + law[1] * v[0] + spring) * w[0]
  else:
    ratio = _ratio(compliance, world)
    scale = 2.0 * mu[0] * mu[0] * ratio * ratio * (1.0 + mu[0] * mu[0])
    stiff = _stiffness(rows, compliance, c, weight * scale, law)
    for e in range(2 * (dim - 1)):
      r = contacts.row[c, e]
      if r >= 0:
        if rows.state[world, r] == ConstraintState.QUADRATIC:
          k = e // 2
          s = mu[k] * float(1 - 2 * (e % 2))
          residual = a[0] + s * a[k + 1] + law[1] * (v[0] + s * v[k + 1]) + spring
          p += -stiff * residual * (w[0] + s * w[k + 1])
  return p


@wp.func
def _tangents(x: wp.spatial_vector, dim: int) -> vec5:
  """The components along the friction directions that a contact has."""
  y = vec5(x[1], x[2], x[3], x[4], x[5])
  if dim < 6:
    y = vec5(x[1], x[2], x[3], 0.0, 0.0)
  if dim < 4:
    y = vec5(x[1], x[2], 0.0, 0.0, 0.0)
  if dim < 3:
    y = vec5(0.0, 0.0, 0.0, 0.0, 0.0)
  return y


@wp.func
def _cone_power(
  rows: Rows,
  contacts: ContactPool,
  compliance: ContactCompliance,
  c: int,
  world: int,
  weight: float,
  law: wp.vec4,
  pos: float,
  v: wp.spatial_vector,
  a: wp.spatial_vector,
  w: wp.spatial_vector,
) -> float:
  """The rows of an elliptic cone."""
  r = contacts.row[c, 0]
  p = wp.float32(0.0)
  if r >= 0:
    zone = rows.state[world, r]
    dim = contacts.dim[c]
    mu = contacts.friction[c]
    solimp = contacts.solimp[c]
    ref = contacts.solreffriction[c]
    if ref[0] == 0.0 and ref[1] == 0.0:
      ref = contacts.solref[c]
    h = of_world(rows.timestep, world)
    b = _contact_kbimp(rows.flags, h, ref, solimp, pos, rows.discrete)[1]
    if rows.discrete:
      b = b / (1.0 + h * b)
    stiff = _stiffness(rows, compliance, c, weight, law)
    normal = a[0] + law[1] * v[0] + law[0] * pos
    tangent = _tangents(a, dim) + b * _tangents(v, dim)
    virtual = _tangents(w, dim)
    ratio = _ratio(compliance, world)
    if zone == ConstraintState.QUADRATIC:
      # the stiffness of a direction goes with the square of its friction
      weighted = wp.cw_mul(wp.cw_mul(mu, mu), tangent) / (mu[0] * mu[0] * ratio * ratio)
      p = -stiff * (normal * w[0] + wp.dot(weighted, virtual))
    elif zone == ConstraintState.CONE:
      slope = mu[0] * ratio
      u = wp.cw_mul(mu, tangent)
      size = wp.sqrt(wp.dot(u, u))
      force = -stiff * (normal * slope - slope * size) / (slope * (1.0 + slope * slope))
      p = force * (w[0] - wp.dot(wp.cw_mul(mu, u), virtual) / size)
  return p


@functools.cache
def contact_kernel(elliptic: bool, acceleration: int, *, given: bool, soft: bool) -> Kernel:
  """The power of all rows of a contact, a thread per contact of the pool.

  `found`, the distance as the collision found it, decides which contacts act. Of the carried
  velocities qacc has the number `acceleration`, and the first is the virtual one, unless that is
  `given`: as `motion`, for each contact in its frame. With `soft` the law is that of smoothed ones.
  """

  @wp.kernel(module="unique")
  def contact_power(
    # Data in:
    found: wp.array[float],
    # In:
    rows: Rows,
    contacts: ContactPool,
    compliance: ContactCompliance,
    tree: Tree,
    nodes: Nodes,
    motion: wp.array[wp.spatial_vector],
    # Out:
    power: wp.array[float],
  ):
    c = wp.tid()
    if c >= contacts.nacon[0]:
      return
    if (contacts.type[c] & ContactType.CONSTRAINT) == 0:
      return
    if found[c] >= contacts.margin[c]:
      return
    world = contacts.world[c]
    n0, n1, r0, r1 = arms_of(contacts, tree, nodes, c)
    frame = contacts.frame[c]
    v = relative(nodes.vel[world, n0], nodes.vel[world, n1], r0, r1, frame)
    fa0 = nodes.fields[wp.static(acceleration), world, n0]
    fa1 = nodes.fields[wp.static(acceleration), world, n1]
    acc = relative(fa0, fa1, r0, r1, frame)
    if wp.static(given):
      w = motion[c]
    else:
      w = relative(nodes.fields[0, world, n0], nodes.fields[0, world, n1], r0, r1, frame)
    b0, b1 = bodies_of(contacts, c)
    row = world % compliance.body_invweight0.shape[0]
    weight = compliance.body_invweight0[row, b0][0] + compliance.body_invweight0[row, b1][0]
    gap = contacts.dist[c] - contacts.margin[c]
    if wp.static(soft):
      pos, share, depth = soft_law(gap + compliance.width, compliance.width)
      full = row_law(rows, world, TOUCH, contacts.solref[c], contacts.solimp[c], depth)
      law = wp.vec4(full[0] * share, full[1], full[2] * share, full[3])
    else:
      pos = gap
      law = row_law(rows, world, TOUCH, contacts.solref[c], contacts.solimp[c], gap)
    if wp.static(elliptic):
      if contacts.dim[c] > 1:
        power[c] = _cone_power(rows, contacts, compliance, c, world, weight, law, pos, v, acc, w)
      else:
        power[c] = _pyramid_power(rows, contacts, compliance, c, world, weight, law, pos, v, acc, w)
    else:
      power[c] = _pyramid_power(rows, contacts, compliance, c, world, weight, law, pos, v, acc, w)

  return contact_power


class RecordedContacts:
  """The contacts of a recording, made before what depends on them.

  Attributes:
    pool: the contacts.
    arrays: their distances, points and frames, which have gradients.
    sums: `mass` and `metric` of `ContactCompliance`, which only a discrete step fills.
  """

  def __init__(
    self,
    rec: Recording,
    kin: Kinematics,
    *,
    geometry: ContactGeometry,
    soft: SoftContacts | None,
  ):
    """Records where the contacts are.

    Args:
      rec: the recording.
      kin: where everything is and how it moves.
      geometry: the contacts as functions of the poses of their geoms.
      soft: the smoothed contacts, None if contacts are as they are.
    """
    tape, m, d = rec.tape, rec.m, rec.d
    self._soft = soft is not None
    self.arrays = _record_geometry(rec, kin, geometry)
    dist, pos, frame = self.arrays
    contact = d.contact
    made = materials.record(rec)
    self.sums = _make_sums(rec)
    self.pool = tape.struct(
      ContactPool,
      nacon=d.nacon,
      world=contact.worldid,
      row=contact.efc_address,
      margin=contact.includemargin,
      dist=dist,
      pos=pos,
      frame=frame,
      geom_bodyid=m.geom_bodyid,
      **{f: getattr(contact, f) for f in ("type", "geom", "dim")},
      **made,
    )
    self._compliance = tape.struct(
      ContactCompliance,
      width=soft.width if soft else 0.0,
      looseness=soft.looseness if soft else 1.0,
      **self.sums,
      **rec.leaves("body_invweight0", "opt.impratio"),
    )

  def record_power(
    self, rec: Recording, kin: Kinematics, rows: Rows, *, virtual: wp.array | None = None
  ) -> None:
    """Records the power of the rows of the contacts.

    Args:
      rec: the recording.
      kin: where everything is and how it moves.
      rows: the law of rows.
      virtual: (naconmax,), virtual velocities of the contacts in their frames; by default they are
        those of the first of the carried velocities.
    """
    kernel = contact_kernel(
      rec.m.opt.cone == ConeType.ELLIPTIC,
      kin.velocities.acceleration,
      given=virtual is not None,
      soft=self._soft,
    )
    none = wp.zeros(1, dtype=wp.spatial_vector) if virtual is None else virtual
    inputs = [rec.d.contact.dist, rows, self.pool, self._compliance, kin.tree, kin.nodes, none]
    rec.tape.power(kernel, (rec.d.naconmax,), inputs=inputs)


def _make_sums(rec: Recording) -> dict[str, wp.array]:
  """Room for the sums by contact with which a discrete step rescales rows."""
  count = rec.d.naconmax if rec.scheme.discrete else 1
  arrays = (wp.zeros(count, dtype=float, device=rec.tape.device) for _ in range(2))
  return dict(zip(("mass", "metric"), map(rec.tape.track, arrays), strict=True))


def _record_geometry(rec: Recording, kin: Kinematics, geometry: ContactGeometry) -> list[wp.array]:
  """Records distances, points and frames of the contacts; they have gradients."""
  tape, d = rec.tape, rec.d
  xpos, xmat = tape.twin(d.geom_xpos), tape.twin(d.geom_xmat)
  _record_poses(rec, kin, xpos=xpos, xmat=xmat)
  dist, pos, frame = (tape.twin(x) for x in (geometry.dist, geometry.pos, geometry.frame))
  size = rec.inputs.get("geom_size")

  def backward() -> None:
    geometry.backward(
      dist.grad,
      pos.grad,
      grad_frame=frame.grad,
      grad_geom_xpos=xpos.grad,
      grad_geom_xmat=xmat.grad,
      grad_geom_size=None if size is None else size.grad,
    )

  tape.call(forward=lambda: geometry.forward(d.geom_xpos, d.geom_xmat), backward=backward)
  return [dist, pos, frame]


def _record_poses(rec: Recording, kin: Kinematics, *, xpos: wp.array, xmat: wp.array) -> None:
  """Records the adjoint alone of the geoms' poses, which the collision had."""
  tape, nodes = rec.tape, kin.nodes
  dim, inputs = tape.dim(rec.m.ngeom), [kin.tree, nodes, kin.geoms]
  if {"geom_pos", "geom_quat"} & {*rec.wrt}:
    tape.launch(geom_pose, dim, inputs=inputs, outputs=[xpos, xmat], forward=False)
    return

  def backward() -> None:
    gradients = [tape.field(nodes, name).grad for name in ("xpos", "xquat")]
    cotangents = [xpos.grad, xmat.grad]
    wp.launch(geom_pose_adjoint, dim, inputs=[*inputs, *cotangents], outputs=gradients)

  tape.call(backward=backward)


def never(mjm: mujoco.MjModel, m: mjw.Model) -> Iterator[str]:
  """The words of a refusal where contacts are not found by the step itself."""
  if not m.opt.run_collision_detection:
    yield "opt.run_collision_detection off"


PART = Part(parameters=("geom_size", "body_invweight0", "opt.impratio"), never=never)
