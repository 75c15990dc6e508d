"""Constants of a model that depend on other parameters."""

from __future__ import annotations

from mjx_warp_ffi.mjx.types import Model
from mjx_warp_ffi.mjx.warp import set_const as backend


def set_const(m: Model) -> Model:
  """Recomputes the constants that depend on other leaves, as mj_setConst does.

  To be called once after a change of masses, inertias, poses, armatures, gears or `qpos0`
  (`body_subtreemass`, `body_invweight0`, `dof_invweight0`, `tendon_invweight0`, `actuator_acc0`,
  `tendon_length0`, `eq_data` and the references of cameras and lights follow) or of `geom_size`
  (`geom_aabb`, `geom_rbound`). Other leaves act without it.

  It works under `jit` and `vmap`. `stat`, which is part of the model's structure, stays; in the
  step it only scales the solver's tolerance.

  Args:
    m: the model.

  Returns:
    The Model with these leaves replaced.
  """
  return m.replace(**backend.constants(m))
