"""Hundreds of humanoids fall, in one jitted and vmapped rollout through MuJoCo Warp.

Every world starts from another pose. The first few are simulated again by C MuJoCo in double
precision, and the largest difference is printed. The picture shows the height of every world's
pelvis over time, C MuJoCo's dashed above them, and a rendered frame.

Examples:
  mjx-warp-demo                             # 256 worlds, 2.5 s of simulated time
  mjx-warp-demo --worlds 4096 --steps 1000  # on a GPU
"""

import argparse
import dataclasses
import pathlib
import sys
import time
from collections.abc import Sequence

import jax
import mujoco
import numpy as np
import rich.console

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import common, picture

# float32 against float64 over free fall and the first contacts: 1e-4 was the largest of 32 worlds
# after 80 steps. Later on, which foot touches first is decided by rounding, and worlds part.
TOLERANCE = 1e-3
SHOWN = 49  # worlds in the frame


@dataclasses.dataclass(frozen=True)
class Rollout:
  """What the demo keeps of a rollout, and how long it took."""

  qpos: np.ndarray  # (steps, kept worlds, nq)
  height: np.ndarray  # (steps, worlds)
  first_call_seconds: float
  steps_per_second: float


def initial_positions(mj_model: mujoco.MjModel, worlds: int) -> np.ndarray:
  """Poses above the floor, tilted and bent at random.

  Returns:
    The positions, (worlds, nq), float32.
  """
  rng = np.random.default_rng(0)
  qpos = np.tile(mj_model.qpos0, (worlds, 1))
  qpos[:, 2] += rng.uniform(0.1, 0.6, worlds)
  quat = qpos[:, 3:7] + rng.normal(0, 0.15, (worlds, 4))
  qpos[:, 3:7] = quat / np.linalg.norm(quat, axis=1, keepdims=True)
  qpos[:, 7:] += rng.normal(0, 0.1, (worlds, mj_model.nq - 7))
  return qpos.astype(np.float32)


def simulate(
  mj_model: mujoco.MjModel, qpos: np.ndarray, *, steps: int, chunk: int, keep: int, progress
) -> Rollout:
  """Steps all worlds together, `chunk` steps to a call of the compiled scan.

  Args:
    mj_model: the model.
    qpos: where each world starts, (worlds, nq).
    steps: how many, rounded down to whole chunks.
    chunk: the steps in one call.
    keep: of how many worlds all positions are kept, not the heights alone.
    progress: where the bar is drawn.

  Returns:
    The rollout; its speed leaves the first call out, which compiles.
  """
  m = mjx.put_model(mj_model)
  d = jax.vmap(mjx.make_data(m).replace)(qpos=qpos)
  step = jax.vmap(mjx.step, in_axes=(None, 0))

  @jax.jit
  def run(d):
    def body(d, _):
      d = step(m, d)
      return d, (d.qpos[:keep], d.qpos[:, 2])

    return jax.lax.scan(body, d, length=chunk)

  kept, seconds = [], []
  task = progress.add_task("falling", total=steps // chunk * chunk, note="compiling")
  for _ in range(steps // chunk):
    start = time.perf_counter()
    d, out = jax.block_until_ready(run(d))
    seconds.append(time.perf_counter() - start)
    kept.append(jax.device_get(out))
    note = f"{len(qpos) * chunk / seconds[-1]:,.0f} steps/s" if len(seconds) > 1 else ""
    progress.update(task, advance=chunk, note=note)
  warm = seconds[1:] or seconds
  return Rollout(
    qpos=np.concatenate([q for q, _ in kept]),
    height=np.concatenate([z for _, z in kept]),
    first_call_seconds=seconds[0],
    steps_per_second=len(qpos) * chunk * len(warm) / sum(warm),
  )


def simulate_in_c(mj_model: mujoco.MjModel, qpos: np.ndarray, *, steps: int) -> np.ndarray:
  """The same worlds, one after another, by `mj_step` in double precision.

  Returns:
    The positions, (steps, worlds, nq).
  """
  out = np.empty((steps, *qpos.shape))
  for world, start in enumerate(qpos):
    mj_data = mujoco.MjData(mj_model)
    mj_data.qpos[:] = start
    for step in range(steps):
      mujoco.mj_step(mj_model, mj_data)
      out[step, world] = mj_data.qpos
  return out


def draw(path: pathlib.Path, rollout: Rollout, *, exact: np.ndarray, dt: float, frame) -> None:
  """Writes the picture: heights over time, and the frame beside them."""
  plt = picture.import_pyplot()
  figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8), layout="constrained")
  times = dt * np.arange(1, len(rollout.height) + 1)
  left.plot(times, rollout.height, color="tab:blue", alpha=0.15, linewidth=0.8)
  left.plot([], [], color="tab:blue", label=f"mjx.step, {rollout.height.shape[1]} worlds")
  lines = left.plot(times[: len(exact)], exact[..., 2], "k--", linewidth=1)
  lines[0].set_label(f"C MuJoCo, {exact.shape[1]} of them")
  left.set(xlabel="time [s]", ylabel="height of the pelvis [m]", ylim=(0, None))
  left.legend()
  right.imshow(frame)
  right.set_axis_off()
  figure.savefig(path, dpi=110)
  plt.close(figure)


