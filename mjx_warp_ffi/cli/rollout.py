"""Simulates a model with MuJoCo Warp in JAX and saves what happened, as arrays and as a video.

The arrays go into an npz file without pickles: time (steps,), qpos (steps, worlds, nq), qvel,
ctrl and sensordata likewise, as they are after each step. The video shows one world through one
camera, rendered by MuJoCo Warp's ray tracer: no OpenGL and no display is needed.

Examples:
  mjx-warp-rollout humanoid --steps 400 --video fall.gif
  mjx-warp-rollout hand --worlds 64 --ctrl-noise 0.3 --out hand.npz
  mjx-warp-rollout my_robot.xml --keyframe home --ctrl controls.npz --camera side --video run.mp4
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import rich.console
import rich.progress

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import common, picture

SAVED = ("time", "qpos", "qvel", "ctrl", "sensordata")
FRAMES_AT_ONCE = 32


def initial_data(mj_model: mujoco.MjModel, keyframe: str | None) -> mujoco.MjData:
  """The default state, or a keyframe by its name or number.

  Raises:
    ToolError: the model has no such keyframe.
  """
  mj_data = mujoco.MjData(mj_model)
  if keyframe is None:
    return mj_data
  index = mujoco.mj_name2id(mj_model, mujoco.mjtObj.mjOBJ_KEY, keyframe)
  if index < 0 and keyframe.isdecimal() and int(keyframe) < mj_model.nkey:
    index = int(keyframe)
  if index < 0:
    names = [mj_model.key(i).name or str(i) for i in range(mj_model.nkey)]
    raise common.ToolError(f"no keyframe {keyframe!r}; there are: {', '.join(names) or 'none'}")
  mujoco.mj_resetDataKeyframe(mj_model, mj_data, index)
  return mj_data


def load_controls(path: pathlib.Path, *, steps: int, worlds: int, nu: int) -> np.ndarray:
  """Reads the array `ctrl` of an npz file, or an npy file, for all worlds or for each.

  Returns:
    The controls, (steps, worlds, nu), float32; the last ones are held to the end.

  Raises:
    ToolError: the file cannot be read without pickles, or the shape is another.
  """
  controls = common.load_array(path, "ctrl")
  if controls.ndim == 2:
    controls = np.repeat(controls[:, None], worlds, axis=1)
  if controls.ndim != 3 or controls.shape[1:] != (worlds, nu) or not len(controls):
    expected = f"(steps, {nu}) or (steps, {worlds}, {nu})"
    raise common.ToolError(f"{path}: ctrl has shape {controls.shape}, expected {expected}")
  held = np.repeat(controls[-1:], max(steps - len(controls), 0), axis=0)
  return np.concatenate([controls, held])[:steps]


def make_controls(mj_model: mujoco.MjModel, first: np.ndarray, *, args) -> np.ndarray:
  """The controls that the arguments ask for: from a file, or the first ones held, with noise.

  Returns:
    The controls, (steps, worlds, nu), float32.
  """
  if args.ctrl:
    return load_controls(args.ctrl, steps=args.steps, worlds=args.worlds, nu=mj_model.nu)
  rng = np.random.default_rng(args.seed)
  noise = args.ctrl_noise * rng.normal(size=(args.steps, args.worlds, mj_model.nu))
  return (first + noise).astype(np.float32)


def simulate(
  mj_model: mujoco.MjModel,
  mj_data: mujoco.MjData,
  *,
  ctrl: np.ndarray,
  chunk: int,
  progress: rich.progress.Progress,
) -> tuple[dict[str, np.ndarray], int]:
  """Steps all worlds under the controls.

  Args:
    mj_model: the model.
    mj_data: where every world starts.
    ctrl: the controls, (steps, worlds, nu).
    chunk: the steps in one call of the compiled scan.
    progress: where the bar is drawn.

  Returns:
    The arrays by name, and the number of worlds that ran out of contacts or rows.
  """
  m = mjx.put_model(mj_model)
  d = mjx.put_data(mj_model, mj_data)
  steps, worlds = ctrl.shape[:2]
  d = jax.vmap(lambda u: d.replace(ctrl=u))(jnp.asarray(ctrl[0]))
  step = jax.vmap(mjx.step, in_axes=(None, 0))

  @jax.jit
  def run(d, ctrl):
    def body(d, u):
      d = step(m, d.replace(ctrl=u))
      return d, ({name: getattr(d, name) for name in SAVED}, d.overflow != 0)

    d, (saved, overflow) = jax.lax.scan(body, d, ctrl)
    return d, saved, overflow.any(axis=0)

  task = progress.add_task("simulating", total=steps, note="compiling")
  parts, overflow = [], np.zeros(worlds, bool)
  for start in range(0, steps, chunk):
    d, saved, over = run(d, ctrl[start : start + chunk])
    parts.append(jax.device_get(saved))
    overflow |= np.asarray(over)
    progress.update(task, advance=min(chunk, steps - start), note="")
  saved = {name: np.concatenate([part[name] for part in parts]) for name in SAVED}
  saved["time"] = saved["time"][:, 0]
  return saved, int(overflow.sum())


def frames_of(
  args: argparse.Namespace, qpos: np.ndarray, *, dt: float, progress: rich.progress.Progress
) -> np.ndarray:
  """Renders a world at the video's frame rate.

  Returns:
    The frames, (n, height, width, 3), uint8.
  """
  model, camera = picture.with_camera(common.find_model(args.model), args.camera)
  times = np.arange(0, len(qpos) * dt, 1 / args.fps)
  shown = qpos[np.minimum((times / dt).astype(int), len(qpos) - 1)]
  task = progress.add_task("rendering", total=len(shown), note="")
  frames = []
  for start in range(0, len(shown), FRAMES_AT_ONCE):
    part = shown[start : start + FRAMES_AT_ONCE]
    frames.append(picture.render(model, part, camera=camera, size=(args.width, args.height)))
    progress.update(task, advance=len(part))
  return np.round(255 * np.concatenate(frames)).astype(np.uint8)


def make_parser() -> argparse.ArgumentParser:
  """The parser of the arguments."""
  parser = common.make_parser("mjx-warp-rollout", __doc__)
  add = parser.add_argument
  add("model", nargs="?", default="humanoid", help="a bundled model's name, or an MJCF file")
  add("--worlds", type=common.positive, default=1, help="how many, all from the same state")
  add("--steps", type=common.positive, default=500, help="how many")
  add("--keyframe", help="start from this keyframe, by name or number")
  add("--ctrl", type=pathlib.Path, help="npy or npz file with controls")
  add("--ctrl-noise", type=float, default=0.0, help="spread of random controls")
  add("--seed", type=int, default=0, help="of the random controls")
  add("--chunk", type=common.positive, default=50, help="steps in a jitted scan")
  add("--out", type=pathlib.Path, help="the npz file to write")
  add("--video", type=pathlib.Path, help="the .gif, .webp or .mp4 file to write")
  add("--camera", help="by name or number (default: the first, or one in front)")
  add("--world", type=int, default=0, help="which one the video shows")
  add("--fps", type=common.positive, default=25, help="frames a second")
  add("--width", type=common.positive, default=480, help="of the video, in pixels")
  add("--height", type=common.positive, default=360, help="of the video, in pixels")
  return parser


def _run(argv: Sequence[str] | None) -> int:
  args = make_parser().parse_args(argv)
  if not args.out and not args.video:
    raise common.ToolError("nothing to write: give --out, --video or both")
  if not 0 <= args.world < args.worlds:
    raise common.ToolError(f"--world {args.world} is not one of {args.worlds}")
  common.check_output(args.out, ".npz")
  common.check_output(args.video)
  if args.video:
    picture.check_video(args.video)
  console = rich.console.Console(highlight=False, markup=False)
  mj_model = common.load_model(args.model)
  mj_data = initial_data(mj_model, args.keyframe)
  ctrl = make_controls(mj_model, mj_data.ctrl, args=args)
  with common.make_progress(console) as progress:
    saved, overflow = simulate(mj_model, mj_data, ctrl=ctrl, chunk=args.chunk, progress=progress)
    if args.out:
      np.savez_compressed(args.out, **saved)
    if args.video:
      dt = mj_model.opt.timestep
      frames = frames_of(args, saved["qpos"][:, args.world], dt=dt, progress=progress)
      picture.write_video(args.video, frames, fps=args.fps)
  for path in filter(None, (args.out, args.video)):
    console.print(f"wrote {path}")
  if overflow:
    console.print(f"{overflow} worlds had more contacts or rows than the capacities hold")
  bad = int((~np.isfinite(saved["qpos"])).any(axis=(0, 2)).sum())
  if bad:
    console.print(f"{bad} worlds became unstable (NaN): try a smaller time step")
  return int(bool(overflow or bad))


def main(argv: Sequence[str] | None = None) -> int:
  """The entry point of `mjx-warp-rollout`.

  Returns:
    The exit status: 1 when a world overflowed or became unstable.
  """
  return common.run_tool(_run, argv)


if __name__ == "__main__":
  sys.exit(main())
