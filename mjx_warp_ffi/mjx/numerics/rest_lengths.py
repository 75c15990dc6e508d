"""Tendons and transmissions at `qpos0` as functions of the model's leaves.

A tendon that wraps around a sphere or a cylinder touches it tangentially. In the plane of a circle
of radius r about the origin, the tangent from p touches at (p r² ± r √(|p|² − r²) p⟂) / |p|². On a
cylinder the path is straight once the surface is unrolled. The arc moves with the geom, so the rate
of such a tendon is that of its two straight parts.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data.enums import GeomType, TrnType, WrapType
from mjx_warp_ffi.mjx.numerics.quaternions import conjugate, multiply, normalize, rotate
from mjx_warp_ffi.mjx.numerics.rest_constants import Rest, norm
from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE

_BISECTIONS = 40


@dataclasses.dataclass(frozen=True)
class _Pieces:
  """Pieces of spatial tendons: from a site to a site, around a geom where `geom` is not -1."""

  tendon: np.ndarray
  scale: np.ndarray
  site0: np.ndarray
  site1: np.ndarray
  geom: np.ndarray
  side: np.ndarray  # the site that says on which side, or -1


def _pieces(mj: mujoco.MjModel) -> _Pieces:
  """The pieces of all spatial tendons."""
  rows = []
  for tendon in range(mj.ntendon):
    start = mj.tendon_adr[tendon]
    scale, last, geom, side = 1.0, -1, -1, -1
    for i in range(start, start + mj.tendon_num[tendon]):
      kind, prm = mj.wrap_type[i], mj.wrap_prm[i]
      if kind == WrapType.PULLEY:
        scale, last = 1 / prm, -1
      elif kind in (WrapType.SPHERE, WrapType.CYLINDER):
        geom, side = mj.wrap_objid[i], round(prm)
      elif kind == WrapType.SITE:
        if last >= 0:
          rows.append((tendon, scale, last, mj.wrap_objid[i], geom, side))
        last, geom, side = mj.wrap_objid[i], -1, -1
  table = np.array(rows, float).reshape(-1, 6)
  ints = table.astype(int)
  return _Pieces(ints[:, 0], table[:, 1].astype(np.float32), *(ints[:, k] for k in range(2, 6)))


def sites(at: Rest, which: np.ndarray) -> jax.Array:
  """World positions of sites."""
  return at.place(at.mj.site_bodyid[which], at.leaves["site_pos"][which])


def tendons(at: Rest) -> tuple[jax.Array, jax.Array]:
  """Lengths of the tendons, (ntendon,), and their rates for each degree of freedom."""
  mj = at.mj
  coef = np.zeros((mj.ntendon, mj.njnt), np.float32)
  for tendon in range(mj.ntendon):
    for i in range(mj.tendon_adr[tendon], mj.tendon_adr[tendon] + mj.tendon_num[tendon]):
      if mj.wrap_type[i] == WrapType.JOINT:
        coef[tendon, mj.wrap_objid[i]] += mj.wrap_prm[i]
  length = jnp.asarray(coef) @ at.leaves["qpos0"][mj.jnt_qposadr]
  rate = jnp.zeros((mj.ntendon, mj.nv), jnp.float32).at[:, mj.jnt_dofadr].set(coef)
  pieces = _pieces(mj)
  for bent in (False, True):
    which = np.flatnonzero((pieces.geom >= 0) == bent)
    if len(which):
      some = _Pieces(*(x[which] for x in dataclasses.astuple(pieces)))
      lengths, rates = _bent(at, some) if bent else _straight(at, some)
      length = length.at[some.tendon].add(some.scale * lengths)
      rate = rate.at[some.tendon].add(some.scale[:, None] * rates)
  return length, rate


def _direction(x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Unit vectors from points to points, zero where they meet, and the distances."""
  length = norm(x1 - x0)
  return (x1 - x0) / jnp.maximum(length, 1e-12)[..., None], length


def _along(u: jax.Array, rates: jax.Array) -> jax.Array:
  """Rates of points along directions."""
  return jnp.einsum("ni,nvi->nv", u, rates)


