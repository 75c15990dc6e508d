"""Names of FFI targets that mean the same function in every process, or occur in one only.

A compiled program refers to a target by name, and JAX's persistent cache and `jax.export` carry
it to other processes. A name made of what a function does either finds the same function there or
nothing; a counter could find another one.
"""

import hashlib
import threading
import types
import uuid
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import warp as wp

T = TypeVar("T")
_PREFIX = "mjx_warp_ffi"
# What names must not have: a space ends the name in the text of a call.
_LEFT_OUT = str.maketrans("", "", "<> ")


class UnknownContent(Exception):
  """A value that may stand for other content in another process, or later on."""


def describe(value: Any, depth: int = 0) -> str:
  """Returns text that is equal for equal content, in any process.

  Raises:
    UnknownContent: The content of the value, or of what it refers to, is not known to be fixed.
  """
  if depth > 8:
    raise UnknownContent
  if value is None or isinstance(value, bool | int | float | complex | str | bytes):
    return repr(value)
  if isinstance(value, tuple):
    return f"({','.join(describe(item, depth + 1) for item in value)})"
  if isinstance(value, types.ModuleType):
    return value.__name__
  if isinstance(value, type) and "<locals>" not in value.__qualname__:
    return f"{value.__module__}.{value.__qualname__}"
  if isinstance(value, wp.Kernel):
    return f"{kernel_options(value)} {describe(value.func, depth + 1)}"
  if isinstance(value, wp.Function) and value.func is not None:
    return f"function {describe(value.func, depth + 1)}"
  if isinstance(value, types.FunctionType):
    return _describe_function(value, depth)
  raise UnknownContent


def kernel_options(kernel: wp.Kernel) -> str:
  """Returns what tells kernels of one function apart."""
  options = sorted(kernel.options.items())
  order = [kernel.module.options[f"deterministic{x}"] for x in ("", "_max_records")]
  return f"kernel {kernel.module.name} {kernel.key} {kernel.sig} {options} {order}"


def _describe_function(function: types.FunctionType, depth: int) -> str:
  closure = []
  for cell in function.__closure__ or ():
    try:
      content = cell.cell_contents
    except ValueError as error:  # assigned later
      raise UnknownContent from error
    closure.append(describe(content, depth + 1))
  parts = (
    function.__module__,
    function.__qualname__,
    _describe_code(function.__code__),
    describe(function.__defaults__, depth + 1),
    ",".join(closure),
  )
  return "\n".join(parts)


def _describe_code(code: types.CodeType) -> str:
  constants = [
    _describe_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts
  ]
  return f"{code.co_code.hex()} {code.co_names} {constants}"


class TargetNames:
  """Gives each object its target name."""

  def __init__(self):
    """Starts without names."""
    self._lock = threading.Lock()
    self._owners: dict[str, Any] = {}

  def name(self, kind: str, function: Callable[..., Any], *, owner: Any, options: str) -> str:
    """Returns the name of a target.

    Args:
      kind: What the target is, `kernel` for example.
      function: What it runs.
      owner: The object that the name stands for. A second owner of equal content gets a name
        that occurs in this process only, since which of two comes first may differ elsewhere.
      options: Everything else that changes what the target does.
    """
    readable = f"{function.__module__}.{function.__qualname__}".translate(_LEFT_OUT)
    try:
      content = f"{kind}\n{describe(function)}\n{options}"
      name = f"{_PREFIX}.{kind}.{readable}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    except UnknownContent:
      return f"{_PREFIX}.{kind}.{readable}.{uuid.uuid4().hex}"
    with self._lock:
      if self._owners.setdefault(name, owner) is owner:
        return name
    return f"{name}.{uuid.uuid4().hex}"


TARGET_NAMES = TargetNames()


def content_key(function: Callable[..., Any]) -> Hashable:
  """Returns a key that two functions share if they do the same, or else the function itself.

  A function that is defined again in every trace would otherwise be a new one every time.
  """
  try:
    return describe(function), id(getattr(function, "__globals__", None))
  except UnknownContent:
    return function


class Registry(Generic[T]):
  """Objects by key, each made once, from any thread."""

  def __init__(self):
    """Starts empty."""
    self._lock = threading.Lock()
    self._items: dict[Hashable, T] = {}

  def get(self, key: Hashable, make: Callable[[], T]) -> T:
    """Returns the object of a key, made on the first use."""
    with self._lock:
      item = self._items.get(key)
      if item is None:
        item = self._items[key] = make()
      return item

  def values(self) -> tuple[T, ...]:
    """Returns all objects."""
    with self._lock:
      return tuple(self._items.values())

  def __len__(self) -> int:
    """The number of objects."""
    return len(self._items)
