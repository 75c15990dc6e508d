"""The rules of the house as functions: a source file in, the sentences of its violations out.

`test_structure.py` runs them over the repository, and each of them on a source that breaks it.
"""

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator

PACKAGE = "mjx_warp_ffi/"
CORE = PACKAGE + "third_party/"
MJX = PACKAGE + "mjx/"
BACKEND = MJX + "warp/"
CLI = PACKAGE + "cli/"

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CALLBACK_LINES = 20
MAX_PARAMETERS = 8
MAX_POSITIONAL = 2

# Functions whose argument names and order are those of a function they stand in for.
UPSTREAM_SIGNATURES = frozenset(
  {
    "jax_kernel",  # warp
    "jax_callable",  # warp
    "register_ffi_callback",  # warp
    "put_data",  # mujoco.mjx
    *("get_data", "get_data_into"),  # mujoco.mjx
    "transition_fd",  # mujoco
    "get_state",  # mujoco
    "set_state",  # mujoco
    "rollout",  # mujoco.rollout
    "step_jvp",  # jax.jvp, after the model and the data
    "integrate",  # mj_integratePos
    "difference",  # mj_differentiatePos
    "reset",  # mujoco_warp
    "rne",  # mujoco.mjx
    "where",  # jax.numpy
    *("rne", "mul_m", "jac", "apply_ft", "contact_force", "ray", "ray_normal"),  # mujoco.mjx
    *("id2name", "name2id"),  # mujoco.mjx
    *("render", "render_with_segmentation", "refit_bvh"),  # mujoco.mjx
    *("get_rgb", "get_depth", "get_segmentation"),  # mujoco.mjx
    *("jac_body", "jac_body_com", "jac_site", "jac_geom"),  # as jac
    "geom_distance",  # mujoco
  }
)

# The module-level state that there is: what XLA calls by name, and one bounded cache.
REGISTRIES = frozenset({"_targets", "_registries", "_layouts"})

_C_FUNCTION = re.compile(r"CFUNCTYPE|\bHandler$")
_CONTAINERS = frozenset(
  "dict list set defaultdict OrderedDict Counter deque WeakValueDictionary".split()
)
_MUTATORS = frozenset(
  "append extend insert add update setdefault pop popitem clear remove discard".split()
)


@dataclasses.dataclass(frozen=True)
class Source:
  """A Python file by its path in the repository."""

  path: str
  text: str

  @functools.cached_property
  def tree(self) -> ast.Module:
    return ast.parse(self.text, self.path)

  @property
  def nodes(self) -> Iterator[ast.AST]:
    return ast.walk(self.tree)

  @property
  def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in self.nodes:
      if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node

  def calls(self) -> Iterator[tuple[ast.Call, str]]:
    """Every call, with the name of what is called as it is spelt."""
    for node in self.nodes:
      if isinstance(node, ast.Call):
        yield node, ast.unparse(node.func)

  def at(self, node: ast.AST) -> str:
    return f"{self.path}:{getattr(node, 'lineno', 1)}"


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
  return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_warp_code(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
  """True of Warp kernels and functions: Warp's language has no keyword arguments."""
  return any(re.match(r"(wp|warp)\.", ast.unparse(d)) for d in node.decorator_list)


def plain_additions(source: Source) -> Iterator[str]:
  """In Warp `array[i] += x` is an atomic addition, six of them for a spatial vector."""
  for node in source.functions:
    if not _is_warp_code(node):
      continue
    names = {arg.arg for arg in node.args.args}
    for inner in ast.walk(node):
      if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Subscript):
        owner = inner.target.value
        if not isinstance(owner, ast.Name) or owner.id in names:
          yield f"{source.at(inner)}: {node.name}: write x[i] = x[i] + y, or wp.atomic_add"


def file_size(source: Source) -> Iterator[str]:
  lines = len(source.text.splitlines())
  if lines > MAX_FILE_LINES:
    yield f"{source.path}: {lines} lines, at most {MAX_FILE_LINES}"


