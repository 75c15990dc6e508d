"""Timing side by side: medians of alternating runs, memory, and tables of the outcome."""

import dataclasses
import importlib.metadata
import json
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rich.box
import rich.console
import rich.markup
import rich.progress
import rich.table
import warp as wp

from mjx_warp_ffi.cli import common
from mjx_warp_ffi.cli.contenders import Prepared, Workload

PACKAGES = ("mjx-warp-ffi", "jax", "warp-lang", "mujoco", "mujoco-warp", "mujoco-mjx")


@dataclasses.dataclass(frozen=True)
class Row:
  """One contender on one workload.

  Attributes:
    model: the model's name.
    worlds: how many.
    contender: its name.
    microseconds: the median of one step of all worlds; None when it was left out.
    ratio: to the time of the first contender that ran; more is slower.
    cpu_microseconds: the median of this process's CPU time, on all cores, for such a step: on a
      machine with other work it says more than the time, on a GPU what the host does.
    lower_seconds: to trace and lower.
    first_seconds: of everything up to the end of the first call.
    megabytes: the memory that preparing and running it took.
    note: why it was left out.
  """

  model: str
  worlds: int
  contender: str
  microseconds: float | None = None
  ratio: float | None = None
  cpu_microseconds: float | None = None
  lower_seconds: float | None = None
  first_seconds: float | None = None
  megabytes: float | None = None
  note: str = ""


def used_bytes() -> int:
  """The memory in use on the device that Warp computes on by default; on a CPU, the process's."""
  device = wp.get_device()
  if device.is_cuda:
    return device.total_memory - device.free_memory
  with open("/proc/self/statm", encoding="ascii") as file:
    return int(file.read().split()[1]) * 4096


def time_side_by_side(
  contenders: Mapping[str, Callable[[Workload], Prepared]],
  work: Workload,
  *,
  model: str,
  rounds: int,
  progress: rich.progress.Progress,
) -> list[Row]:
  """Prepares the contenders, then lets them run in turns.

  Args:
    contenders: how to prepare each, by name.
    work: what they run.
    model: the model's name, for the rows.
    rounds: how often each is timed.
    progress: where the bar is drawn.

  Returns:
    A row for each. One that cannot run has a note in place of numbers.
  """
  label = f"{model} x {work.worlds}"
  task = progress.add_task(label, total=len(contenders) * (1 + rounds), note="")
  ready, rows = {}, {}
  for name, prepare in contenders.items():
    progress.update(task, note=f"compiling {name}")
    before = used_bytes()
    try:
      ready[name] = prepare(work)
      megabytes = max(used_bytes() - before, 0) / 1e6
      rows[name] = Row(
        model,
        work.worlds,
        name,
        lower_seconds=ready[name].lower_seconds,
        first_seconds=ready[name].first_seconds,
        megabytes=megabytes,
      )
    except (common.ToolError, NotImplementedError, RuntimeError, ValueError) as error:
      note = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
      rows[name] = Row(model, work.worlds, name, note=note)
    progress.update(task, advance=1)
  seconds = {name: [] for name in ready}
  for _ in range(rounds):
    for name, prepared in ready.items():
      progress.update(task, note=name)
      seconds[name].append(_time(prepared))
      progress.update(task, advance=1)
  medians = {
    name: [1e6 * statistics.median(s) / work.steps for s in zip(*pairs, strict=True)]
    for name, pairs in seconds.items()
  }
  for name, (value, cpu) in medians.items():
    ratio = value / next(iter(medians.values()))[0]
    rows[name] = dataclasses.replace(
      rows[name], microseconds=value, ratio=ratio, cpu_microseconds=cpu
    )
  progress.update(task, completed=len(contenders) * (1 + rounds), note="done")
  return list(rows.values())


def _time(prepared: Prepared) -> tuple[float, float]:
  """Runs a contender; returns the seconds that passed, and those of CPU time."""
  prepared.reset()
  start, cpu_start = time.perf_counter(), time.process_time()
  prepared.run()
  return time.perf_counter() - start, time.process_time() - cpu_start


def environment() -> dict[str, Any]:
  """What the figures were measured on: the date, the device, the driver and the versions."""
  versions = {}
  for package in PACKAGES:
    try:
      versions[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      versions[package] = "not installed"
  driver = ".".join(map(str, wp.get_cuda_driver_version())) if wp.is_cuda_available() else ""
  return {
    "date": time.strftime("%Y-%m-%d"),
    "device": common.device_name(),
    "cuda driver": driver,
    "machine": platform.platform(),
    "python": platform.python_version(),
    **versions,
  }


HEADER = (
  "model",
  "worlds",
  "",
  "us a step",
  "ratio",
  "CPU us",
  "steps/s",
  "lower s",
  "first s",
  "MB",
)


def _cells(row: Row) -> list[str]:
  cells = [row.model, str(row.worlds), row.contender]
  if row.microseconds is None or row.ratio is None:
    return [*cells, row.note, *[""] * (len(HEADER) - 4)]
  rate = 1e6 * row.worlds / row.microseconds
  cells += [f"{row.microseconds:,.1f}", f"{row.ratio:.2f}", f"{row.cpu_microseconds or 0:,.1f}"]
  cells += [f"{rate:,.0f}"]
  cells += ["" if v is None else f"{v:.1f}" for v in (row.lower_seconds, row.first_seconds)]
  return [*cells, f"{row.megabytes or 0:,.0f}"]


def show(rows: Sequence[Row], console: rich.console.Console) -> None:
  """Prints a table a model, and beneath it who was left out and why."""
  for model in dict.fromkeys(row.model for row in rows):
    out = rich.table.Table(title=rich.markup.escape(model), box=rich.box.SIMPLE_HEAD)
    out.padding, out.pad_edge = (0, 1, 0, 0), False
    shown = [i for i, name in enumerate(HEADER) if i and name != "CPU us"]  # for 80 columns
    for name in (HEADER[i] for i in shown):
      if name:
        out.add_column(name, justify="right", no_wrap=True)
      else:  # a name may wrap between its words
        words = " ".join(row.contender for row in rows).split()
        out.add_column(name, min_width=max(map(len, words)))
    mine = [row for row in rows if row.model == model]
    for row in mine:
      if not row.note:
        out.add_row(*(_cells(row)[i] for i in shown))
    console.print(out)
    for name, note in dict.fromkeys((row.contender, row.note) for row in mine if row.note):
      console.print(f"left out: {name}: {rich.markup.escape(note)}")


def markdown(rows: Sequence[Row], command: str, *, remarks: Sequence[str] = ()) -> str:
  """The rows as a table, beneath the environment and the command that printed it."""
  versions = ", ".join(f"{key} {value}" for key, value in environment().items() if value)
  lines = [f"`{command}`", "", versions, ""]
  lines += [f"| {' | '.join(HEADER)} |", "|---|--:|---|" + "--:|" * (len(HEADER) - 3)]
  lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
  lines += [line for remark in remarks for line in ("", remark)]
  return "\n".join(lines) + "\n"


def save(
  rows: Sequence[Row], command: str, *, stem: pathlib.Path, remarks: Sequence[str] = ()
) -> None:
  """Writes the rows, and sentences on them, to `stem`.json and `stem`.md."""
  stem.parent.mkdir(parents=True, exist_ok=True)
  content = {
    "command": command,
    "environment": environment(),
    "rows": [dataclasses.asdict(row) for row in rows],
    "remarks": list(remarks),
  }
  stem.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
  stem.with_suffix(".md").write_text(markdown(rows, command, remarks=remarks), encoding="utf-8")
