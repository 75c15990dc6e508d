"""The step on one device beside the same number of worlds on each of several devices.

A jitted scan over a Data that is sharded along its batch, in one process, by medians of alternating
runs. The ratio is to the time on one device: 1 is perfect, the steps a second then grow with the
devices. Then worlds that all differ take some steps on all devices and, in parts, on the first
alone, and the positions are compared: on a CPU they must be equal.

Examples:
  python benchmarks/scaling.py                        # all GPUs, or two virtual devices of a CPU
  python benchmarks/scaling.py --models humanoid --worlds 8192 --contenders '1 device,2 devices'
"""

import dataclasses
import functools
import os
import sys

import jax
import numpy as np
import tables
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import common, contenders, timing

CHECKED_STEPS = 5
# On a GPU sums are taken in any order: contacts amplify the last bits of float32 in a few steps.
GPU_LIMIT = 1e-3


def put(work: contenders.Workload, devices: list[jax.Device]) -> tuple[mjx.Model, mjx.Data]:
  """A Model on all devices, and the worlds spread over them."""
  mesh = Mesh(np.array(devices), ("world",))
  m, d = contenders.put(work)
  return (
    jax.device_put(m, NamedSharding(mesh, PartitionSpec())),
    jax.device_put(d, NamedSharding(mesh, PartitionSpec("world"))),
  )


def on_devices(work: contenders.Workload, *, count: int) -> contenders.Prepared:
  """The workload on each of the first devices."""
  spread = dataclasses.replace(work, qpos=np.tile(work.qpos, (count, 1)))
  m, d = put(spread, jax.devices()[:count])
  return contenders.prepare_scan(mjx.step, m, d=d, work=work)


def difference(work: contenders.Workload, count: int) -> float:
  """The largest difference of a position after some steps on several devices and on one."""
  devices = jax.devices()[:count]
  work = contenders.make_workload(
    work.mj_model,
    count * work.worlds,
    steps=CHECKED_STEPS,
    capacities={"nconmax": work.nconmax, "njmax": work.njmax},
  )
  run = jax.jit(
    lambda m, d: (
      jax.lax.scan(
        lambda d, _: (jax.vmap(mjx.step, (None, 0))(m, d), None), d, length=CHECKED_STEPS
      )[0].qpos
    )
  )
  together = run(*put(work, devices))
  parts = [
    run(*put(dataclasses.replace(work, qpos=part), devices[:1]))
    for part in np.split(work.qpos, count)
  ]
  return float(np.max(np.abs(np.asarray(together) - np.concatenate(parts))))


def finish(work: contenders.Workload, rows: list[timing.Row]) -> tuple[list[timing.Row], list[str]]:
  """The rows with the worlds of all devices, and whether the numbers are those of one device.

  Raises:
    ToolError: They are not.
  """
  counts = {row.contender: int(row.contender.split()[0]) for row in rows}
  rows = [dataclasses.replace(row, worlds=row.worlds * counts[row.contender]) for row in rows]
  most = max(counts.values())
  apart = difference(work, most)
  text = (
    f"{rows[0].model}: after {CHECKED_STEPS} steps of {most * work.worlds} worlds on {most} devices"
    f" positions differ from those on one by at most {apart:.2g}."
  )
  if not apart <= (0 if jax.devices()[0].platform == "cpu" else GPU_LIMIT):
    raise common.ToolError(text)
  return rows, [text]


def main() -> int:
  """Times one device and all of them."""
  if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    jax.config.update("jax_num_cpu_devices", 2)
  count = len(jax.devices())
  known = {
    f"{n} device{'s' if n > 1 else ''}": functools.partial(on_devices, count=n)
    for n in range(1, count + 1)
  }
  if count == 1:
    print("scaling: there is one device, and nothing to compare it with")
    return 0
  on_cpu = jax.devices()[0].platform == "cpu"
  defaults = {
    "models": "humanoid",
    "worlds": "64" if on_cpu else "8192",
    "steps": 20 if on_cpu else 100,
    "contenders": f"1 device,{list(known)[-1]}",
  }
  return tables.run_table("scaling", __doc__, known=known, defaults=defaults, finish=finish)


if __name__ == "__main__":
  sys.exit(main())