def function_size(source: Source) -> Iterator[str]:
  for node in source.functions:
    if _lines(node) > MAX_FUNCTION_LINES:
      limit = f"{_lines(node)} lines, at most {MAX_FUNCTION_LINES}"
      yield f"{source.at(node)}: {node.name} has {limit}"


def callback_size(source: Source) -> Iterator[str]:
  """The functions that XLA calls are those that a ctypes function type wraps."""
  wrapped = set()
  for node in source.nodes:
    if isinstance(node, ast.Call) and _C_FUNCTION.search(ast.unparse(node.func)):
      wrapped.update(re.findall(r"\w+", " ".join(map(ast.unparse, node.args))))
  for node in source.functions:
    is_wrapped = any(_C_FUNCTION.search(ast.unparse(d)) for d in node.decorator_list)
    if (is_wrapped or node.name in wrapped) and _lines(node) > MAX_CALLBACK_LINES:
      limit = f"{_lines(node)} lines, at most {MAX_CALLBACK_LINES}"
      yield f"{source.at(node)}: the C callback {node.name} has {limit}"


# What a method is of, and the recording that every part of the backward pass writes to.
_OWNERS = frozenset({"self", "cls", "rec"})


def parameters(source: Source) -> Iterator[str]:
  """At most 8, without the owner; keyword-only after the second in public functions and methods."""
  public = {id(n) for n in source.tree.body}
  for node in source.tree.body:
    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
      public.update(id(n) for n in node.body)
  for node in source.functions:
    if _is_warp_code(node) or node.name in UPSTREAM_SIGNATURES:
      continue
    positional = [a.arg for a in node.args.posonlyargs + node.args.args]
    positional = [name for name in positional if name not in _OWNERS]
    count = len(positional) + len(node.args.kwonlyargs)
    if count > MAX_PARAMETERS:
      yield f"{source.at(node)}: {node.name} has {count} parameters, at most {MAX_PARAMETERS}"
    is_public = id(node) in public and not node.name.startswith("_")
    if is_public and len(positional) > MAX_POSITIONAL:
      extra = ", ".join(positional[MAX_POSITIONAL:])
      yield f"{source.at(node)}: {node.name}: make {extra} keyword-only"


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
  """Every module or attribute path that the file imports or spells out, absolute."""
  parts = source.path.removesuffix(".py").split("/")
  for node in source.nodes:
    if isinstance(node, ast.Import):
      yield from ((node, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      base = ".".join(parts[: -node.level]) if node.level else ""
      module = ".".join(filter(None, [base, node.module or ""]))
      yield from ((node, f"{module}.{alias.name}") for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
      if node.args and isinstance(node.args[0], ast.Constant):
        yield node, str(node.args[0].value)
    elif isinstance(node, ast.Attribute) and node.attr == "_src":
      spelled = re.sub(r"^wp\.", "warp.", ast.unparse(node))
      yield node, re.sub(r"^mjw\.", "mujoco_warp.", spelled)


def starts(name: str, prefix: str) -> bool:
  return name == prefix or name.startswith(prefix + ".")


# (a prefix of the imported name, where it may stand, why not elsewhere)
_BORDERS = (
  ("jax._src", (), "JAX's private modules change without notice"),
  ("warp._src", (CORE + "warp/runtime.py",), "one file holds the private calls to Warp"),
  ("mujoco_warp._src", (BACKEND, MJX + "data/"), "only the backend knows MuJoCo Warp's inside"),
  ("mujoco.mjx", (PACKAGE + "install.py", CLI + "peers.py"), "mujoco-mjx is optional"),
)


def import_borders(source: Source) -> Iterator[str]:
  for node, name in imports(source):
    for prefix, allowed, reason in _BORDERS:
      if starts(name, prefix) and not source.path.startswith(allowed):
        yield f"{source.at(node)}: {name}: {reason}"
    if source.path.startswith(CORE) and starts(name, "mjx_warp_ffi.mjx"):
      yield f"{source.at(node)}: {name}: the FFI core knows nothing of mjx"
  if not source.path.endswith("third_party/warp/xla_ffi.py"):
    for node in source.nodes:
      if isinstance(node, ast.ClassDef) and "Structure" in map(_last, node.bases):
        yield f"{source.at(node)}: C structs are in xla_ffi.py only"


def lazy_mjx_import(source: Source) -> Iterator[str]:
  """mujoco-mjx is optional: no module imports it while it is being imported itself."""
  for node in source.tree.body:
    text = ast.unparse(node) if isinstance(node, ast.Import | ast.ImportFrom) else ""
    if re.search(r"\bmujoco\.mjx\b|from mujoco import (.*, )?mjx\b", text):
      yield f"{source.at(node)}: import mujoco.mjx inside the function that needs it"


def _last(node: ast.expr) -> str:
  return ast.unparse(node).rpartition(".")[2]


def init_reexports(source: Source) -> Iterator[str]:
  if not source.path.endswith("__init__.py"):
    return
  for node in source.tree.body:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
      continue  # the docstring
    if isinstance(node, ast.ImportFrom) and all(a.asname == a.name for a in node.names):
      continue
    yield f"{source.at(node)}: an __init__.py holds only `from x import y as y`"


def no_print(source: Source) -> Iterator[str]:
  for node in source.nodes:
    if isinstance(node, ast.Call) and ast.unparse(node.func) in (
      "print",
      "pprint",
      "wp.print",
      "wp.printf",
      "sys.stdout.write",
      "sys.stderr.write",
      "jax.debug.print",
    ):
      yield f"{source.at(node)}: {ast.unparse(node.func)} in the package"


def _is_container(value: ast.expr | None) -> bool:
  if isinstance(value, ast.Call):
    return _last(value.func) in _CONTAINERS
  return isinstance(
    value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp
  )


def _mutated(source: Source) -> set[str]:
  """The names that the file changes in place."""
  names = set()
  for node in source.nodes:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
      names.add(ast.unparse(node.value))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
      if node.func.attr in _MUTATORS:
        names.add(ast.unparse(node.func.value))
    elif isinstance(node, ast.AugAssign):
      names.add(ast.unparse(node.target))
  return names


def module_globals(source: Source) -> Iterator[str]:
  """Containers at module level are constants in capitals that nothing changes, or registries."""
  mutated = _mutated(source)
  for node in source.tree.body:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_container(node.value):
      continue
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
      name = ast.unparse(target)
      if name not in REGISTRIES and (name in mutated or not name.isupper()):
        yield f"{source.at(node)}: mutable module global {name}"
  for node in source.nodes:
    if isinstance(node, ast.Global):
      yield f"{source.at(node)}: global {', '.join(node.names)}"


def docstrings(source: Source) -> Iterator[str]:
  if not ast.get_docstring(source.tree):
    yield f"{source.path}: the module has no docstring"
  for node in source.tree.body:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
      if not node.name.startswith("_") and not ast.get_docstring(node):
        yield f"{source.at(node)}: {node.name} has no docstring"


def notebook(path: str, cells: list[dict]) -> Iterator[str]:
  """At most 25 cells; what a cell defines is short, and nothing private is imported."""
  if len(cells) > 25:
    yield f"{path}: {len(cells)} cells, at most 25"
  for index, cell in enumerate(cells):
    if cell["cell_type"] != "code":
      continue
    text = "".join(cell["source"])
    source = Source(f"{path}[{index}]", re.sub(r"^\s*[%!].*$", "", text, flags=re.MULTILINE))
    for node in source.functions:
      if _lines(node) > 25:
        yield f"{source.at(node)}: {node.name} is library code: {_lines(node)} lines, at most 25"
    for node, name in imports(source):
      if "_src" in name.split(".") or name.startswith("mjx_warp_ffi.mjx.warp"):
        yield f"{source.at(node)}: {name} is private"


EVERYWHERE = (file_size, function_size)
IN_PACKAGE = (
  *EVERYWHERE,
  plain_additions,
  callback_size,
  parameters,
  import_borders,
  lazy_mjx_import,
  init_reexports,
  no_print,
  module_globals,
  docstrings,
)
