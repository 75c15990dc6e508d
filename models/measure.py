"""Prints the table of sizes in the README of the models: `python models/measure.py [name ...]`.

Contacts and constraint rows are the most that C MuJoCo had in five runs of 1000 steps with random
controls, from the default state and from every keyframe.
"""

import math
import pathlib
import sys

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

MODELS = pathlib.Path(__file__).parent
COLUMNS = "model nbody nq nv nu na integrator cone solver pairs contacts rows nconmax njmax".split()
SEEDS = range(5)


def control_range(m):
  """Returns the bounds (low, high) of the random controls of a model, each of shape (nu,)."""
  limited = m.actuator_ctrllimited.astype(bool)
  low, high = m.actuator_ctrlrange.T
  return np.where(limited, low, -1.0), np.where(limited, high, 1.0)


def simulate(m, key=-1, *, steps=1000, seed=0):
  """Steps a model with random controls, from its default state or from a keyframe.

  The joints start with random speeds; the controls are uniform in their ranges, and new in every
  twentieth step, so that they move the model and do not only shake it.

  Args:
    m: the MjModel.
    key: the index of the keyframe, or -1.
    steps: how many steps to take.
    seed: of the speeds and controls.

  Returns:
    The final MjData, the most contacts and the most constraint rows of any step, and the largest
    joint speed.
  """
  d = mujoco.MjData(m)
  if key >= 0:
    mujoco.mj_resetDataKeyframe(m, d, key)
  rng = np.random.default_rng(seed)
  low, high = control_range(m)
  d.qvel += rng.normal(size=m.nv)
  contacts = rows = speed = 0
  for step in range(steps):
    if step % 20 == 0:
      d.ctrl[:] = rng.uniform(low, high)
    mujoco.mj_step(m, d)
    contacts, rows = max(contacts, d.ncon), max(rows, d.nefc)
    speed = max(speed, np.abs(d.qvel).max())
  return d, contacts, rows, speed


def round_up(count):
  """Returns the count rounded up to a multiple of eight, and at least eight."""
  return max(8, 8 * math.ceil(count / 8))


def option_names(m):
  """Returns the names of a model's integrator, cone and solver, in small letters."""
  options = (
    (mujoco.mjtIntegrator(m.opt.integrator).name, "mjINT_"),
    (mujoco.mjtCone(m.opt.cone).name, "mjCONE_"),
    (mujoco.mjtSolver(m.opt.solver).name, "mjSOL_"),
  )
  return tuple(name.removeprefix(prefix).lower() for name, prefix in options)


def collision_pairs(m):
  """Returns how many pairs of geoms the broad phase of MuJoCo Warp can pass on."""
  if m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT:
    return 0
  return len(mjw.put_model(m).nxn_geom_pair_filtered)


def sizes(path):
  """Returns one row of the table, as a dict from COLUMNS to values."""
  m = mujoco.MjModel.from_xml_path(str(path))
  runs = [simulate(m, key, seed=seed) for key in range(-1, m.nkey) for seed in SEEDS]
  contacts, rows = max(run[1] for run in runs), max(run[2] for run in runs)
  pairs = collision_pairs(m)
  nconmax, njmax = round_up(max(2 * contacts, pairs)), round_up(2 * rows)
  fixed = (path.stem, m.nbody, m.nq, m.nv, m.nu, m.na, *option_names(m))
  return dict(zip(COLUMNS, (*fixed, pairs, contacts, rows, nconmax, njmax), strict=True))


def main(*names):
  """Prints the table of the named models, or of all."""
  wp.config.log_level = wp.LOG_WARNING  # without Warp's banner
  paths = [MODELS / f"{name}.xml" for name in names] or sorted(MODELS.glob("*.xml"))
  print("| " + " | ".join(COLUMNS) + " |")
  print("|" + " --- |" * len(COLUMNS))
  for path in paths:
    print("| " + " | ".join(str(value) for value in sizes(path).values()) + " |")


if __name__ == "__main__":
  main(*sys.argv[1:])
