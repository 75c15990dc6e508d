"""Measures how fast a model steps, alone or beside MuJoCo Warp, mujoco-mjx and C MuJoCo.

A timed call is `--steps` steps of all worlds in one jitted scan; each contender runs `--rounds`
of them in turns with the others, and the median is printed. With peers, the ratio is to MuJoCo
Warp's own step, captured once and replayed: there is no faster way to run it.

Examples:
  mjx-warp-testspeed humanoid --worlds 1,1024,8192
  mjx-warp-testspeed my_robot.xml --integrator implicitfast --solver cg --iterations 10
  mjx-warp-testspeed humanoid --worlds 1024 --gradient       # value and gradient of the rollout
  mjx-warp-testspeed humanoid --worlds 1024 --peers --json speed.json
"""

import argparse
import functools
import pathlib
import shlex
import sys
from collections.abc import Callable, Sequence

import mujoco
import rich.console

from mjx_warp_ffi.cli import common, contenders, timing

INTEGRATORS = {
  name.removeprefix("mjINT_").lower(): value
  for name, value in mujoco.mjtIntegrator.__members__.items()
}
SOLVERS = {
  name.removeprefix("mjSOL_").lower(): value
  for name, value in mujoco.mjtSolver.__members__.items()
  if value != mujoco.mjtSolver.mjSOL_PGS
}


def batch_sizes(text: str) -> list[int]:
  """An argument type: positive integers with commas between them."""
  return [common.positive(part) for part in text.split(",")]


def make_parser() -> argparse.ArgumentParser:
  """The parser of the arguments."""
  parser = common.make_parser("mjx-warp-testspeed", __doc__)
  add = parser.add_argument
  add("model", nargs="?", default="humanoid", help="a bundled model's name, or an MJCF file")
  add("--worlds", type=batch_sizes, default="64", help="how many; several with commas")
  add("--steps", type=common.positive, default=100, help="steps in a timed call")
  add("--substeps", type=common.positive, default=1, help="steps in one iteration of the scan")
  add("--rounds", type=common.positive, default=5, help="timed calls of each contender")
  add("--noise", type=float, default=0.05, help="spread of the worlds' first positions [rad, m]")
  add("--nconmax", type=common.positive, help="contacts a world (default: by the model)")
  add("--njmax", type=common.positive, help="constraint rows a world (default: by the model)")
  add("--integrator", choices=INTEGRATORS, help="in place of the model's")
  add("--solver", choices=SOLVERS, help="in place of the model's")
  add("--iterations", type=common.positive, help="of the solver, in place of the model's")
  add("--gradient", action="store_true", help="time value and gradient of the rollout, too")
  add("--peers", action="store_true", help="time mujoco_warp, mujoco-mjx and C MuJoCo, too")
  add("--json", type=pathlib.Path, help="write the figures to this file, and a table beside it")
  return parser


def adjust(mj_model: mujoco.MjModel, args: argparse.Namespace) -> None:
  """Writes the options that were given into the model."""
  if args.integrator:
    mj_model.opt.integrator = INTEGRATORS[args.integrator]
  if args.solver:
    mj_model.opt.solver = SOLVERS[args.solver]
  if args.iterations:
    mj_model.opt.iterations = args.iterations


def choose(args: argparse.Namespace) -> dict[str, Callable]:
  """The contenders that were asked for; the first is what the others are compared with."""
  chosen: dict[str, Callable] = {}
  if args.peers:
    chosen = {"mjwarp captured": contenders.mjwarp, **contenders.CONTENDERS}
  chosen["mjx_warp_ffi"] = contenders.ours
  if args.gradient:
    chosen["mjx_warp_ffi gradient"] = functools.partial(
      contenders.ours_gradient, gradient="analytic"
    )
  return chosen


def _run(argv: Sequence[str] | None) -> int:
  args = make_parser().parse_args(argv)
  if args.steps % args.substeps:
    raise common.ToolError(f"--steps {args.steps} must be a multiple of --substeps {args.substeps}")
  common.check_output(args.json)
  mj_model = common.load_model(args.model)
  adjust(mj_model, args)
  name = pathlib.Path(args.model).stem
  console = rich.console.Console(highlight=False)
  console.print(f"{name} on {common.device_name()}", markup=False)
  rows = []
  with common.make_progress(console) as progress:
    for worlds in args.worlds:
      work = contenders.make_workload(
        mj_model,
        worlds,
        steps=args.steps,
        substeps=args.substeps,
        noise=args.noise,
        capacities={"nconmax": args.nconmax, "njmax": args.njmax},
      )
      rows += timing.time_side_by_side(
        choose(args), work, model=name, rounds=args.rounds, progress=progress
      )
  timing.show(rows, console)
  if args.json:
    command = shlex.join(["mjx-warp-testspeed", *(sys.argv[1:] if argv is None else argv)])
    timing.save(rows, command, stem=args.json.with_suffix(""))
  return int(all(row.microseconds is None for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
  """The entry point of `mjx-warp-testspeed`.

  Returns:
    The exit status: 1 when nothing could be timed.
  """
  return common.run_tool(_run, argv)


if __name__ == "__main__":
  sys.exit(main())
