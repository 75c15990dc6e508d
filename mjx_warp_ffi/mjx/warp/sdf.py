"""The functions that stand for the plugins of signed distance functions."""

import mujoco
import warp as wp
from mujoco_warp._src import collision_sdf

from mjx_warp_ffi.mjx.warp import modules

_MESSAGE = (
  "geoms with plugins have no distance in MuJoCo Warp, which does not run them: give Warp functions"
  " in their place with mjx.register_sdf before put_model"
)


def register_sdf(distance: wp.Function, slope: wp.Function) -> None:
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
  modules.clear()
  collision_sdf.user_sdf = distance
  collision_sdf.user_sdf_grad = slope
  collision_sdf._sdf_narrowphase.module.mark_modified()


def check(mj_model: mujoco.MjModel) -> None:
  """Raises NotImplementedError if geoms have plugins for which there are no functions."""
  own = collision_sdf.user_sdf.func.__module__ == collision_sdf.__name__
  if own and mj_model.nplugin and (mj_model.geom_plugin >= 0).any():
    raise NotImplementedError(_MESSAGE)
