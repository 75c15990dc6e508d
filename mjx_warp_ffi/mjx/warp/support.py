"""What mujoco_warp holds packed or on request: matrices, constraint rows, contact forces, rays."""

from __future__ import annotations

import dataclasses

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import derivative as mjw_derivative

from mjx_warp_ffi.mjx.types import Model
from mjx_warp_ffi.mjx.warp import support_kernels as kernels
from mjx_warp_ffi.mjx.warp.computed import Computed
from mjx_warp_ffi.mjx.warp.ffi import Array
from mjx_warp_ffi.mjx.warp.stages import ACTUATION, SOLVE, chain, mass_matrix
from mjx_warp_ffi.mjx.warp.workspace import Workspace

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
    kernels.symmetric,
    dim=(d.nworld, m.nv),
    inputs=[m.M_rownnz, m.M_rowadr, m.M_colind, d.M, m.opt.timestep, False],
    outputs=[out],
  )


def _tendon_jacobian(w: Workspace, out: wp.array) -> None:
  m, d = w.m, w.d
  mjw.tendon(m, d)
  out.zero_()
  wp.launch(
    kernels.shared_pattern,
    dim=(d.nworld, m.ntendon),
    inputs=[m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind, d.ten_J],
    outputs=[out],
  )


def _actuator_moment(w: Workspace, out: wp.array) -> None:
  m, d = w.m, w.d
  w.run(mjw.fwd_position)
  out.zero_()
  wp.launch(
    kernels.own_pattern,
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
    kernels.symmetric,
    dim=(d.nworld, m.nv),
    inputs=[m.M_rownnz, m.M_rowadr, m.M_colind, packed, m.opt.timestep, True],
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
    wp.launch(kernels.row_labels, dim, [d.nefc, getattr(d.efc, name)], [out[name]])
  for name in _VALUES:
    wp.launch(kernels.row_values, dim, [d.nefc, getattr(d.efc, name)], [out[name]])
  wp.launch(
    kernels.contact_labels,
    dim=w.contacts.order.shape,
    inputs=[w.contacts.ncon, w.contacts.order, d.contact.efc_address],
    outputs=[out["id"]],
  )
  out["J"].zero_()
  efc = d.efc
  wp.launch(
    kernels.row_jacobian,
    dim=dim,
    inputs=[d.nefc, m.is_sparse, m.nv, efc.J_rownnz, efc.J_rowadr, efc.J_colind, efc.J],
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
