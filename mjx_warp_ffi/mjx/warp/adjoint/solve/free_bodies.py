"""The transposed solve of the implicit matrix of free-standing rigid bodies.

implicitfast gives each such body a 6x6 block of its own, M + h (B + G), with the derivative G of
its gyroscopic force. G is not symmetric, so the backward pass solves with the transpose. The
discrete step does so for the bodies that nothing else acts on but forces.
"""

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import forward, math, util_misc
from mujoco_warp._src.types import DisableBit, mat66, vec6, vec10

from mjx_warp_ffi.mjx.warp.adjoint.forces import fluid_shapes
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import SpatialVector, struct

wp.set_module_options({"enable_backward": False})


@struct
class Blocks:
  """What the matrices of the free bodies are made of."""

  damper: bool
  metric: bool  # whether `efm_diag` is added, and only the bodies with a number in `found` solved
  drag: bool  # whether `efm_fluid` is added
  timestep: wp.array[float]
  body_dofadr: wp.array[int]
  body_freeadr: wp.array[int]
  jnt_actuatorid: wp.array[int]
  dof_jntid: wp.array[int]
  dof_damping: wp.array2d[float]
  dof_dampingpoly: wp.array2d[wp.vec2]
  actuator_trntype: wp.array[int]
  actuator_trnid: wp.array[wp.vec2i]
  actuator_damping: wp.array2d[float]
  actuator_dampingpoly: wp.array2d[wp.vec2]
  actuator_gear: wp.array2d[SpatialVector]
  M_rownnz: wp.array[int]
  M_rowadr: wp.array[int]
  M_colind: wp.array[int]
  qvel: wp.array2d[float]
  xpos: wp.array2d[wp.vec3]
  xmat: wp.array2d[wp.mat33]
  subtree_com: wp.array2d[wp.vec3]
  crb: wp.array2d[vec10]
  M: wp.array2d[float]
  efm_diag: wp.array2d[float]
  efm_fluid: wp.array2d[float]
  found: wp.array2d[float]


@wp.func
def _slope(s: Blocks, world: int, i: int) -> float:
  """The derivative of a dof's damping force."""
  damping, poly = util_misc.dof_damping_total(
    s.jnt_actuatorid,
    s.dof_jntid,
    s.dof_damping,
    s.dof_dampingpoly,
    s.actuator_trntype,
    s.actuator_trnid,
    s.actuator_damping,
    s.actuator_dampingpoly,
    s.actuator_gear,
    world,
    i,
  )
  return util_misc._poly_force_deriv(damping, poly, s.qvel[world, i], 1)


@wp.kernel
def _solve_transposed(s: Blocks, g: wp.array2d[float], out: wp.array2d[float]):
  """Solves with the transposed block of a free body, a thread per world and body."""
  world, it = wp.tid()
  body = s.body_freeadr[it]
  d = s.body_dofadr[body]
  if s.metric and wp.isnan(s.found[world, d]):
    return
  h = of_world(s.timestep, world)
  a = mat66(0.0)
  for r in range(6):
    start = s.M_rowadr[d + r]
    for k in range(s.M_rownnz[d + r]):
      c = s.M_colind[start + k] - d
      entry = s.M[world, start + k]
      if s.drag:
        entry = entry + s.efm_fluid[world, start + k]
      a[r, c] = entry
      a[c, r] = entry
    if s.damper:
      a[r, r] = a[r, r] + h * _slope(s, world, d + r)
    if s.metric:
      a[r, r] = a[r, r] + s.efm_diag[world, d + r]
  crb = s.crb[world, body]
  inertia = wp.mat33(crb[0], crb[3], crb[4], crb[3], crb[1], crb[5], crb[4], crb[5], crb[2])
  arm = s.subtree_com[world, body] - s.xpos[world, body]
  turn = wp.vec3(s.qvel[world, d + 3], s.qvel[world, d + 4], s.qvel[world, d + 5])
  lin, rot = math.free_bias_vel_blocks(crb[9], s.xmat[world, body], inertia, arm, turn)
  b = vec6(0.0)
  for r in range(3):
    for c in range(3):
      # transposed: rows are those of the rotation
      a[3 + c, r] = a[3 + c, r] - h * crb[9] * lin[r, c]
  gyro = wp.transpose(rot)
  for r in range(3):
    for c in range(3):
      a[3 + r, 3 + c] = a[3 + r, 3 + c] + h * gyro[r, c]
  for r in range(6):
    b[r] = g[world, d + r]
  factor, pivot, ok = math.lu_factor_6x6(a)
  if ok:
    x = math.lu_solve_6x6(factor, pivot, b)
    for r in range(6):
      out[world, d + r] = x[r]


