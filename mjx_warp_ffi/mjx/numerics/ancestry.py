"""Which bodies hang on which, and which degrees of freedom move them."""

from __future__ import annotations

import mujoco
import numpy as np


def subtrees(mj_model: mujoco.MjModel) -> np.ndarray:
  """Whether the second body is the first or below it, as numbers, (nbody, nbody) float32."""
  below = np.eye(mj_model.nbody, dtype=np.float32)
  for body in range(mj_model.nbody - 1, 0, -1):  # children come after their parents
    below[mj_model.body_parentid[body]] += below[body]
  return below


def moves(mj_model: mujoco.MjModel) -> np.ndarray:
  """Whether a degree of freedom moves a body, (nbody, nv) bool."""
  found = mj_model.dof_bodyid[None, :] == np.arange(mj_model.nbody)[:, None]
  for body in range(1, mj_model.nbody):  # parents come before their children
    found[body] |= found[mj_model.body_parentid[body]]
  return found
