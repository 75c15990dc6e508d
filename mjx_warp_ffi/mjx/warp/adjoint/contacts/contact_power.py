"""The power of contacts, pyramidal and elliptic.

A contact's rows are linear in the relative velocity of the two bodies at the contact point, in the
axes of the contact frame. Point, frame and distance move with the geoms (`contact_geometry`); the
zone of the cone and the active rows stay as they are at the solution.
"""

import functools

import warp as wp
from mujoco_warp._src.constraint import _contact_kbimp
from mujoco_warp._src.types import ConeType, ConstraintState, ContactType, vec5

from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import (
  QUADRATIC,
  TOUCH,
  Rows,
  row_law,
  soft_law,
  stiffness,
)
from mjx_warp_ffi.mjx.warp.adjoint.contacts import discrete_contacts, materials
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import geom_pose, geom_pose_adjoint
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.contact_arms import (
  Contacts,
  arms_of,
  bodies_of,
  relative,
)
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world

CONE = int(ConstraintState.CONE)
CONSTRAINT = int(ContactType.CONSTRAINT)


@wp.func
def _stiffness(rows: Rows, contacts: Contacts, c: int, weight: float, law: wp.vec4) -> float:
  """The stiffness D of a contact, along its normal."""
  d = stiffness(rows, weight, law, 0.0, 1.0)
  if rows.discrete:
    d = stiffness(rows, weight, law, contacts.mass[c], contacts.metric[c])
  return d


@wp.func
def _ratio(contacts: Contacts, world: int) -> float:
  """The root of 1 / impratio."""
  stored = of_world(contacts.impratio_invsqrt, world)
  return stored * contacts.looseness


