"""Matrices and constraint rows that mujoco_warp holds packed, unpacked."""

from __future__ import annotations

import dataclasses

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import derivative as mjw_derivative

from mjx_warp_ffi.mjx.data.types import Model
from mjx_warp_ffi.mjx.warp.ffi import Array
from mjx_warp_ffi.mjx.warp.functions.computed import Computed
from mjx_warp_ffi.mjx.warp.functions.stages import ACTUATION, SOLVE, chain, mass_matrix
from mjx_warp_ffi.mjx.warp.staging.workspace import Workspace


@wp.kernel(enable_backward=False)
def symmetric(
  # Model:
  M_rownnz: wp.array[int],
  M_rowadr: wp.array[int],
  M_colind: wp.array[int],
  opt_timestep: wp.array[float],
  # In:
  packed: wp.array2d[float],
  is_rate: bool,
  # Out:
  out: wp.array3d[float],
):
  """A symmetric matrix from its packed lower half, a thread per world and row.

  If it is a rate, the packed numbers are those of a matrix times minus the time step.
  """
  world, i = wp.tid()
  factor = 1.0
  if is_rate:
    factor = -1.0 / opt_timestep[world % opt_timestep.shape[0]]
  for k in range(M_rownnz[i]):
    adr = M_rowadr[i] + k
    j = M_colind[adr]
    value = packed[world, adr] * factor
    out[world, i, j] = value
    out[world, j, i] = value


@wp.kernel(enable_backward=False)
def tendon_jacobians(
  # Model:
  ten_J_rownnz: wp.array[int],
  ten_J_rowadr: wp.array[int],
  ten_J_colind: wp.array[int],
  # Data in:
  ten_J: wp.array2d[float],
  # Out:
  out: wp.array3d[float],
):
  """The Jacobian of the tendons, whose columns all worlds share, a thread per world and row."""
  world, i = wp.tid()
  for k in range(ten_J_rownnz[i]):
    adr = ten_J_rowadr[i] + k
    out[world, i, ten_J_colind[adr]] = ten_J[world, adr]


@wp.kernel(enable_backward=False)
def actuator_moments(
  # Data in:
  moment_rownnz: wp.array2d[int],
  moment_rowadr: wp.array2d[int],
  moment_colind: wp.array2d[int],
  actuator_moment: wp.array2d[float],
  # Out:
  out: wp.array3d[float],
):
  """The moments of actuators, with columns of each world's own, a thread per world and row."""
  world, i = wp.tid()
  for k in range(moment_rownnz[world, i]):
    adr = moment_rowadr[world, i] + k
    out[world, i, moment_colind[world, adr]] = actuator_moment[world, adr]


@wp.kernel(enable_backward=False)
def row_jacobian(
  # Model:
  nv: int,
  is_sparse: bool,
  # Data in:
  nefc: wp.array[int],
  efc_J_rownnz: wp.array2d[int],
  efc_J_rowadr: wp.array2d[int],
  efc_J_colind: wp.array3d[int],
  efc_J: wp.array3d[float],
  # Out:
  out: wp.array3d[float],
):
  """The Jacobian of the constraint rows, a thread per world and row."""
  world, row = wp.tid()
  if row >= nefc[world]:
    return
  if is_sparse:
    for k in range(efc_J_rownnz[world, row]):
      adr = efc_J_rowadr[world, row] + k
      out[world, row, efc_J_colind[world, 0, adr]] = efc_J[world, 0, adr]
  else:
    for j in range(nv):
      out[world, row, j] = efc_J[world, row, j]


@wp.kernel(enable_backward=False)
def row_values(
  # Data in:
  nefc: wp.array[int],
  efc_values: wp.array2d[float],
  # Out:
  out: wp.array2d[float],
):
  """Numbers of the constraint rows, zero in the padding, a thread per world and row."""
  world, row = wp.tid()
  if row < nefc[world]:
    out[world, row] = efc_values[world, row]
  else:
    out[world, row] = 0.0


@wp.kernel(enable_backward=False)
def row_labels(
  # Data in:
  nefc: wp.array[int],
  efc_labels: wp.array2d[int],
  # Out:
  out: wp.array2d[int],
):
  """Integers of the constraint rows, -1 in the padding, a thread per world and row."""
  world, row = wp.tid()
  if row < nefc[world]:
    out[world, row] = efc_labels[world, row]
  else:
    out[world, row] = -1


