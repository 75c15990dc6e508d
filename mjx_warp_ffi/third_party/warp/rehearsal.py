"""Compiling the modules of a body side by side, ahead of its first run.

A body that launches kernels meets their modules one after the other, and Warp compiles each when it
is met. Minutes of that on one core are seconds on many. So the body is run once without launching
anything, which says what it needs.
"""

import collections
import contextlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import warp as wp

from mjx_warp_ffi.third_party.warp import runtime

_MAX_WORKERS = 16  # a compiler takes some hundred megabytes


def compile_modules(body: Callable[[], None], device: wp.Device) -> None:
  """Compiles and loads what a body is about to launch on a device.

  Everything in the body but kernels takes place. A loop or branch that depends on an array is gone
  through once. The caller keeps other threads from launching.

  Args:
    body: Launches Warp work; whatever it does when kernels do nothing, it can do again.
    device: Where it launches.
  """
  needed = collections.defaultdict(set)  # the numbers of threads a block of each module
  with (
    # an error of the run to come, or one of numbers that no kernel has written
    contextlib.suppress(Exception),
    runtime.NoLaunches(lambda module, block_dim: needed[module].add(block_dim)),
  ):
    body()
  with ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_WORKERS)) as pool:
    for loading in [pool.submit(_load, device, *item) for item in needed.items()]:
      loading.result()


def _load(device: wp.Device, module: Any, block_dims: Iterable[int | None]) -> None:
  for block_dim in block_dims:
    module.load(device, block_dim)
