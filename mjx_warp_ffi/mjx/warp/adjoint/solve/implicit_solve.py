"""The second solve of a step, for the integrators that take dampers and velocities implicitly."""

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import derivative, forward, smooth

from mjx_warp_ffi.mjx.warp.adjoint.solve import free_bodies
from mjx_warp_ffi.mjx.warp.adjoint.solve.integrators import implicit, implicitfast


class Implicit:
  """Q a' = M a and Q^T y = g, with Q = M + h B, or M - h d(forces)/d(velocities).

  Args:
    m: the model.
    d: the workspace, with its mass matrix, velocities and forces up to date when `prepare` runs.
  """

  def __init__(self, m: mjw.Model, d: mjw.Data):
    """See the class."""
    self.m, self.d = m, d
    self.fast, self._whole = implicitfast(m), implicit(m)
    if self._whole:
      self._general = wp.zeros_like(d.qLU)  # Q, which is not symmetric
      self._scratch = wp.zeros_like(d.qLU)
      self._dense = wp.zeros((d.nworld, m.nv, m.nv), dtype=float)
    free = self.fast and m.body_freeadr.size and m.has_fluid
    self._probed = free_bodies.Probed(m, d) if free else None
    self._slope = wp.zeros((d.nworld, m.nv), dtype=float)
    self._matrix = wp.zeros_like(d.M)
    self._factor = wp.zeros_like(d.qLD)
    self._diagonal = wp.zeros((d.nworld, m.nv), dtype=float)

  def prepare(self, ma: wp.array, out: wp.array) -> None:
    """Factors Q and writes a' for M a."""
    m, d = self.m, self.d
    if self._whole:
      forward.implicit_qlu(m, d, self._general)
      wp.copy(self._scratch, self._general)
      smooth.factor_solve_lu(m, d, self._scratch, out, ma)
      forward.implicit_free_body(m, d, ma, out, solve=True)
      return
    if self.fast:
      self._assemble_fast()
    else:
      self._assemble_damping()
    smooth.factor_solve_i(m, d, self._matrix, self._factor, self._diagonal, out, ma)
    if self.fast and m.body_freeadr.size:
      forward.implicit_free_body(m, d, ma, out, solve=True)

  def _assemble_damping(self) -> None:
    m, d = self.m, self.d
    inputs = [m.jnt_actuatorid, m.dof_jntid, m.dof_damping, m.dof_dampingpoly]
    inputs += [m.actuator_trntype, m.actuator_trnid, m.actuator_damping, m.actuator_dampingpoly]
    inputs += [m.actuator_gear, d.qvel]
    kernel = forward._compute_damping_deriv
    wp.launch(kernel, (d.nworld, m.nv), inputs=inputs, outputs=[self._slope])
    wp.copy(self._matrix, d.M)
    inputs = [m.opt.timestep, m.M_rownnz, m.M_rowadr, self._slope]
    wp.launch(forward._euler_damp_qfrc, (d.nworld, m.nv), inputs=inputs, outputs=[self._matrix])

  def _assemble_fast(self) -> None:
    m, d = self.m, self.d
    derivative.deriv_smooth_vel(m, d, self._matrix)
    inputs = [m.body_dofadr, m.M_rownnz, m.M_rowadr, m.body_freeadr, d.M]
    kernel = forward._implicit_free_body_reset_m
    dim = (d.nworld, m.body_freeadr.size)
    wp.launch(kernel, dim, inputs=inputs, outputs=[self._matrix])

  def solve_transposed(self, g: wp.array, out: wp.array) -> None:
    """Writes Q^-T g."""
    m, d = self.m, self.d
    if self._whole:
      inputs = [m.D_rownnz, m.D_rowadr, m.D_colind, self._general, g]
      wp.launch(_solve_dense, d.nworld, inputs=inputs, outputs=[self._dense, out])
    else:
      smooth.solve_LD(m, d, self._factor, self._diagonal, out, g)
    if self._probed:
      self._probed.solve_transposed(g, out)
    elif self.fast and m.body_freeadr.size:
      free_bodies.solve_transposed(m, d, g=g, out=out)


@wp.kernel(enable_backward=False)
def _solve_dense(
  # Model:
  rownnz: wp.array[int],
  rowadr: wp.array[int],
  colind: wp.array[int],
  # In:
  matrix: wp.array2d[float],
  g: wp.array2d[float],
  # Out:
  a: wp.array3d[float],
  out: wp.array2d[float],
):
  """Solves with the transpose of a matrix, whose symmetric part is positive; a thread a world."""
  world = wp.tid()
  n = out.shape[1]
  for i in range(n):
    out[world, i] = g[world, i]
    for j in range(n):
      a[world, i, j] = 0.0
  for i in range(n):
    for k in range(rowadr[i], rowadr[i] + rownnz[i]):
      a[world, colind[k], i] = matrix[world, k]
  for k in range(n):
    for i in range(k + 1, n):
      if a[world, i, k] != 0.0:
        ratio = a[world, i, k] / a[world, k, k]
        for j in range(k, n):
          a[world, i, j] = a[world, i, j] - ratio * a[world, k, j]
        out[world, i] = out[world, i] - ratio * out[world, k]
  for k in range(n):
    i = n - 1 - k
    x = out[world, i]
    for j in range(i + 1, n):
      x -= a[world, i, j] * out[world, j]
    out[world, i] = x / a[world, i, i]
