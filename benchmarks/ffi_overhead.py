"""What a call costs: this package's `jax_callable` and `jax_kernel` beside Warp's, in one process.

The body launches one kernel on the first array; the other arguments only pass by. The time is that
of a jitted `lax.scan` over the call, less that of a scan without it, a call. Nobody's call takes
less than one of a target whose handler does nothing, nor, where the body runs each time, less than
that and the body; both are in the table, too.

With --alone it is the time of a jitted call on its own until its results are there.

  python benchmarks/ffi_overhead.py --device cpu
  python benchmarks/ffi_overhead.py --device cuda --arguments 4 64 512
  python benchmarks/ffi_overhead.py --device cpu --alone --arguments 4
"""

import argparse
import ctypes
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import warp as wp

from mjx_warp_ffi.third_party import warp as ours
from mjx_warp_ffi.third_party.warp import xla_ffi

PEERS = {"ours": ours.jax_callable, "warp": wp.jax_callable}
_ROUNDS = 6
KERNELS = {"ours": ours.jax_kernel, "warp": wp.jax_kernel}


@wp.kernel(enable_backward=False)
def increment(x: wp.array(dtype=float), y: wp.array(dtype=float)):
  """Adds one."""
  i = wp.tid()
  y[i] = x[i] + 1.0


@wp.kernel(enable_backward=False)
def increment_first(
  x: wp.array(dtype=float),
  a: wp.array(dtype=float),
  y: wp.array(dtype=float),
  b: wp.array(dtype=float),
):
  """Adds one to the first of two arrays; the others pass by."""
  i = wp.tid()
  y[i] = x[i] + 1.0


def make_body(count):
  """Returns a function of `count` annotated arrays, the first half inputs."""
  half = count // 2
  names = [f"a{i}" for i in range(count)]
  scope = {"wp": wp, "increment": increment}
  launch = f"wp.launch(increment, dim=a0.shape, inputs=[a0], outputs=[a{half}])"
  exec(f"def body({', '.join(names)}):\n  {launch}", scope)
  body = scope["body"]
  body.__annotations__ = dict.fromkeys(names, wp.array(dtype=float))
  body.__module__ = __name__
  return body


def seconds(function, args, budget):
  """Returns the shortest time of a run among as many as the budget of seconds allows."""
  jax.block_until_ready(function(args))
  best, end = float("inf"), time.perf_counter() + budget
  while time.perf_counter() < end:
    start = time.perf_counter()
    jax.block_until_ready(function(args))
    best = min(best, time.perf_counter() - start)
  return best


def scan(step, length):
  """Returns a jitted scan of a step over a tuple of arrays."""
  return jax.jit(
    lambda c: jax.lax.scan(lambda c, _: (tuple(step(*c)), None), c, None, length=length)[0]
  )


