"""Whether a kernel may be launched once over a folded batch axis.

Under `jax.vmap` the batch axes of all arrays are in front. A kernel whose first thread index is
used only as the first index of each of its arrays cannot tell a batch of launches from one launch
over the folded axis. Any other kernel is launched once for each batch entry: it might read a
neighbour, a shape or the index itself.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_INDEXED_CALLS = ("atomic_", "load", "store")


def foldable(function: Callable[..., Any], arrays: Sequence[str]) -> bool:
  """Returns whether the first thread index is only the first index of the named arrays.

  Args:
    function: the Python function of a kernel.
    arrays: names of its array arguments.
  """
  try:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
  except (OSError, TypeError, SyntaxError, IndentationError):
    return False
  index = _thread_index(tree)
  if index is None:
    return False
  allowed = set()
  for base, first in _indexings(tree):
    if _is_name(base, arrays) and _is_name(first, (index,)):
      allowed |= {id(base), id(first)}
  for node in ast.walk(tree):
    if isinstance(node, ast.Name) and node.id in (index, *arrays) and id(node) not in allowed:
      if not (node.id == index and isinstance(node.ctx, ast.Store)):
        return False
  return True


def _is_name(node: ast.AST, names: Sequence[str]) -> bool:
  return isinstance(node, ast.Name) and node.id in names


def _called(node: ast.AST) -> str:
  """Returns the last part of the name of a called function."""
  return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _thread_index(tree: ast.AST) -> str | None:
  """Returns the name that only ever holds the first thread index."""
  names, calls, stores = set(), 0, []
  for node in ast.walk(tree):
    calls += _called(node) == "tid"
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
      stores.append(node.id)
    if isinstance(node, ast.Assign) and _called(node.value) == "tid" and len(node.targets) == 1:
      target = node.targets[0]
      names.add(ast.unparse(target.elts[0] if isinstance(target, ast.Tuple) else target))
  if calls != 1 or len(names) != 1:
    return None
  (name,) = names
  return name if stores.count(name) == 1 else None


def _indexings(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
  """Yields each indexed expression with its first index."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Subscript):
      yield node.value, node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
    elif isinstance(node, ast.Call) and _called(node).startswith(_INDEXED_CALLS):
      if len(node.args) > 1:
        yield node.args[0], node.args[1]
