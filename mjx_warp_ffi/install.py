"""A drop-in for `mujoco.mjx`."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

_NAME = "mujoco.mjx"


class _DropIn(types.ModuleType):
  """This package's mjx, and what only mujoco-mjx has.

  `from mujoco.mjx._src import math` finds mujoco-mjx's files by `__path__`; a name that this
  package lacks is read from mujoco-mjx, which is run only then.
  """

  def __init__(self, original: importlib.machinery.ModuleSpec | None):
    super().__init__(_NAME, "mjx_warp_ffi.mjx in the place of mujoco.mjx.")
    self.__path__ = list(original.submodule_search_locations or []) if original else []
    self.__spec__ = importlib.machinery.ModuleSpec(_NAME, None, is_package=True)
    self._original = original
    self._fallback: types.ModuleType | None = None

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__"):
      raise AttributeError(name)
    from mjx_warp_ffi import mjx

    if hasattr(mjx, name):
      return getattr(mjx, name)
    if self._original is None:
      raise AttributeError(f"mjx_warp_ffi.mjx has no {name!r}, and mujoco-mjx is not installed")
    if self._fallback is None:
      self._fallback = _run(self._original)
    return getattr(self._fallback, name)

  def __dir__(self) -> list[str]:
    from mjx_warp_ffi import mjx

    return sorted({*super().__dir__(), *dir(mjx)})


def _run(spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
  """Runs mujoco-mjx's package under its own name, without registering it."""
  module = importlib.util.module_from_spec(spec)
  assert spec.loader is not None
  spec.loader.exec_module(module)
  return module


def install() -> None:
  """Registers `mjx_warp_ffi.mjx` as `mujoco.mjx`, for what is imported afterwards.

  Call it before importing MuJoCo Playground, Brax or other users of `from mujoco import mjx`.
  Names that this package lacks, `mujoco.mjx._src.math` for example, come from mujoco-mjx if that is
  installed. A second call does nothing.
  """
  import mujoco  # not above: the FFI core is imported without it

  if isinstance(sys.modules.get(_NAME), _DropIn):
    return
  sys.modules.pop(_NAME, None)
  module = _DropIn(importlib.util.find_spec(_NAME))
  sys.modules[_NAME] = module
  setattr(mujoco, "mjx", module)  # noqa: B010 (the type checker knows no such attribute)
