"""The fields of Data, besides the state, whose cotangents have a rule."""

from mjx_warp_ffi.mjx.warp.adjoint.outputs.generalised_forces import ACCELERATION, FORCES, PASSIVE
from mjx_warp_ffi.mjx.warp.adjoint.outputs.poses import (
  ACTUATORS,
  BODIES,
  GEOMS,
  JOINTS,
  SITES,
  TENDONS,
)
from mjx_warp_ffi.mjx.warp.adjoint.outputs.subtrees import SUBTREES

REPORTS = (*BODIES, *JOINTS, *GEOMS, *SITES, *SUBTREES, *TENDONS, *ACTUATORS)


REPORTS += (*FORCES, *PASSIVE, ACCELERATION, "actuator_force", "act_dot", "sensordata")


REPORTS += ("energy", "cacc", "cfrc_int", "cfrc_ext", "cdof", "cdof_dot", "cinert")


REPORTS += ("cam_xpos", "cam_xmat", "light_xpos", "light_xdir")


REPORTS += ("contact.dist", "contact.pos", "contact.frame")