@wp.func
def _pyramid_power(
  rows: Rows,
  contacts: Contacts,
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
      if rows.state[world, r] == QUADRATIC:
        d = _stiffness(rows, contacts, c, weight, law)
        p = -d * (a[0] + law[1] * v[0] + spring) * w[0]
  else:
    ratio = _ratio(contacts, world)
    scale = 2.0 * mu[0] * mu[0] * ratio * ratio * (1.0 + mu[0] * mu[0])
    d = _stiffness(rows, contacts, c, weight * scale, law)
    for e in range(2 * (dim - 1)):
      r = contacts.row[c, e]
      if r >= 0:
        if rows.state[world, r] == QUADRATIC:
          k = e // 2
          s = mu[k] * float(1 - 2 * (e % 2))
          residual = a[0] + s * a[k + 1] + law[1] * (v[0] + s * v[k + 1]) + spring
          p += -d * residual * (w[0] + s * w[k + 1])
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
  contacts: Contacts,
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
    d = _stiffness(rows, contacts, c, weight, law)
    normal = a[0] + law[1] * v[0] + law[0] * pos
    tangent = _tangents(a, dim) + b * _tangents(v, dim)
    virtual = _tangents(w, dim)
    ratio = _ratio(contacts, world)
    if zone == QUADRATIC:
      # the stiffness of a direction goes with the square of its friction
      weighted = wp.cw_mul(wp.cw_mul(mu, mu), tangent) / (mu[0] * mu[0] * ratio * ratio)
      p = -d * (normal * w[0] + wp.dot(weighted, virtual))
    elif zone == CONE:
      m = mu[0] * ratio
      u = wp.cw_mul(mu, tangent)
      size = wp.sqrt(wp.dot(u, u))
      force = -d * (normal * m - m * size) / (m * (1.0 + m * m))
      p = force * (w[0] - wp.dot(wp.cw_mul(mu, u), virtual) / size)
  return p


@functools.cache
def contact_kernel(elliptic: bool, a: int, *, given: bool = False, soft: bool = False) -> wp.Kernel:
  """All rows of a contact, a thread per contact of the pool.

  The virtual velocity is that of field 0, or given for each contact in its frame. With `soft` the
  law is that of a smoothed contact.
  """

  @wp.kernel(module="unique")
  def contact_power(
    rows: Rows,
    contacts: Contacts,
    tree: Tree,
    nodes: Nodes,
    motion: wp.array[wp.spatial_vector],
    power: wp.array[float],
  ):
    c = wp.tid()
    if c >= contacts.nacon[0]:
      return
    if (contacts.type[c] & CONSTRAINT) == 0:
      return
    if contacts.found[c] >= contacts.margin[c]:
      return
    world = contacts.world[c]
    n0, n1, r0, r1 = arms_of(contacts, tree, nodes, c)
    frame = contacts.frame[c]
    v = relative(nodes.vel[world, n0], nodes.vel[world, n1], r0, r1, frame)
    fa0 = nodes.fields[wp.static(a), world, n0]
    fa1 = nodes.fields[wp.static(a), world, n1]
    acc = relative(fa0, fa1, r0, r1, frame)
    if wp.static(given):
      w = motion[c]
    else:
      w = relative(nodes.fields[0, world, n0], nodes.fields[0, world, n1], r0, r1, frame)
    b0, b1 = bodies_of(contacts, c)
    row = world % contacts.body_invweight0.shape[0]
    weight = contacts.body_invweight0[row, b0][0] + contacts.body_invweight0[row, b1][0]
    gap = contacts.dist[c] - contacts.margin[c]
    if wp.static(soft):
      pos, share, depth = soft_law(gap + contacts.width, contacts.width)
      full = row_law(rows, world, TOUCH, contacts.solref[c], contacts.solimp[c], depth)
      law = wp.vec4(full[0] * share, full[1], full[2] * share, full[3])
    else:
      pos = gap
      law = row_law(rows, world, TOUCH, contacts.solref[c], contacts.solimp[c], gap)
    if wp.static(elliptic):
      if contacts.dim[c] > 1:
        power[c] = _cone_power(rows, contacts, c, world, weight, law, pos, v, acc, w)
      else:
        power[c] = _pyramid_power(rows, contacts, c, world, weight, law, pos, v, acc, w)
    else:
      power[c] = _pyramid_power(rows, contacts, c, world, weight, law, pos, v, acc, w)

  return contact_power


class Recorded:
  """The contacts of a `StageAdjoint`, recorded before what depends on them.

  Attributes:
    struct: the contacts.
    arrays: their distances, points and frames, which have gradients.
    sums: see `law.Rows`.
  """

  def __init__(self, step):
    """Records where the contacts are."""
    tape, m, d, geometry = step.tape, step.m, step.d, step.geometry
    xpos, xmat = tape.twin(d.geom_xpos), tape.twin(d.geom_xmat)
    self._record_poses(step, xpos, xmat)
    self.arrays = [tape.twin(x) for x in (geometry.dist, geometry.pos, geometry.frame)]
    dist, pos, frame = self.arrays
    size, soft = step.inputs.get("geom_size"), step.evaluation.soft

    def backward():
      geometry.backward(
        dist.grad,
        pos.grad,
        grad_frame=frame.grad,
        grad_geom_xpos=xpos.grad,
        grad_geom_xmat=xmat.grad,
        grad_geom_size=None if size is None else size.grad,
      )

    tape.call(forward=lambda: geometry.forward(d.geom_xpos, d.geom_xmat), backward=backward)
    contact = d.contact
    made = materials.record(step)
    self.sums = discrete_contacts.make_contact_sums(step)
    self.struct = tape.struct(
      Contacts,
      nacon=d.nacon,
      world=contact.worldid,
      row=contact.efc_address,
      margin=contact.includemargin,
      found=contact.dist,
      dist=dist,
      pos=pos,
      frame=frame,
      geom_bodyid=m.geom_bodyid,
      width=soft.width if soft else 0.0,
      looseness=soft.looseness if soft else 1.0,
      **{f: getattr(contact, f) for f in ("type", "geom", "dim")},
      **made,
      **self.sums,
      **step.leaves("body_invweight0", "opt.impratio"),
    )

  def _record_poses(self, step, xpos: wp.array, xmat: wp.array) -> None:
    """Records the adjoint alone of the geoms' poses, which the collision had."""
    tape, nodes = step.tape, step.sweep.nodes
    dim, inputs = tape.dim(step.m.ngeom), [step.sweep.tree, nodes, step.geoms]
    if {"geom_pos", "geom_quat"} & {*step.wrt}:
      tape.launch(geom_pose, dim, inputs=inputs, outputs=[xpos, xmat], forward=False)
      return

    def backward():
      gradients = [tape.field(nodes, name).grad for name in ("xpos", "xquat")]
      cotangents = [xpos.grad, xmat.grad]
      wp.launch(geom_pose_adjoint, dim, inputs=[*inputs, *cotangents], outputs=gradients)

    tape.call(backward=backward)

  def record_power(self, step, rows: Rows, *, virtual: wp.array | None = None) -> None:
    """Records the power on field 0, or on virtual velocities of the contacts."""
    given = virtual is not None
    elliptic, soft = step.m.opt.cone == ConeType.ELLIPTIC, step.evaluation.soft is not None
    kernel = contact_kernel(elliptic, step.fields.a, given=given, soft=soft)
    none = wp.zeros(1, dtype=wp.spatial_vector) if virtual is None else virtual
    inputs = [rows, self.struct, step.sweep.tree, step.sweep.nodes, none]
    step.tape.power(kernel, (step.d.naconmax,), inputs=inputs)