def call_costs(calls, count, *, device, options):
  """Returns microseconds of calls of `count` arguments in a scan, None for those refused.

  They run in turn, since the speed of a processor comes and goes.
  """
  carry = tuple(jax.device_put(jnp.zeros(8), device) for _ in range(count // 2))
  calls = {"": lambda *c: tuple(x + 1 for x in c), **calls}
  scans, best = {name: scan(call, options.length) for name, call in calls.items()}, {}
  for _ in range(_ROUNDS):
    for name, function in tuple(scans.items()):
      try:
        taken = seconds(function, carry, options.seconds / _ROUNDS)
      except jax.errors.JaxRuntimeError:
        del scans[name]
      else:
        best[name] = min(taken, best.get(name, taken))
  plain = best.pop("")
  return {
    name: 1e6 * (best[name] - plain) / options.length if name in scans else None
    for name in calls
    if name
  }


def checked_costs(calls, count, *, device, options):
  """As `call_costs`, of calls that add one."""
  costs = call_costs(calls, count, device=device, options=options)
  carry = tuple(jax.device_put(jnp.zeros(8), device) for _ in range(count // 2))
  for name, call in calls.items():
    if costs[name] is not None:
      np.testing.assert_array_equal(scan(call, 3)(carry)[0], np.full(8, 3, np.float32))
  return costs


def mode_costs(mode, count, *, device, options):
  """Returns the costs of both packages' callables."""
  # Warp's jax_callable compares the mode by identity, so it gets its own enumeration.
  modes = {"ours": mode, "warp": wp.JaxCallableGraphMode(int(mode))}
  calls = {
    name: make(make_body(count), num_outputs=count // 2, graph_mode=modes[name])
    for name, make in PEERS.items()
  }
  return checked_costs(calls, count, device=device, options=options)


def bare_costs(count, device, budget):
  """Returns microseconds of the Python body alone, and of a replay of its graph."""
  warp_device = wp.device_from_jax(device)
  arrays = [wp.zeros(8, dtype=float, device=warp_device) for _ in range(count)]
  body = make_body(count)

  def repeated(function):
    for _ in range(100):
      function()
    wp.synchronize_device(warp_device)

  with wp.ScopedDevice(warp_device):
    body(*arrays)
    with wp.ScopedCapture() as capture:
      body(*arrays)
    parts = (lambda: body(*arrays)), (lambda: wp.capture_launch(capture.graph))
    return [1e4 * seconds(repeated, part, budget) for part in parts]


@functools.cache
def least_target(count, runs_body):
  """Registers a target with the least handler that Python can have; returns its name."""
  arrays = [wp.zeros(8, dtype=float, device="cpu") for _ in range(count)] if runs_body else []
  body = make_body(count)

  def handler(address):
    extension = xla_ffi.read_frame(address)[xla_ffi.EXTENSION]
    if extension:
      xla_ffi.answer_metadata(extension, xla_ffi.Traits.NONE)
    elif runs_body:
      body(*arrays)

  function = xla_ffi.Handler(handler)
  name = f"ffi_overhead_{count}_{runs_body}"
  address = ctypes.cast(function, ctypes.c_void_p).value
  for platform in ("cpu",) if runs_body else ("cpu", "CUDA"):
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform=platform)
  return name, function  # which must live as long as the target


def least_call(count, runs_body):
  """Returns a function that calls such a target."""
  name, _ = least_target(count, runs_body)
  types = [jax.ShapeDtypeStruct((8,), jnp.float32)] * (count // 2)
  return lambda *args: jax.ffi.ffi_call(name, types)(*args)


def alone(count, device, rounds=30, calls=100):
  """Prints microseconds of calls on their own: medians of alternating runs."""
  args = [jax.device_put(jnp.zeros(8, jnp.float32), device) for _ in range(count // 2)]
  candidates = {}
  if device.platform == "cpu":
    candidates["an empty handler"] = least_call(count, False)
    candidates["a handler that runs the body"] = least_call(count, True)
  for mode in ours.GraphMode:
    for name, make in PEERS.items():
      own = wp.JaxCallableGraphMode(int(mode)) if name == "warp" else mode
      candidates[f"{mode.name}, {name}"] = make(
        make_body(count), num_outputs=count // 2, graph_mode=own
      )
  ready = {}
  for name, function in candidates.items():
    try:
      ready[name] = jax.jit(function)
      jax.block_until_ready(ready[name](*args))
    except jax.errors.JaxRuntimeError:
      del ready[name]
  times = {name: [] for name in ready}
  for _ in range(rounds):
    for name, function in ready.items():
      for _ in range(calls):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times[name].append(time.perf_counter() - start)
  for name, values in times.items():
    print(f"| {count} | {name} | {1e6 * statistics.median(values):.1f} |", flush=True)


def show(mode, count, *, costs):
  """Prints a row."""
  mine, other = costs["ours"], costs["warp"]
  ratio = f"{mine / other:.2f}" if mine and other else ""
  mine, other = ("refused" if cost is None else f"{cost:.1f}" for cost in (mine, other))
  print(f"| {mode} | {count} | {mine} | {other} | {ratio} |", flush=True)


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
  parser.add_argument("--arguments", type=int, nargs="+", default=[4, 64, 512])
  parser.add_argument("--length", type=int, default=100, help="calls in a scan")
  parser.add_argument("--seconds", type=float, default=3.0, help="for each contender of a row")
  parser.add_argument("--alone", action="store_true", help="time calls outside of a scan")
  options = parser.parse_args()
  device = jax.local_devices(backend=options.device)[0]
  print(f"{device.device_kind}, JAX {jax.__version__}, Warp {wp.__version__}; us a call")
  if options.alone:
    print("| arguments | a call by | us |\n|---:|---|---:|")
    for count in options.arguments:
      alone(count, device)
    return
  print("| mode | arguments | ours | Warp's | ratio |")
  print("|---|---:|---:|---:|---:|")
  for mode in ours.GraphMode:
    for count in options.arguments:
      show(mode.name, count, costs=mode_costs(mode, count, device=device, options=options))
  calls = {name: make(increment_first, num_outputs=2) for name, make in KERNELS.items()}
  show("`jax_kernel`", 4, costs=checked_costs(calls, 4, device=device, options=options))
  for count in options.arguments:
    least = {"empty": least_call(count, False)}
    empty = call_costs(least, count, device=device, options=options)["empty"]
    body, replay = bare_costs(count, device, options.seconds)
    print(f"| an empty handler | {count} | {empty:.1f} | | |")
    print(f"| the Python body alone | {count} | {body:.1f} | | |")
    print(f"| a bare replay of its graph | {count} | {replay:.1f} | | |", flush=True)


if __name__ == "__main__":
  main()
