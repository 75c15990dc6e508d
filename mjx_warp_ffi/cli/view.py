"""Shows a model in the browser: live, stepped by MuJoCo Warp in JAX, or a rollout from a file.

The viewer is mjviser (`pip install 'mjx-warp-ffi[view]'`): open the address that it prints. Joints
and controls have sliders; contacts and their forces can be shown.

Examples:
  mjx-warp-view humanoid
  mjx-warp-view my_robot.xml --keyframe home --port 7070
  mjx-warp-rollout hand --worlds 4 --out hand.npz && mjx-warp-view hand --play hand.npz --world 2
"""

import argparse
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Sequence

import jax
import mujoco
import numpy as np

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import common, rollout

StepFunction = Callable[[mujoco.MjModel, mujoco.MjData], None]

# What a viewer's sliders and buttons change in an MjData.
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


def live(mj_model: mujoco.MjModel) -> StepFunction:
  """A function that steps an MjData by MuJoCo Warp in JAX."""
  m = mjx.put_model(mj_model)
  template = mjx.make_data(m)
  step = jax.jit(mjx.step)

  def advance(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    state = np.empty(mujoco.mj_stateSize(model, _STATE))
    mujoco.mj_getState(model, data, state, _STATE)
    before = mjx.set_state(m, template, state.astype(np.float32), _STATE)
    mjx.get_data_into(data, model, step(m, before), before=before)

  return advance


def played(mj_model: mujoco.MjModel, path: pathlib.Path, *, world: int) -> StepFunction:
  """A function that sets an MjData to the next state of a rollout, from the first again at the end.

  Args:
    mj_model: the model.
    path: an npz file of `mjx-warp-rollout`.
    world: which of its worlds.

  Raises:
    ToolError: the file cannot be read, or is of another model.
  """
  qpos = common.load_array(path, "qpos")
  if qpos.ndim != 3 or qpos.shape[2] != mj_model.nq or not len(qpos):
    raise common.ToolError(
      f"{path}: qpos has shape {qpos.shape}, expected (steps, worlds, {mj_model.nq})"
    )
  if not 0 <= world < qpos.shape[1]:
    raise common.ToolError(f"--world {world} is not one of {qpos.shape[1]}")
  dt = mj_model.opt.timestep

  def advance(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    index = round(data.time / dt) % len(qpos)
    data.qpos[:] = qpos[index, world]
    mujoco.mj_forward(model, data)
    data.time = (index + 1) * dt

  return advance


def make_parser() -> argparse.ArgumentParser:
  """The parser of the arguments."""
  parser = common.make_parser("mjx-warp-view", __doc__)
  add = parser.add_argument
  add("model", nargs="?", default="humanoid", help="a bundled model's name, or an MJCF file")
  add("--keyframe", help="start from this keyframe, by name or number")
  add("--play", type=pathlib.Path, help="an npz file of mjx-warp-rollout to show")
  add("--world", type=int, default=0, help="which world of the file")
  add("--port", type=common.port, default=8080, help="where the browser finds the viewer")
  add("--host", default="127.0.0.1", help="0.0.0.0 lets other machines see and move the model")
  return parser


def _run(argv: Sequence[str] | None) -> int:
  args = make_parser().parse_args(argv)
  if importlib.util.find_spec("mjviser") is None:
    raise common.ToolError("the viewer is not installed: pip install 'mjx-warp-ffi[view]'")
  mj_model = common.load_model(args.model)
  mj_data = rollout.initial_data(mj_model, args.keyframe)
  if args.play:
    step = played(mj_model, args.play, world=args.world)
  else:
    step = live(mj_model)
  mujoco.mj_forward(mj_model, mj_data)
  viewer, viser = map(importlib.import_module, ("mjviser", "viser"))  # optional, and slow to load
  server = viser.ViserServer(host=args.host, port=args.port)
  viewer.Viewer(mj_model, mj_data, step_fn=step, server=server).run()
  return 0


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the tool."""
  return common.run_tool(_run, argv)


if __name__ == "__main__":
  sys.exit(main())
