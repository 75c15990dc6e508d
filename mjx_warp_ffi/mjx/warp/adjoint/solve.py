"""The linear solves of the backward pass, with MJWarp's factorisations.

`Implicit` is the second solve of Euler with implicit damping and of implicitfast, Q a' = M a.
`Newton` is the solve with H = M + J^T K J at the solution of the constraint solver, which also
gives one polishing Newton step of that solution: the error of a truncated forward solve would be
amplified some thirty times in the gradient.
"""

import dataclasses

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import derivative, forward, smooth, solver
from mujoco_warp._src.types import ConstraintState, DisableBit, IntegratorType, SolverType

from mjx_warp_ffi.mjx.warp.adjoint import free_body
from mjx_warp_ffi.mjx.warp.adjoint.integrate import add, negate

_ENOUGH = 10  # iterations after which Newton's method has converged in float32
CONE = int(ConstraintState.CONE)


def implicit_damping(m: mjw.Model) -> bool:
  """Whether the step is Euler's with dampers integrated implicitly."""
  off = DisableBit.EULERDAMP | DisableBit.DAMPER
  return m.opt.integrator == IntegratorType.EULER and not (m.opt.disableflags & off)


def has_second_solve(m: mjw.Model) -> bool:
  """Whether a second solve follows that for the acceleration."""
  return implicit_damping(m) or implicitfast(m)


def implicit(m: mjw.Model) -> bool:
  """Whether the velocity derivative of the bias is integrated implicitly too."""
  return m.opt.integrator == IntegratorType.IMPLICIT


def implicitfast(m: mjw.Model) -> bool:
  """Whether velocity derivatives of passive and actuator forces are integrated implicitly."""
  if implicit(m):
    return True
  off = DisableBit.ACTUATION | DisableBit.SPRING | DisableBit.DAMPER
  return m.opt.integrator == IntegratorType.IMPLICITFAST and (m.opt.disableflags & off) != off


def discrete(m: mjw.Model) -> bool:
  """Whether the acceleration is that of the discrete step: forces at its end, in M's place H."""
  return m.opt.integrator == IntegratorType.DISCRETE


def stops_early(m: mjw.Model) -> bool:
  """Whether the forward solve may give another acceleration than that of the state.

  It does where it stops before it has converged, and for connects and welds: MJWarp takes their
  Jdot qvel from the velocities of the step before.
  """
  welds = m.eq_connect_adr.size + m.eq_wld_adr.size > 0
  return welds or m.opt.solver != SolverType.NEWTON or m.opt.iterations < _ENOUGH


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
    self._probed = free_body.Probed(m, d) if free else None
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
      free_body.solve_transposed(m, d, g=g, out=out)


