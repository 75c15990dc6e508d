"""What mujoco_warp makes of a Model once, made anew in every call: static poses, some options."""

from __future__ import annotations

import mujoco
import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import math as mjw_math

from mjx_warp_ffi.mjx.numerics.static_poses import static_geoms

_MINVAL = wp.constant(float(mujoco.mjMINVAL))


@wp.kernel(enable_backward=False)
def _static_geom_poses(
  # Model:
  body_parentid: wp.array[int],
  body_pos: wp.array2d[wp.vec3],
  body_quat: wp.array2d[wp.quat],
  geom_bodyid: wp.array[int],
  geom_pos: wp.array2d[wp.vec3],
  geom_quat: wp.array2d[wp.quat],
  # In:
  geoms: wp.array[int],
  # Data out:
  geom_xpos: wp.array2d[wp.vec3],
  geom_xmat: wp.array2d[wp.mat33],
):
  world, i = wp.tid()
  geom = geoms[i]
  pos = geom_pos[world % geom_pos.shape[0], geom]
  quat = geom_quat[world % geom_quat.shape[0], geom]
  body = geom_bodyid[geom]
  while body > 0:
    up = body_quat[world % body_quat.shape[0], body]
    pos = body_pos[world % body_pos.shape[0], body] + mjw_math.rot_vec_quat(pos, up)
    quat = mjw_math.mul_quat(up, quat)
    body = body_parentid[body]
  geom_xpos[world, geom] = pos
  geom_xmat[world, geom] = mjw_math.quat_to_mat(wp.normalize(quat))


@wp.kernel(enable_backward=False)
def _convert_options(
  # In:
  impratio: wp.array[float],
  tolerance: wp.array[float],
  # Out:
  impratio_invsqrt: wp.array[float],
  tolerance_out: wp.array[float],
):
  i = wp.tid()
  if i < impratio.shape[0]:
    impratio_invsqrt[i] = 1.0 / wp.sqrt(wp.max(impratio[i], _MINVAL))
  if i < tolerance.shape[0]:
    # what float32 can reach, as mujoco_warp's put_model does
    tolerance_out[i] = wp.max(tolerance[i], 1.0e-6)


def convert_options(m: mjw.Model, *, impratio: wp.array, tolerance: wp.array) -> None:
  """Writes the options that mujoco_warp holds in another form than MuJoCo."""
  wp.launch(
    _convert_options,
    dim=max(impratio.size, tolerance.size),
    inputs=[impratio, tolerance],
    outputs=[m.opt.impratio_invsqrt, m.opt.tolerance],
  )


class StaticGeoms:
  """Poses of the geoms that are welded to the world.

  mujoco_warp computes them only in `make_data`; here they follow `geom_pos`, `body_pos` and the
  like in every call, so that terrain may differ between worlds and change.
  """

  def __init__(self, mj_model: mujoco.MjModel):
    """Finds the geoms."""
    self._geoms = wp.array(static_geoms(mj_model), dtype=int)

  def launch(self, m: mjw.Model, d: mjw.Data) -> None:
    """Writes `geom_xpos` and `geom_xmat` of these geoms."""
    if self._geoms.size:
      wp.launch(
        _static_geom_poses,
        dim=(d.nworld, self._geoms.size),
        inputs=[
          *(m.body_parentid, m.body_pos, m.body_quat),
          *(m.geom_bodyid, m.geom_pos, m.geom_quat, self._geoms),
        ],
        outputs=[d.geom_xpos, d.geom_xmat],
      )
