"""What the tables have in common: arguments, the loop over models and batch sizes, the output."""

import argparse
import pathlib
import shlex
import sys
from collections.abc import Callable, Mapping

import rich.console

from mjx_warp_ffi.cli import common, contenders, timing

Contenders = Mapping[str, Callable[[contenders.Workload], contenders.Prepared]]
Finish = Callable[[contenders.Workload, list[timing.Row]], tuple[list[timing.Row], list[str]]]


def run_table(
  name: str,
  doc: str | None,
  *,
  known: Contenders,
  defaults: dict[str, object],
  finish: Finish = lambda work, rows: (rows, []),
) -> int:
  """Times contenders on models and batch sizes, prints the table and saves it.

  Args:
    name: of the table and its files.
    doc: the help.
    known: the contenders to choose from.
    defaults: of the arguments.
    finish: given a workload and its rows, returns the rows to keep, and sentences on them.

  Returns:
    The exit status.
  """
  parser = common.make_parser(f"benchmarks/{name}.py", doc)
  add = parser.add_argument
  add("--models", help="names or files, with commas")
  add("--worlds", help="batch sizes, with commas")
  add("--steps", type=common.positive, help="steps in a timed call")
  add("--rounds", type=common.positive, default=7, help="timed calls of each contender")
  add("--contenders", help=f"of: {', '.join(known)}")
  add("--out", type=pathlib.Path, help=f"a folder for {name}.json and {name}.md")
  parser.set_defaults(**defaults)
  return common.run_tool(
    lambda argv: _run(parser.parse_args(argv), name, known=known, finish=finish), None
  )


def _run(args: argparse.Namespace, name: str, *, known: Contenders, finish: Finish) -> int:
  names = args.contenders.split(",")
  unknown = [each for each in names if each not in known]
  if unknown:
    raise common.ToolError(f"no contender {', '.join(unknown)}; there are: {', '.join(known)}")
  command = shlex.join(["python", *sys.argv])
  console = rich.console.Console(highlight=False)
  rows, remarks = [], []
  with common.make_progress(console) as progress:
    for model in args.models.split(","):
      mj_model = common.load_model(model)
      for worlds in map(common.positive, args.worlds.split(",")):
        work = contenders.make_workload(mj_model, worlds, steps=args.steps)
        new = timing.time_side_by_side(
          {each: known[each] for each in names},
          work,
          model=model,
          rounds=args.rounds,
          progress=progress,
        )
        new, sentences = finish(work, new)
        rows, remarks = rows + new, remarks + sentences
        if args.out:  # after each workload: a long table that is stopped keeps what it has
          timing.save(rows, command, stem=args.out / name, remarks=remarks)
  timing.show(rows, console)
  for remark in remarks:
    console.print(remark)
  return 0
