"""Signed distance functions in the place of MuJoCo's plugins."""

from __future__ import annotations

from typing import Any

from mjx_warp_ffi.mjx.warp.models import sdf_functions
from mjx_warp_ffi.mjx.warp.staging import caches


def register_sdf(distance: Any, slope: Any) -> None:
  """Says what the signed distance functions of geoms with plugins are, for all models from now on.

  MuJoCo's plugins run in C alone. Where a geom has one, MuJoCo Warp calls two Warp functions; those
  for MuJoCo's own plugins are in `mujoco_warp.test_data.collision_sdf`. Contacts of such
  geoms have no analytic gradient.

  Args:
    distance: a `wp.func` of a point (wp.vec3, in the frame of the mesh), the numbers in the
      attributes of the plugin (a `mujoco_warp._src.types.vec_pluginattr`) and the plugin's slot
      (int, `mjModel.plugin`). It returns a float, negative inside.
    slope: of the same arguments, the gradient of the distance as a wp.vec3.
  """
  caches.clear()
  sdf_functions.register(distance, slope)
