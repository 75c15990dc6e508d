"""Loading Warp modules while JAX traces, so that the first execution finds them compiled.

`jax_kernel` and `jax_callable` do it for the module of their kernel or function. What a function
launches from other modules is found by `rehearsal.py`.
"""

import enum
from collections.abc import Callable

import jax
import warp as wp


class ModulePreloadMode(enum.IntEnum):
  """Where to load a module when a call is traced."""

  NONE = 0
  """Nowhere; the first execution loads it."""
  CURRENT_DEVICE = 1
  """On JAX's default device."""
  ALL_DEVICES = 2
  """On the CPU and on all CUDA devices of this process."""


JaxModulePreloadMode = ModulePreloadMode


def preload(mode: ModulePreloadMode, load: Callable[[wp.Device], object]) -> None:
  """Calls `load` for the devices of a mode; devices that Warp does not know are left out."""
  devices = {}
  for jax_device in _jax_devices(mode):
    try:
      device = wp.device_from_jax(jax_device)
    except (IndexError, RuntimeError):
      continue
    devices[device.alias] = device
  for device in devices.values():
    load(device)


def _jax_devices(mode: ModulePreloadMode) -> list[jax.Device]:
  if mode == ModulePreloadMode.NONE:
    return []
  if mode == ModulePreloadMode.CURRENT_DEVICE:
    default = jax.config.jax_default_device
    if isinstance(default, str):
      return jax.local_devices(backend=default)[:1]
    return [default if default is not None else jax.local_devices()[0]]
  devices = []
  for backend in ("cpu", "cuda"):
    try:
      devices += jax.local_devices(backend=backend)
    except RuntimeError:  # no such backend here
      continue
  return devices
