"""Compiling the modules that a function launches kernels of side by side, ahead of its first run.

A function (the body of a program) meets modules one after the other, and Warp compiles each when it
is met. Minutes of that on one core are seconds on many. So the body is run once with its launches
turned off, which tells the modules that it needs. The staged launchers do that for a program that
allows it.
"""

import collections
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp import runtime

_LOG = logging.getLogger(__name__)
_MAX_WORKERS = 16  # a compiler takes some hundred megabytes


def compile_modules(body: Callable[[], None], device: wp.Device) -> None:
  """Compiles and loads what a body is about to launch on a device.

  Everything in the body but kernels takes place: what it fills or copies may stay, so that a run
  must not depend on what an earlier one left. A loop or branch that depends on an array is gone
  through once. The caller keeps other threads from launching.

  Args:
    body: Launches Warp work; whatever it does when kernels do nothing, it can do again.
    device: Where it launches.
  """
  needed = collections.defaultdict(set)  # the numbers of threads a block of each module
  with runtime.NoLaunches(lambda module, block_dim: needed[module].add(block_dim)):
    try:
      body()
    except Exception:  # of the run to come, or of numbers that no kernel has written
      _LOG.debug("a rehearsal ended early; the other modules compile in the run", exc_info=True)
  with ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_WORKERS)) as pool:
    for module, block_dims in needed.items():
      pool.submit(_load, device, module, block_dims)  # the run raises what goes wrong


def _load(device: wp.Device, module: Any, block_dims: Iterable[int | None]) -> None:
  for block_dim in block_dims:
    module.load(device, block_dim)