@wp.kernel(enable_backward=False)
def contact_labels(
  # Data in:
  contact_efc_address: wp.array2d[int],
  # In:
  ncon: wp.array[int],
  order: wp.array2d[int],
  # Out:
  out: wp.array2d[int],
):
  """The number of the contact of each of its rows, a thread per world and contact."""
  world, i = wp.tid()
  if i >= ncon[world]:
    return
  c = order[world, i]
  for k in range(contact_efc_address.shape[1]):
    row = contact_efc_address[c, k]
    if row >= 0 and row < out.shape[1]:
      out[world, row] = i


# The poses, axes and inertias that matrices are made of.
_POSES = (
  *("xpos", "xquat", "xmat", "xipos", "ximat", "subtree_com", "cdof", "cinert"),
  *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat"),
)


def _poses(m: Model) -> tuple[str, ...]:
  return _POSES


def _full_m(w: Workspace, out: wp.array) -> None:
  m, d = w.m, w.d
  mjw.tendon(m, d)
  mass_matrix(m, d)
  out.zero_()
  wp.launch(
    symmetric,
    dim=(d.nworld, m.nv),
    inputs=[m.M_rownnz, m.M_rowadr, m.M_colind, m.opt.timestep, d.M, False],
    outputs=[out],
  )


def _tendon_jacobian(w: Workspace, out: wp.array) -> None:
  m, d = w.m, w.d
  mjw.tendon(m, d)
  out.zero_()
  wp.launch(
    tendon_jacobians,
    dim=(d.nworld, m.ntendon),
    inputs=[m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind, d.ten_J],
    outputs=[out],
  )


def _actuator_moment(w: Workspace, out: wp.array) -> None:
  m, d = w.m, w.d
  w.run(mjw.fwd_position)
  out.zero_()
  wp.launch(
    actuator_moments,
    dim=(d.nworld, m.nactuator),
    inputs=[d.moment_rownnz, d.moment_rowadr, d.moment_colind, d.actuator_moment],
    outputs=[out],
  )


def _deriv_smooth_vel(w: Workspace, out: wp.array) -> None:
  m, d = w.m, w.d
  w.run(chain(*ACTUATION))
  packed = wp.empty_like(d.M)
  # it makes M - h D: with a zero M, D is left without the rounding of M
  mjw_derivative.deriv_smooth_vel(m, dataclasses.replace(d, M=wp.zeros_like(d.M)), packed)
  out.zero_()
  wp.launch(
    symmetric,
    dim=(d.nworld, m.nv),
    inputs=[m.M_rownnz, m.M_rowadr, m.M_colind, m.opt.timestep, packed, True],
    outputs=[out],
  )


_VALUES = ("pos", "margin", "D", "vel", "aref", "frictionloss", "force")
ROWS = (
  *(Array(n, (), int) for n in ("nefc", "ne", "nf", "nl")),
  *(Array(n, ("njmax",), int) for n in ("type", "id", "state")),
  *(Array(n, ("njmax",)) for n in _VALUES),
  Array("J", ("njmax", "nv")),
)


def _constraint_rows(w: Workspace, *results: wp.array) -> None:
  w.run(chain(*SOLVE))
  m, d, out = w.m, w.d, dict(zip((a.name for a in ROWS), results, strict=True))
  for name in ("nefc", "ne", "nf", "nl"):
    wp.copy(out[name], getattr(d, name))
  dim = (d.nworld, d.njmax)
  for name in ("type", "id", "state"):
    wp.launch(row_labels, dim, [d.nefc, getattr(d.efc, name)], [out[name]])
  for name in _VALUES:
    wp.launch(row_values, dim, [d.nefc, getattr(d.efc, name)], [out[name]])
  wp.launch(
    contact_labels,
    dim=w.contacts.order.shape,
    inputs=[d.contact.efc_address, w.contacts.ncon, w.contacts.order],
    outputs=[out["id"]],
  )
  out["J"].zero_()
  efc = d.efc
  wp.launch(
    row_jacobian,
    dim=dim,
    inputs=[m.nv, m.is_sparse, d.nefc, efc.J_rownnz, efc.J_rowadr, efc.J_colind, efc.J],
    outputs=[out["J"]],
  )


full_m = Computed(_full_m, "full_m", (Array("M", ("nv", "nv")),), reads=_poses)
tendon_jacobian = Computed(
  _tendon_jacobian, "tendon_jacobian", (Array("ten_J", ("ntendon", "nv")),), reads=_poses
)
actuator_moment = Computed(
  _actuator_moment, "actuator_moment", (Array("moment", ("nactuator", "nv")),), rows=True
)
deriv_smooth_vel = Computed(
  _deriv_smooth_vel, "deriv_smooth_vel", (Array("qDeriv", ("nv", "nv")),), rows=True
)
constraint_rows = Computed(_constraint_rows, "constraint_rows", ROWS, rows=True)
