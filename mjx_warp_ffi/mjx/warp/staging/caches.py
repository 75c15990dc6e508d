"""Tells which modules of kernels Warp loads, and frees the caches of programs and workspaces."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

import warp as wp

from mjx_warp_ffi.mjx.warp.staging.counts import COUNTS
from mjx_warp_ffi.third_party.warp import clear_jax_callable_graph_cache, clear_programs

_LOADED = re.compile(r"Module (\S+) .*load on device")


class _Listener:
  """A Warp logger that passes the names of loaded modules on, and all else to the former one."""

  def __init__(self, loaded: Callable[[str], None], others: wp.Logger):
    self._loaded, self._others = loaded, others

  def info(self, message: str) -> None:
    """Takes Warp's messages of loaded modules."""
    match = _LOADED.match(message)
    if match:
      self._loaded(match[1])

  def debug(self, message: str) -> None:
    """Drops Warp's debug messages, for which `listening` does not ask."""

  def warning(self, message: str, category: type | None = None, stacklevel: int = 1) -> None:
    """Passes a warning on."""
    self._others.warning(message, category, stacklevel + 1)

  def error(self, message: str) -> None:
    """Passes an error on."""
    self._others.error(message)


@contextlib.contextmanager
def listening(loaded: Callable[[str], None]) -> Iterator[None]:
  """Calls `loaded` with the name of each Warp module that is compiled or read from the cache."""
  level = wp.config.log_level
  wp.config.log_level = wp.LOG_INFO
  try:
    with wp.ScopedLogger(_Listener(loaded, wp.get_logger())):
      yield
  finally:
    wp.config.log_level = level


def clear() -> None:
  """Frees programs, graphs, workspaces and counts."""
  clear_programs()
  clear_jax_callable_graph_cache()
  COUNTS.clear()
