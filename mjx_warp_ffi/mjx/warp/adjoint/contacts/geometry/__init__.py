"""Contacts as differentiable functions of the poses and sizes of their two geoms."""

from mjx_warp_ffi.mjx.warp.adjoint.contacts.geometry.geometry import (
  ContactGeometry as ContactGeometry,
)