def make_parser() -> argparse.ArgumentParser:
  """The parser of the demo's arguments."""
  parser = common.make_parser("mjx-warp-demo", __doc__)
  parser.add_argument("--worlds", type=common.positive, default=256, help="humanoids")
  parser.add_argument("--steps", type=common.positive, default=500, help="steps of 5 ms")
  parser.add_argument("--chunk", type=common.positive, default=20, help="steps in a jitted scan")
  parser.add_argument("--checked", type=common.positive, default=8, help="worlds that C repeats")
  parser.add_argument(
    "--check-steps", type=common.positive, default=80, help="steps that are compared"
  )
  parser.add_argument("--out", type=pathlib.Path, default="demo.png", help="the picture to write")
  return parser


def _run(argv: Sequence[str] | None) -> int:
  args = make_parser().parse_args(argv)
  if args.steps < args.chunk:
    raise common.ToolError(f"--steps {args.steps} is less than --chunk {args.chunk}")
  common.check_output(args.out, ".png", ".pdf", ".svg", ".jpg")
  console = rich.console.Console(highlight=False, markup=False)
  picture.import_pyplot()
  path = common.find_model("humanoid")
  mj_model = common.load_model("humanoid")
  qpos = initial_positions(mj_model, args.worlds)
  console.print(f"{args.worlds} humanoids on {common.device_name()}")
  with common.make_progress(console) as progress:
    rollout = simulate(
      mj_model,
      qpos,
      steps=args.steps,
      chunk=args.chunk,
      keep=max(args.checked, SHOWN),
      progress=progress,
    )
  compared = min(args.check_steps, len(rollout.qpos))
  exact = simulate_in_c(mj_model, qpos[: args.checked], steps=len(rollout.qpos))
  difference = rollout.qpos[:compared, : args.checked] - exact[:compared]
  error = float(np.abs(difference).max())
  dt = mj_model.opt.timestep
  console.print(f"first call        {rollout.first_call_seconds:.1f} s, with compilation")
  console.print(f"steps per second  {rollout.steps_per_second:,.0f}")
  console.print(f"real-time factor  {rollout.steps_per_second * dt:,.1f}")
  console.print(
    f"largest error     {error:.1e} in qpos against C MuJoCo (float64): "
    f"{exact.shape[1]} worlds, {compared} steps"
  )
  frame = picture.crowd(path, rollout.qpos[len(rollout.qpos) // 4, :SHOWN])
  draw(args.out, rollout, exact=exact, dt=dt, frame=frame)
  console.print(f"picture           {args.out}")
  if not error < TOLERANCE:
    raise common.ToolError(f"the error is above {TOLERANCE:.0e}: please report this")
  return 0


def main(argv: Sequence[str] | None = None) -> int:
  """The entry point of `mjx-warp-demo`.

  Returns:
    The exit status: 0 when the worlds agree with C MuJoCo.
  """
  return common.run_tool(_run, argv)


if __name__ == "__main__":
  sys.exit(main())
