"""Where the time of `mjx.step` goes: each contender does one thing more than the one before it.

MuJoCo Warp's step in a graph; in this package's buffers; with what this package launches around it
(a watch over states and capacities, poses of static geoms, contacts by world); with the copies from
and to XLA's buffers; and the whole in a jitted scan. All in one process, by medians of alternating
runs; a ratio is to the first.

Examples:
  python benchmarks/step_parts.py                                   # small, for a CPU
  python benchmarks/step_parts.py --models humanoid --worlds 1,1024,8192 --steps 200
"""

import dataclasses
import itertools
import sys
import time
from collections.abc import Callable

import jax
import mujoco_warp as mjw
import numpy as np
import tables
import warp as wp

from mjx_warp_ffi.cli import contenders, timing
from mjx_warp_ffi.cli.contenders import Prepared, Workload
from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp.functions import forward
from mjx_warp_ffi.mjx.warp.staging.plan import Plan
from mjx_warp_ffi.mjx.warp.staging.workspace import EARLY, Workspace
from mjx_warp_ffi.third_party.warp.launchers import copies
from mjx_warp_ffi.third_party.warp.launchers.staged import Early

DEFAULTS = {
  "models": "humanoid",
  "worlds": "1,64",
  "steps": 50,
  "contenders": "captured,own buffers,own kernels,copies,scan",
}


@dataclasses.dataclass
class Staged:
  """A step by hand: a workspace, and arrays in place of XLA's buffers.

  Attributes:
    workspace: with the leaves of the model in it.
    copies: between those arrays and the workspace.
    arrays: those in place of XLA's buffers.
    starts: pairs of an array that holds the start of an input, and those that begin with it.
    early: what hands results out.
  """

  workspace: Workspace
  copies: copies.Copies
  arrays: list[wp.array]
  starts: list[tuple[wp.array, list[wp.array]]]
  early: Early

  @classmethod
  def of(cls, work: Workload) -> "Staged":
    """The step of a workload at its start."""
    m, d = contenders.put(work)
    inputs = jax.vmap(lambda d: ffi.inputs_of(m, d))(d)
    signature = ffi.signature_of(m, inputs, name="step", outputs=forward.step.outputs(m))
    early = Early(i for i, name in enumerate(signature.outputs) if name in EARLY)
    plan = Plan(m.spec, m.opt.statics, d.sizes, work.worlds, frozenset())
    w = Workspace(plan, hand_out=early.hand_out)
    for name in signature.leaves:
      w.leaf(name).assign(np.asarray(fields.lookup(m, name))[None])
    starts, given = [], {}
    for name, values in inputs.arrays.items():
      w.field(name).assign(np.asarray(values))
      given[name] = wp.clone(w.field(name))
      starts.append((wp.clone(w.field(name)), [w.field(name), given[name]]))
    made = {name: wp.empty_like(w.field(name)) for name in signature.outputs if name not in given}
    leaves = [w.leaf(name) for name in signature.leaves]
    moving = [wp.clone(x) for x in leaves] + [given[name] for name in signature.inputs]
    moving += [(given | made)[name] for name in signature.outputs]  # in place, as in a scan
    moves = copies.Copies(
      w.d.qpos.device,
      leaves + [w.field(name) for name in signature.inputs],
      [w.field(name) for name in signature.outputs],
      early=early.results,
    )
    moves.refresh(np.array([x.ptr for x in moving], np.uint64).tobytes(), _stream())
    wp.synchronize_device()
    return cls(w, moves, moving, starts, early)

  def reset(self) -> None:
    """Back to the start."""
    for start, arrays in self.starts:
      for array in arrays:
        wp.copy(array, start)
    self.workspace.contacts.ncon.zero_()
    wp.synchronize_device()

  def step(self) -> None:
    """MuJoCo Warp's step alone."""
    mjw.step(self.workspace.m, self.workspace.d)

  def run(self) -> None:
    """With what this package launches around it."""
    self.workspace.run(mjw.step)

  def run_copied(self) -> None:
    """With the copies too."""
    self.copies.gather()
    self.early.start(self.copies.scatter_early)
    self.workspace.run(mjw.step)
    self.copies.scatter()


def _stream() -> int:
  device = wp.get_device()
  return device.stream.cuda_stream if device.is_cuda else 0


def _prepare(work: Workload, part: Callable[[Staged], None]) -> Prepared:
  start = time.perf_counter()
  staged = Staged.of(work)
  part(staged)  # loads the kernels, which a capture must not
  with wp.ScopedCapture() as capture:
    part(staged)

  def run() -> None:
    for _ in range(work.steps):
      wp.capture_launch(capture.graph)
    wp.synchronize_device()

  staged.reset()
  run()
  first_seconds = time.perf_counter() - start
  return Prepared(run, staged.reset, lower_seconds=None, first_seconds=first_seconds)


def steps_apart(work: Workload, rows: list[timing.Row]) -> tuple[list[timing.Row], list[str]]:
  """A sentence with what each contender adds to the one before it."""
  added = [
    f"{row.contender} {row.microseconds - before.microseconds:+.0f}"
    for before, row in itertools.pairwise(rows)
    if row.microseconds is not None and before.microseconds is not None
  ]
  label = f"{rows[0].model} x {work.worlds}"
  return rows, [f"{label}, us a step more than the one before: {', '.join(added)}."]


KNOWN = {
  "captured": contenders.mjwarp,
  "own buffers": lambda work: _prepare(work, Staged.step),
  "own kernels": lambda work: _prepare(work, Staged.run),
  "copies": lambda work: _prepare(work, Staged.run_copied),
  "scan": contenders.ours,
}

if __name__ == "__main__":
  sys.exit(
    tables.run_table("step_parts", __doc__, known=KNOWN, defaults=DEFAULTS, finish=steps_apart)
  )
