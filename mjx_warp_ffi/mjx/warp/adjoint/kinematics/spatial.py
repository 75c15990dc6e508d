"""Quaternions (w, x, y, z) and spatial vectors (angular, linear at an origin; world axes)."""

import warp as wp


@wp.func
def mul(a: wp.quat, b: wp.quat) -> wp.quat:
  """The quaternion product."""
  return wp.quat(
    a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
    a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
    a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
    a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
  )


@wp.func
def conj(q: wp.quat) -> wp.quat:
  """The inverse of a unit quaternion."""
  return wp.quat(q[0], -q[1], -q[2], -q[3])


@wp.func
def pure(x: wp.vec3) -> wp.quat:
  """The quaternion (0, x)."""
  return wp.quat(0.0, x[0], x[1], x[2])


@wp.func
def imag(q: wp.quat) -> wp.vec3:
  """The vector part."""
  return wp.vec3(q[1], q[2], q[3])


@wp.func
def rotate(q: wp.quat, x: wp.vec3) -> wp.vec3:
  """The vector turned by a unit quaternion."""
  u = wp.vec3(q[1], q[2], q[3])
  t = 2.0 * wp.cross(u, x)
  return x + q[0] * t + wp.cross(u, t)


@wp.func
def unrotate(q: wp.quat, x: wp.vec3) -> wp.vec3:
  """The vector in the axes that the quaternion turns."""
  u = wp.vec3(-q[1], -q[2], -q[3])
  t = 2.0 * wp.cross(u, x)
  return x + q[0] * t + wp.cross(u, t)


@wp.func
def matrix(q: wp.quat) -> wp.mat33:
  """The rotation matrix of a unit quaternion: its columns are the axes."""
  x = rotate(q, wp.vec3(1.0, 0.0, 0.0))
  y = rotate(q, wp.vec3(0.0, 1.0, 0.0))
  z = rotate(q, wp.vec3(0.0, 0.0, 1.0))
  return wp.mat33(x[0], y[0], z[0], x[1], y[1], z[1], x[2], y[2], z[2])


@wp.func
def vec_at(x: wp.array2d[float], world: int, i: int) -> wp.vec3:
  """Three numbers of a row."""
  return wp.vec3(x[world, i], x[world, i + 1], x[world, i + 2])


@wp.func
def quat_at(x: wp.array2d[float], world: int, i: int) -> wp.quat:
  """Four numbers of a row."""
  return wp.quat(x[world, i], x[world, i + 1], x[world, i + 2], x[world, i + 3])


@wp.func
def unit_at(x: wp.array2d[float], world: int, i: int) -> wp.quat:
  """Four numbers of a row, normalised."""
  return wp.normalize(quat_at(x, world, i))


@wp.func
def rotation_vector(q: wp.quat) -> wp.vec3:
  """The shortest rotation vector of a unit quaternion, differentiable at the identity too."""
  u = imag(q)
  c = q[0]
  if c < 0.0:
    u = -u
    c = -c
  s2 = wp.dot(u, u)
  k = wp.float32(0.0)
  if s2 < 1.0e-3:  # atan(t)/t by its series, where the square root has no derivative
    t2 = s2 / (c * c)
    k = (2.0 - t2 * (0.6666667 - t2 * (0.4 - t2 * 0.2857143))) / c
  else:
    s = wp.sqrt(s2)
    k = 2.0 * wp.atan2(s, c) / s
  return k * u


@wp.func
def frozen(x: float) -> float:
  """The number, without a derivative."""
  return x


@wp.func_grad(frozen)
def _adj_frozen(x: float, adj_ret: float):
  pass


@wp.func
def safe_length(x: wp.vec3) -> float:
  """The length, with derivative zero where it is zero."""
  s2 = wp.dot(x, x)
  s = wp.float32(0.0)
  if s2 > 0.0:
    s = wp.sqrt(s2)
  return s


@wp.func
def magnitude(x: float) -> float:
  """The absolute value, with derivative zero at the kink, as central differences have it."""
  y = wp.float32(0.0)
  if x > 0.0:
    y = x
  elif x < 0.0:
    y = -x
  return y


@wp.func
def point_velocity(f: wp.spatial_vector, r: wp.vec3) -> wp.vec3:
  """The velocity of the point r from the origin."""
  return wp.spatial_bottom(f) + wp.cross(wp.spatial_top(f), r)


@wp.func
def point_acceleration(a: wp.spatial_vector, om: wp.vec3, r: wp.vec3) -> wp.vec3:
  """The acceleration of the point r from the origin of a body that turns at om."""
  centripetal = wp.cross(om, wp.cross(om, r))
  return wp.spatial_bottom(a) + wp.cross(wp.spatial_top(a), r) + centripetal