def _straight(at: Rest, pieces: _Pieces) -> tuple[jax.Array, jax.Array]:
  """Lengths and rates of straight pieces."""
  x0, x1 = sites(at, pieces.site0), sites(at, pieces.site1)
  b0, b1 = at.mj.site_bodyid[pieces.site0], at.mj.site_bodyid[pieces.site1]
  u, length = _direction(x0, x1)
  return length, _along(u, at.rates(b1, x1) - at.rates(b0, x0))


def _bent(at: Rest, pieces: _Pieces) -> tuple[jax.Array, jax.Array]:
  """Lengths and rates of pieces around geoms."""
  mj, leaves, geom = at.mj, at.leaves, pieces.geom
  bg = mj.geom_bodyid[geom]
  b0, b1 = mj.site_bodyid[pieces.site0], mj.site_bodyid[pieces.site1]
  x0, x1 = sites(at, pieces.site0), sites(at, pieces.site1)
  x = at.place(bg, leaves["geom_pos"][geom])
  q = normalize(multiply(at.xquat[bg], leaves["geom_quat"][geom]))
  back = conjugate(q)
  ends = (rotate(back, x0 - x), rotate(back, x1 - x), rotate(back, sites(at, pieces.side) - x))
  ball = mj.geom_type[geom] == GeomType.SPHERE
  arc, y0, y1, meets = jax.vmap(_around)(ends, leaves["geom_size"][geom, 0], ball, pieces.side >= 0)
  y0, y1 = x + rotate(q, y0), x + rotate(q, y1)
  # a piece that misses its geom is straight: both points of contact are put at the second site
  meets = meets[:, None]
  y0, y1 = jnp.where(meets, y0, x1), jnp.where(meets, y1, x1)
  u0, l0 = _direction(x0, y0)
  u1, l1 = _direction(y1, x1)
  v0, v1 = at.rates(b0, x0), at.rates(b1, x1)
  w0 = jnp.where(meets[..., None], at.rates(bg, y0), v1)
  w1 = jnp.where(meets[..., None], at.rates(bg, y1), v1)
  return l0 + arc + l1, _along(u0, w0 - v0) + _along(u1, v1 - w1)


def _cross(a: jax.Array, b: jax.Array) -> jax.Array:
  return a[0] * b[1] - a[1] * b[0]


def _winding(a: jax.Array, b: jax.Array) -> jax.Array:
  """The signed angle from one vector of the plane to another."""
  return jnp.arctan2(_cross(a, b), a @ b)


