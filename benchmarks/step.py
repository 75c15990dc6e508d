"""The step of this package beside MuJoCo Warp's captured step, mujoco-mjx and C MuJoCo.

All in one process, by medians of alternating runs; a ratio is to MuJoCo Warp's captured step.

Examples:
  python benchmarks/step.py                                  # small, for a CPU
  python benchmarks/step.py --models humanoid --worlds 1,1024,8192 --steps 200
"""

import argparse
import pathlib
import shlex
import sys

import rich.console

from mjx_warp_ffi.cli import common, contenders, timing


def make_parser() -> argparse.ArgumentParser:
  """The parser of the arguments."""
  parser = common.make_parser("benchmarks/step.py", __doc__)
  parser.add_argument("--models", default="double_pendulum,humanoid,hand,pile", help="names")
  parser.add_argument("--worlds", default="1,64", help="batch sizes")
  parser.add_argument("--steps", type=common.positive, default=100, help="steps in a timed call")
  parser.add_argument("--rounds", type=common.positive, default=7, help="timed calls of each")
  parser.add_argument(
    "--contenders",
    default="mjwarp captured,mjx_warp_ffi,mujoco-mjx warp,C MuJoCo",
    help=f"of: {', '.join(contenders.CONTENDERS)}",
  )
  parser.add_argument("--out", type=pathlib.Path, help="a folder for step.json and step.md")
  return parser


def main() -> int:
  """Runs the table.

  Returns:
    The exit status.
  """
  return common.run_tool(_run, None)


def _run(argv: list[str] | None) -> int:
  args = make_parser().parse_args(argv)
  names = args.contenders.split(",")
  unknown = [name for name in names if name not in contenders.CONTENDERS]
  if unknown:
    known = ", ".join(contenders.CONTENDERS)
    raise common.ToolError(f"no contender {', '.join(unknown)}; there are: {known}")
  chosen = {name: contenders.CONTENDERS[name] for name in names}
  command = shlex.join(["python", *sys.argv])
  console = rich.console.Console(highlight=False)
  rows = []
  with common.make_progress(console) as progress:
    for model in args.models.split(","):
      mj_model = common.load_model(model)
      for worlds in map(int, args.worlds.split(",")):
        work = contenders.make_workload(mj_model, worlds, steps=args.steps)
        rows += timing.time_side_by_side(
          chosen, work, model=model, rounds=args.rounds, progress=progress
        )
  timing.show(rows, console)
  if args.out:
    timing.save(rows, command, stem=args.out / "step")
  return 0


if __name__ == "__main__":
  sys.exit(main())
