"""Many steps in chunks that change all the time, while nothing grows.

Every chunk takes another batch size, another model, a fresh lambda, and either donates its worlds
or keeps its outputs. Programs, host memory and device memory are measured after each round; the
script fails if they grow in the second half of the run. In the first, XLA's and the allocator's own
pools fill.

Examples:
  python benchmarks/soak.py                              # 100,000 steps of a small model
  python benchmarks/soak.py --model humanoid --steps 20000 --sizes 64,256,1024
"""

import argparse
import gc
import os
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import mujoco
import warp as wp

from mjx_warp_ffi import mjx
from mjx_warp_ffi.third_party.warp import live_programs

MODELS = pathlib.Path(__file__).resolve().parents[1] / "models"
MEGABYTE = 1 << 20


def parse(argv: list[str] | None) -> argparse.Namespace:
  """The options of the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--model", default="hopper", help="a model in models/")
  parser.add_argument("--steps", type=int, default=100_000, help="steps in all")
  parser.add_argument("--chunk", type=int, default=200, help="steps of a chunk")
  parser.add_argument("--sizes", default="1,3,8,16,5", help="batch sizes, in turn")
  parser.add_argument("--limit", type=float, default=10.0, help="growth allowed, in MB")
  return parser.parse_args(argv)


def host_memory() -> int:
  """Bytes of this process in memory."""
  with open("/proc/self/statm") as file:
    return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def device_memory() -> int:
  """Bytes that JAX and Warp hold on the GPU; zero on a CPU."""
  if not wp.is_cuda_available():
    return 0
  device = wp.get_device("cuda:0")
  return device.total_memory - device.free_memory


def chunk(model: mjx.Model, worlds: mjx.Data, *, steps: int, donate: bool) -> tuple:
  """Some steps by a function that exists for this call alone."""
  run = jax.jit(
    lambda m, d: jax.lax.scan(
      lambda d, _: (jax.vmap(mjx.step, (None, 0))(m, d), d.qpos[:, 0]), d, None, steps
    ),
    donate_argnums=1 if donate else (),
  )
  return run(model, worlds)


def measure() -> dict[str, float]:
  """What should not grow."""
  gc.collect()
  return {
    "programs": live_programs("step"),
    "host MB": host_memory() / MEGABYTE,
    "device MB": device_memory() / MEGABYTE,
    "live arrays": len(jax.live_arrays()),
  }


def main(argv: list[str] | None = None) -> int:
  """Runs it; 1 if something grew."""
  args = parse(argv)
  wp.config.log_level = wp.LOG_WARNING
  mj_model = mujoco.MjModel.from_xml_path(str(MODELS / f"{args.model}.xml"))
  nominal = mjx.put_model(mj_model, autoreset=True)
  fresh = mjx.make_data(nominal)
  sizes = [int(size) for size in args.sizes.split(",")]
  rounds = max(2, args.steps // (args.chunk * len(sizes)))
  kept, rows, start = [], [], time.perf_counter()
  for i in range(rounds):
    for size in sizes:
      mass = nominal.body_mass * (1 + 0.2 * (i % 5))
      worlds = jax.tree.map(lambda x, n=size: jnp.broadcast_to(x, (n, *x.shape)), fresh)
      worlds, trace = chunk(
        nominal.replace(body_mass=mass), worlds, steps=args.chunk, donate=i % 2 == 1
      )
      kept = [*kept[-4:], trace]
      del worlds
    jax.block_until_ready(kept)
    if i % 10 == 9:
      jax.clear_caches()  # XLA keeps a program for each fresh lambda
    rows.append(measure())
    if i in (0, rounds - 1) or (i + 1) % max(1, rounds // 10) == 0:
      values = "  ".join(f"{name} {value:.0f}" for name, value in rows[-1].items())
      print(f"{(i + 1) * len(sizes) * args.chunk:>8} steps  {values}", flush=True)
  early, last = rows[rounds // 2], rows[-1]
  print(f"{time.perf_counter() - start:.0f} s")
  grown = [n for n in ("host MB", "device MB") if last[n] - early[n] > args.limit]
  grown += [n for n in ("programs", "live arrays") if last[n] > early[n]]
  if grown:
    print(f"grown: {', '.join(grown)}: from {early} to {last}", file=sys.stderr)
  return 1 if grown else 0


if __name__ == "__main__":
  sys.exit(main())