def _around(
  points: tuple[jax.Array, jax.Array, jax.Array],
  radius: jax.Array,
  *args: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """The arc of one piece, its ends, and whether there is one, all in the geom's frame.

  `points` are both ends of the piece and the site that says on which side; `args` whether the geom
  is a sphere, and whether there is such a site.
  """
  p0, p1, side = points
  ball, sided = args
  normal = jnp.cross(p0, p1)
  flat = jnp.eye(3, dtype=p0.dtype)
  first = _unit(p0)
  axes = jnp.stack([first, jnp.cross(_unit(normal), first)])
  axes = jnp.where(ball, axes, flat[:2])
  a, b, c = axes @ p0, axes @ p1, axes @ side
  arc, outside = _circle((a, b), radius, c, sided)
  inside = _inside((a, b), radius)
  within = sided & (jnp.sum(side * side) < radius**2)
  meets = jnp.where(within, inside[1], outside[2])
  t0 = jnp.where(within, inside[0], outside[0])
  t1 = jnp.where(within, inside[0], outside[1])
  zero = jnp.float32(0)
  arc = jnp.where(meets & ~within, arc, zero)
  (_, l0), (_, l1) = _direction(a, t0), _direction(t1, b)
  rise = jnp.where(ball, zero, (p1[2] - p0[2]) / (l0 + arc + l1))
  base = jnp.where(ball, zero, p0[2])
  y0 = t0 @ axes + (base + rise * l0) * flat[2]
  y1 = t1 @ axes + (base + rise * (l0 + arc)) * flat[2]
  return arc * jnp.sqrt(1 + rise**2), y0, y1, meets


def _unit(x: jax.Array) -> jax.Array:
  return _direction(jnp.zeros_like(x), x)[0]


def _clearance(a: jax.Array, b: jax.Array) -> jax.Array:
  """The squared distance of a segment of the plane from the origin."""
  dif = b - a
  t = jnp.clip(-(dif @ a) / jnp.maximum(dif @ dif, 1e-15), 0, 1)
  return jnp.sum((a + t * dif) ** 2)


def _circle(
  ends: tuple[jax.Array, jax.Array], radius: jax.Array, side: jax.Array, sided: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
  """The arc around the outside of a circle; its ends, and whether the path needs it."""
  a, b = ends
  beyond = (a @ a >= radius**2) & (b @ b >= radius**2)
  direct = _winding(a, b)
  # with a site on one side the path winds as one through that site does
  wound = jnp.where(sided, _winding(a, side) + _winding(side, b), direct)
  clear = (_clearance(a, b) > radius**2) & (jnp.abs(wound - direct) < np.pi)
  sense = jnp.where(wound > 0, jnp.float32(1), jnp.float32(-1))

  def touch(p: jax.Array, sign: jax.Array) -> jax.Array:
    square = p @ p
    root = jnp.sqrt(jnp.maximum(square - radius**2, 1e-12))
    turned = jnp.stack([-p[1], p[0]])
    return (p * radius**2 + sign * radius * root * turned) / jnp.maximum(square, 1e-12)

  t0, t1 = touch(a, sense), touch(b, -sense)
  angle = sense * _winding(t0, t1)
  angle = jnp.where(angle < -1e-6, angle + 2 * np.pi, angle)
  return radius * angle, (t0, t1, beyond & ~clear)


def _inside(ends: tuple[jax.Array, jax.Array], radius: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The point of a circle that a path inside it touches, and whether the path needs it.

  There the length of both straight parts is stationary. Its angle is found by bisection, and one
  step of Newton's method from there carries the derivative.
  """
  a, b = ends
  beyond = (a @ a > radius**2) & (b @ b > radius**2)

  def slope(angle: jax.Array, *ends_and_radius: jax.Array) -> jax.Array:
    a, b, r = ends_and_radius
    x = r * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    along = jnp.stack([-x[1], x[0]])
    return -((_direction(x, a)[0] + _direction(x, b)[0]) @ along)

  fixed = jax.lax.stop_gradient((a, b, radius))
  start = jnp.arctan2(fixed[0][1], fixed[0][0])
  turn = _winding(fixed[0], fixed[1])

  def halve(_: jax.Array, low_high: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    low, high = low_high
    middle = (low + high) / 2
    up = slope(start + middle * turn, *fixed) * turn > 0
    return jnp.where(up, low, middle), jnp.where(up, middle, high)

  bounds = (jnp.zeros_like(turn), jnp.ones_like(turn))
  low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, bounds)
  angle = jax.lax.stop_gradient(start + (low + high) / 2 * turn)
  curvature = jax.grad(slope)(angle, *fixed)
  angle = angle - slope(angle, a, b, radius) / jnp.where(curvature > 0, curvature, jnp.float32(1))
  x = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
  return x, beyond & (_clearance(a, b) > radius**2)


def moments(at: Rest, rates: jax.Array) -> jax.Array:
  """Moment arms of the actuators, (nactuator, nv); `rates` are those of the tendons."""
  mj, gear = at.mj, at.leaves["actuator_gear"]
  out = jnp.zeros((len(mj.actuator_trntype), mj.nv), jnp.float32)
  for trn in (TrnType.JOINT, TrnType.JOINTINPARENT):
    out = _joint_moments(at, out, np.flatnonzero(mj.actuator_trntype == trn), trn)
  which = np.flatnonzero(mj.actuator_trntype == TrnType.TENDON)
  if len(which):
    out = out.at[which].set(gear[which, :1] * rates[mj.actuator_trnid[which, 0]])
  which = np.flatnonzero(mj.actuator_trntype == TrnType.SITE)
  if len(which):
    out = out.at[which].set(_site_moments(at, which))
  which = np.flatnonzero(mj.actuator_trntype == TrnType.SLIDERCRANK)
  if len(which):
    out = out.at[which].set(_crank_moments(at, which))
  return out


def _joint_moments(at: Rest, out: jax.Array, which: np.ndarray, trn: int) -> jax.Array:
  mj, gear = at.mj, at.leaves["actuator_gear"]
  joint = mj.actuator_trnid[which, 0]
  kind, first = mj.jnt_type[joint], mj.jnt_dofadr[joint]
  one = ~np.isin(kind, (FREE, BALL))
  out = out.at[which[one], first[one]].set(gear[which[one], 0])
  for several, num in ((BALL, 3), (FREE, 6)):
    some = which[kind == several]
    if not len(some):
      continue
    dofs = mj.jnt_dofadr[mj.actuator_trnid[some, 0]][:, None] + np.arange(num)
    arm = gear[some, :num]
    if trn == TrnType.JOINTINPARENT:
      start = mj.jnt_qposadr[mj.actuator_trnid[some, 0]] + num - 3
      q = normalize(at.leaves["qpos0"][start[:, None] + np.arange(4)])
      turned = rotate(conjugate(q), arm[:, num - 3 :])
      arm = jnp.concatenate([arm[:, : num - 3], turned], axis=1)
    out = out.at[some[:, None], dofs].set(arm)
  return out


def _frames(at: Rest, which: np.ndarray) -> jax.Array:
  """Orientations of sites."""
  return normalize(multiply(at.xquat[at.mj.site_bodyid[which]], at.leaves["site_quat"][which]))


def _site_moments(at: Rest, which: np.ndarray) -> jax.Array:
  """Those of a wrench on a site, and its opposite on a reference site if there is one."""
  mj, gear = at.mj, at.leaves["actuator_gear"][which]
  site, other = mj.actuator_trnid[which].T
  has = other >= 0
  ref = np.where(has, other, site)
  q = _frames(at, ref)
  force, torque = rotate(q, gear[:, :3]), rotate(q, gear[:, 3:])
  b0, b1 = mj.site_bodyid[site], mj.site_bodyid[ref]

  def power(body: np.ndarray, s: np.ndarray) -> jax.Array:
    return _along(force, at.rates(body, sites(at, s))) + _along(torque, at.turns(body))

  own, opposite = power(b0, site), power(b1, ref)
  between = np.where(has[:, None], at.moves[b0] != at.moves[b1], True)
  return jnp.where(between, own - has[:, None].astype(np.float32) * opposite, jnp.float32(0))


def _crank_moments(at: Rest, which: np.ndarray) -> jax.Array:
  """Those of a slider that a rod joins to a crank."""
  mj, leaves = at.mj, at.leaves
  crank, slider = mj.actuator_trnid[which].T
  bc, bs = mj.site_bodyid[crank], mj.site_bodyid[slider]
  axis = rotate(_frames(at, slider), jnp.zeros((len(which), 3), jnp.float32).at[:, 2].set(1))
  xc, xs = sites(at, crank), sites(at, slider)
  vec = xc - xs
  along = jnp.sum(vec * axis, axis=-1)
  square = along**2 + leaves["actuator_cranklength"][which] ** 2 - jnp.sum(vec * vec, axis=-1)
  reaches = square > 0
  root = jnp.sqrt(jnp.where(reaches, square, jnp.float32(1)))[:, None]
  part = jnp.where(reaches[:, None], 1 - along[:, None] / root, jnp.float32(1))
  by_vec = axis * part + jnp.where(reaches[:, None], vec / root, jnp.float32(0))
  by_axis = vec * part
  turn = jnp.cross(at.turns(bs), axis[:, None])
  rates = _along(by_vec, at.rates(bc, xc) - at.rates(bs, xs)) + _along(by_axis, turn)
  return leaves["actuator_gear"][which, :1] * rates