def _blocks(m: mjw.Model, d: mjw.Data) -> Blocks:
  s = Blocks()
  s.timestep = m.opt.timestep
  for name in "qvel xpos xmat subtree_com crb M efm_diag efm_fluid".split():
    setattr(s, name, getattr(d, name))
  for name in Blocks.vars:
    if hasattr(m, name):
      setattr(s, name, getattr(m, name))
  return s


def solve_transposed(m: mjw.Model, d: mjw.Data, *, g: wp.array, out: wp.array) -> None:
  """Overwrites the rows of the free bodies with the transposed solve of g."""
  s = _blocks(m, d)
  s.damper = not m.opt.disableflags & DisableBit.DAMPER
  dim = (d.nworld, m.body_freeadr.size)
  wp.launch(_solve_transposed, dim, inputs=[s, g], outputs=[out])


@wp.kernel
def _unit(body_dofadr: wp.array[int], body_freeadr: wp.array[int], c: int, out: wp.array2d[float]):
  """The velocities along one dof of every free body, a thread per world, body and dof."""
  world, it, r = wp.tid()
  d = body_dofadr[body_freeadr[it]]
  out[world, d + r] = 0.0
  if r == c:
    out[world, d + r] = 1.0


@wp.kernel
def _solve_columns(
  # Model:
  body_dofadr: wp.array[int],
  body_freeadr: wp.array[int],
  # In:
  columns: wp.array3d[float],
  g: wp.array2d[float],
  # Out:
  out: wp.array2d[float],
):
  """Solves with the transpose of the matrix of these columns, a thread per world and body."""
  world, it = wp.tid()
  d = body_dofadr[body_freeadr[it]]
  a = mat66(0.0)
  b = vec6(0.0)
  for c in range(6):
    b[c] = g[world, d + c]
    for r in range(6):
      a[c, r] = columns[c, world, d + r]
  factor, pivot, ok = math.lu_factor_6x6(a)
  if ok:
    x = math.lu_solve_6x6(factor, pivot, b)
    for r in range(6):
      out[world, d + r] = x[r]


class Probed:
  """The transposed solve in a fluid, whose derivative is a part of the matrix of a body.

  MJWarp has that matrix only as a product with a vector: six products give its columns.

  Args:
    m: the model.
    d: the workspace.
  """

  def __init__(self, m: mjw.Model, d: mjw.Data):
    """See the class."""
    self._m, self._d = m, d
    self._columns = wp.zeros((6, d.nworld, m.nv), dtype=float)
    self._slices = [self._columns[c] for c in range(6)]
    self._probe = wp.zeros((d.nworld, m.nv), dtype=float)

  def solve_transposed(self, g: wp.array, out: wp.array) -> None:
    """Overwrites the rows of the free bodies with the transposed solve of g."""
    m, d = self._m, self._d
    dim, bodies = (d.nworld, m.body_freeadr.size), [m.body_dofadr, m.body_freeadr]
    for c, column in enumerate(self._slices):
      wp.launch(_unit, (*dim, 6), inputs=[*bodies, c], outputs=[self._probe])
      forward.implicit_free_body(m, d, self._probe, column, solve=False)
    wp.launch(_solve_columns, dim, inputs=[*bodies, self._columns, g], outputs=[out])


@wp.kernel
def _take(found: wp.array2d[float], out: wp.array2d[float]):
  """Takes the numbers that are there."""
  world, i = wp.tid()
  if not wp.isnan(found[world, i]):
    out[world, i] = found[world, i]


class Decoupled:
  """The free bodies of a discrete step that no row and no implicit tendon or actuator touches.

  Args:
    m: the model.
    d: the workspace.

  Attributes:
    qacc: their accelerations after `find`, NaN elsewhere.
  """

  def __init__(self, m: mjw.Model, d: mjw.Data):
    """See the class."""
    self._m, self._d = m, d
    self.qacc = wp.zeros((d.nworld, m.nv), dtype=float)
    self._blocks = _blocks(m, d)
    self._blocks.metric, self._blocks.found = True, self.qacc
    self._blocks.drag = fluid_shapes.acts(m)

  def find(self) -> None:
    """Looks which bodies these are; the smooth forces and the rows are there."""
    self.qacc.fill_(np.nan)
    forward._launch_discrete_free_gyro(self._m, self._d, self.qacc, self._d.qacc, False)

  def accelerate(self) -> None:
    """Gives them their accelerations."""
    d = self._d
    wp.launch(_take, self.qacc.shape, inputs=[self.qacc], outputs=[d.qacc])

  def solve_transposed(self, g: wp.array, out: wp.array) -> None:
    """Overwrites their rows with the transposed solve of g."""
    dim = (self._d.nworld, self._m.body_freeadr.size)
    wp.launch(_solve_transposed, dim, inputs=[self._blocks, g], outputs=[out])
