"""The functions that stand for the plugins of signed distance functions."""

import mujoco
import warp as wp
from mujoco_warp._src import collision_sdf

_MESSAGE = (
  "geoms with plugins have no distance in MuJoCo Warp, which does not run them: give Warp functions"
  " in their place with mjx.register_sdf before put_model"
)


def register(distance: wp.Function, slope: wp.Function) -> None:
  """Puts two functions in the place of MuJoCo Warp's; see `mjx.register_sdf`."""
  collision_sdf.user_sdf = distance
  collision_sdf.user_sdf_grad = slope
  collision_sdf._sdf_narrowphase.module.mark_modified()


def check(mj_model: mujoco.MjModel) -> None:
  """Raises NotImplementedError if geoms have plugins for which there are no functions."""
  own = collision_sdf.user_sdf.func.__module__ == collision_sdf.__name__
  if own and mj_model.nplugin and (mj_model.geom_plugin >= 0).any():
    raise NotImplementedError(_MESSAGE)
