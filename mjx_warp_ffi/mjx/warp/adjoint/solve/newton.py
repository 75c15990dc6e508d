"""The linear solves of the backward pass, with MJWarp's factorisations.

`Implicit` is the second solve of Euler with implicit damping and of implicitfast, Q a' = M a.
`Newton` is the solve with H = M + J^T K J at the solution of the constraint solver, which also
gives one polishing Newton step of that solution: the error of a truncated forward solve would be
amplified some thirty times in the gradient.
"""

import dataclasses

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import smooth, solver
from mujoco_warp._src.types import ConstraintState, DisableBit, SolverType

from mjx_warp_ffi.mjx.warp.adjoint.solve import free_bodies
from mjx_warp_ffi.mjx.warp.adjoint.solve.integrators import ENOUGH, discrete
from mjx_warp_ffi.mjx.warp.adjoint.tape.vectors import add, negate


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
    self.decoupled: free_bodies.Decoupled | None = None
    if not rows:
      return
    # Newton's H whatever the solver was, and no qacc_smooth, which nobody reads
    flags = m.opt.disableflags & ~DisableBit.WARMSTART
    changes = dict(solver=SolverType.NEWTON, disableflags=flags, run_qacc_smooth=False)
    opt = dataclasses.replace(m.opt, iterations=max(ENOUGH, m.opt.iterations), **changes)
    self.m = dataclasses.replace(m, opt=opt)
    self.context = solver._create_solver_context(self.m, d)
    vector = (d.nworld, m.nv)
    self._rhs, self._step, zero = (wp.zeros(vector, dtype=float) for _ in range(3))
    self._state = wp.zeros_like(d.efc.state)
    # The gradient of the solver's cost is Ma - qfrc_smooth - qfrc_constraint: with these it is
    # the right-hand side, and the solver's own routine assembles and factors H for it.
    efc = dataclasses.replace(d.efc, Ma=self._rhs)
    self._d = dataclasses.replace(d, efc=efc, qfrc_smooth=zero, qfrc_constraint=zero)
    if discrete(m) and m.body_freeadr.size:
      self.decoupled = free_bodies.Decoupled(m, d)

  @property
  def free_qacc(self) -> wp.array:
    """Accelerations of free bodies: NaN at those that the discrete step does not solve apart."""
    return self.decoupled.qacc if self.decoupled else self.d.qacc

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
  # Data in:
  nefc: wp.array[int],
  # In:
  before: wp.array2d[int],
  after: wp.array2d[int],
  # Out:
  same: wp.array[bool],
):
  """Whether H is the same in a world: no row changed sides, and none is in the middle of a cone.

  There H varies with the acceleration, and quickly where the friction force is small.
  """
  world = wp.tid()
  done = wp.bool(True)
  for r in range(wp.min(nefc[world], before.shape[1])):
    if before[world, r] != after[world, r] or after[world, r] == ConstraintState.CONE:
      done = False
  same[world] = done


@wp.kernel(enable_backward=False)
def _negate_where(same: wp.array[bool], x: wp.array2d[float], out: wp.array2d[float]):
  """The opposite of a vector, in the worlds that were solved again."""
  world, i = wp.tid()
  if not same[world]:
    out[world, i] = -x[world, i]