class Newton:
  """The solve with H at the solution d.qacc, and one Newton step towards that solution.

  The order of calls: `restart` if the forward solve had other rows or stopped early; `begin` at
  the acceleration so far; `polish`, which moves d.qacc; `solve` for a right-hand side, with the H
  from before; and `solve_again` for the worlds whose active set the polish changed. Without rows H
  is the mass matrix, and all but `solve` do nothing. That of the discrete step has the stiffnesses
  and dampers that it integrates, and rows or not.

  Args:
    m: the model.
    d: the workspace; its position, velocity and smooth force stages are up to date when used.
    rows: whether H is another matrix than M: constraint rows can exist, or the step is discrete.
    polish: whether to take the Newton step; without it and `restart` the smooth forces need not be
      there.
  """

  def __init__(self, m: mjw.Model, d: mjw.Data, *, rows: bool, polish: bool = True):
    """See the class."""
    self.d, self.rows, self.m, self._polish = d, rows, m, polish
    if not rows:
      return
    # Newton's H whatever the solver was, and no qacc_smooth, which nobody reads
    flags = m.opt.disableflags & ~DisableBit.WARMSTART
    changes = dict(solver=SolverType.NEWTON, disableflags=flags, run_qacc_smooth=False)
    opt = dataclasses.replace(m.opt, iterations=max(_ENOUGH, m.opt.iterations), **changes)
    self.m = dataclasses.replace(m, opt=opt)
    self.context = solver._create_solver_context(self.m, d)
    vector = (d.nworld, m.nv)
    self._rhs, self._step, zero = (wp.zeros(vector, dtype=float) for _ in range(3))
    self._state = wp.zeros_like(d.efc.state)
    # The gradient of the solver's cost is Ma - qfrc_smooth - qfrc_constraint: with these it is
    # the right-hand side, and the solver's own routine assembles and factors H for it.
    efc = dataclasses.replace(d.efc, Ma=self._rhs)
    self._d = dataclasses.replace(d, efc=efc, qfrc_smooth=zero, qfrc_constraint=zero)
    self.decoupled = None
    if discrete(m) and m.body_freeadr.size:
      self.decoupled = free_body.Decoupled(m, d)

  def restart(self) -> None:
    """Solves for the acceleration anew, from that of the forward solve.

    One Newton step is exact only where no row changes sides on its way.
    """
    wp.copy(self.d.qacc_warmstart, self.d.qacc)
    solver.solve(self.m, self.d)

  def begin(self) -> None:
    """Assembles H and finds the Newton step of d.qacc; d.efc.Ma is M qacc afterwards."""
    if self.rows:
      solver.init_context(self.m, self.d, self.context, grad=self._polish)
      if self.decoupled:
        self.decoupled.find()
    if self.rows and self._polish:
      wp.copy(self._step, self.context.search)
      wp.copy(self._state, self.d.efc.state)

  def solve(self, g: wp.array, out: wp.array) -> None:
    """Writes H^-1 g."""
    m, d = self.m, self.d
    if not self.rows:
      smooth.solve_m(m, d, out, g)
      return
    wp.copy(self._rhs, g)
    dim = (d.nworld, m.nv)
    if self._polish:  # H is there already
      wp.launch(_widen, dim, inputs=[g], outputs=[self.context.grad])
      solver._cholesky_factorize_solve(m, d, self.context)
    else:
      solver._update_gradient(m, self._d, self.context)
    wp.launch(negate, dim, inputs=[self.context.search], outputs=[out])
    if self.decoupled:
      self.decoupled.solve_transposed(self._rhs, out)

  def polish(self) -> None:
    """Takes the Newton step, and finds the active set and the forces there."""
    if not (self.rows and self._polish):
      return
    m, d = self.m, self.d
    wp.launch(add, (d.nworld, m.nv), inputs=[d.qacc, self._step], outputs=[d.qacc])
    if self.decoupled:
      self.decoupled.accelerate()
    solver.init_context(m, d, self.context, grad=False)

  def solve_again(self, out: wp.array) -> None:
    """Repeats the last `solve` in the worlds where the polish changed H."""
    if not (self.rows and self._polish):
      return
    m, d = self.m, self.d
    inputs = [d.nefc, self._state, d.efc.state]
    wp.launch(_compare, d.nworld, inputs=inputs, outputs=[self.context.done])
    solver._update_gradient(m, self._d, self.context)
    inputs = [self.context.done, self.context.search]
    wp.launch(_negate_where, (d.nworld, m.nv), inputs=inputs, outputs=[out])
    if self.decoupled:
      self.decoupled.solve_transposed(self._rhs, out)


@wp.kernel(enable_backward=False)
def _widen(g: wp.array2d[float], out: wp.array2d[float]):
  """Copies into an array with padded rows."""
  world, i = wp.tid()
  out[world, i] = g[world, i]


@wp.kernel(enable_backward=False)
def _compare(
  nefc: wp.array[int],
  before: wp.array2d[int],
  after: wp.array2d[int],
  same: wp.array[bool],
):
  """Whether H is the same in a world: no row changed sides, and none is in the middle of a cone.

  There H varies with the acceleration, and quickly where the friction force is small.
  """
  world = wp.tid()
  done = wp.bool(True)
  for r in range(wp.min(nefc[world], before.shape[1])):
    if before[world, r] != after[world, r] or after[world, r] == CONE:
      done = False
  same[world] = done


@wp.kernel(enable_backward=False)
def _negate_where(same: wp.array[bool], x: wp.array2d[float], out: wp.array2d[float]):
  """The opposite of a vector, in the worlds that were solved again."""
  world, i = wp.tid()
  if not same[world]:
    out[world, i] = -x[world, i]


@wp.kernel(enable_backward=False)
def _solve_dense(
  rownnz: wp.array[int],
  rowadr: wp.array[int],
  colind: wp.array[int],
  matrix: wp.array2d[float],
  g: wp.array2d[float],
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
