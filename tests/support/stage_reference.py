"""What each stage of a step computes, and C MuJoCo's state to compare it with."""

import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data import fields

# What each stage is compared in.
POSES = ("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "site_xmat")
COM = (*POSES, "subtree_com", "cdof", "cinert")
TENDON = (*COM, "ten_length", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
POSITION = (*TENDON, "actuator_length", "nefc", "ne", "nf", "nl", "ncon")
COM_VEL = (*COM, "cvel", "cdof_dot")
PASSIVE = ("qfrc_passive", "qfrc_spring", "qfrc_damper", "qfrc_gravcomp", "qfrc_bias")
VELOCITY = (*POSITION, *COM_VEL, "actuator_velocity", "ten_velocity", *PASSIVE)
ACTUATION = (*VELOCITY, "actuator_force", "qfrc_actuator", "act_dot")
ACCELERATION = (*ACTUATION, "qfrc_smooth", "qacc_smooth")
SOLVE = (*ACCELERATION, "qacc", "qfrc_constraint")

STAGES = {
  "kinematics": POSES,
  "com_pos": COM,
  "camlight": (*COM, "cam_xpos", "cam_xmat", "light_xpos"),
  "flex": COM,
  **dict.fromkeys(("tendon", "crb", "tendon_armature", "factor_m"), TENDON),
  **dict.fromkeys(("collision", "make_constraint", "transmission", "fwd_position"), POSITION),
  "com_vel": COM_VEL,
  "subtree_vel": ("subtree_linvel", "subtree_angmom"),
  **dict.fromkeys(("passive", "rne", "tendon_bias", "fwd_velocity"), VELOCITY),
  "fwd_actuation": ACTUATION,
  "fwd_acceleration": ACCELERATION,
  "solve": SOLVE,
  "rne_postconstraint": ("cacc", "cfrc_int", "cfrc_ext"),
  "sensor_acc": ("sensordata",),
}

# float32 against float64, relative to the largest value of a field; accelerations lose another
# digit in the solve, and what follows from them.
RTOL = 2e-5
RTOL_SOLVED = 1e-3
SOLVED = ("qacc", "qacc_smooth", "qfrc_constraint", "cacc", "cfrc_int", "cfrc_ext", "sensordata")


def moving(mj_model: mujoco.MjModel, seed: int = 0, steps: int = 30) -> mujoco.MjData:
  """A state in motion, with contacts where the model has some."""
  rng = np.random.default_rng(seed)
  data = mujoco.MjData(mj_model)
  data.qvel[:] = rng.normal(0, 0.3, mj_model.nv)
  low, high = np.where(mj_model.actuator_ctrllimited[:, None], mj_model.actuator_ctrlrange, 1).T
  data.ctrl[:] = rng.uniform(-abs(low), high)
  for _ in range(steps):
    mujoco.mj_step(mj_model, data)
  data.qfrc_applied[:] = rng.normal(0, 0.1, mj_model.nv)
  data.xfrc_applied[1:] = rng.normal(0, 0.1, (mj_model.nbody - 1, 6))
  return data


def float32_state(mj_model: mujoco.MjModel, data: mujoco.MjData) -> mujoco.MjData:
  """The state as the Data holds it, so that C starts from the same numbers."""
  for name in ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "qacc_warmstart"):
    value = getattr(data, name)
    value[...] = value.astype(np.float32)
  return data


def emptied(d: mjx.Data) -> mjx.Data:
  """The Data with NaN in every result of floats."""
  read = {*fields.STATE, "overflow"}
  names = [f.name for f in fields.data_fields() if f.name not in read and f.dtype == np.float32]
  return d.replace(**{n: jnp.full_like(getattr(d, n), jnp.nan) for n in names})


def assert_equal_to_c(result: mjx.Data, data: mujoco.MjData, names: tuple[str, ...]) -> None:
  for name in names:
    expected = np.asarray(getattr(data, name), float).ravel()
    got = np.asarray(getattr(result, name), float).ravel()
    if expected.size == 0:
      continue
    rtol = RTOL_SOLVED if name in SOLVED else RTOL
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * scale, err_msg=name)


def everything(mj_model: mujoco.MjModel, data: mujoco.MjData) -> None:
  mujoco.mj_forward(mj_model, data)
  mujoco.mj_rnePostConstraint(mj_model, data)
  mujoco.mj_subtreeVel(mj_model, data)
