"""Which folder of the package may import from which: rules over the import statements of a file.

Each folder is a house whose rooms stand in an order, from the ground up. A room is a folder or a
file of it, by its name; `TOP` stands for all files and folders that are not named. A file may
import from its own room and from the rooms below it.
"""

import ast
import collections
from collections.abc import Iterator, Sequence

from support.structure import BACKEND, CORE, MJX, Source, imports, starts

TOP = "*"

HOUSES = {
  "mjx_warp_ffi.mjx": ("data", "numerics", "warp", TOP),
  "mjx_warp_ffi.mjx.warp": (
    *("models", "staging", "engine", "ffi", "adjoint", "gradient", "functions"),
  ),
  "mjx_warp_ffi.mjx.warp.adjoint": (
    *("tape", "kinematics", "forces", "actuation", "solve", "constraints", "outputs", "contacts"),
    *("sensors", "request", "rules", "evaluation", "order", "stage", "runge_kutta", "step"),
  ),
  "mjx_warp_ffi.third_party.warp": (
    *("xla_ffi", "runtime", "call", "process", "signature", "native", "calls", "launchers"),
    *("kernels", "program", "callback", "jax_kernel", "jax_callable"),
  ),
}

# They only name what users may import.
_OPEN_DOORS = frozenset({MJX + "__init__.py", CORE + "warp/__init__.py"})

# What a folder of `mjx/` may not import, whatever the order of the rooms, and why.
_DATA = (("mjx_warp_ffi.third_party", "`data/` says what things are and takes no part in calls"),)
_ABOVE = (
  ("mjx_warp_ffi.third_party", "only `mjx/warp/` reaches the FFI core"),
  ("warp", "mjx reaches Warp through mjx/warp only"),
  ("mujoco_warp", "mjx reaches Warp through mjx/warp only"),
)

# Functions of Warp that run something or take memory.
_LAUNCHES = frozenset(
  "launch launch_tiled array zeros empty full clone copy capture_launch".split()
)


def _room(name: str, house: str) -> str | None:
  """The room of a dotted name in a house, None if it is not in it."""
  if not name.startswith(house + "."):
    return None
  room = name.removeprefix(house + ".").split(".")[0]
  return room if room in HOUSES[house] else TOP


def storeys(source: Source) -> Iterator[str]:
  """No import from a room above, in any house that holds the file."""
  if source.path in _OPEN_DOORS:
    return
  module = source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
  for house, order in HOUSES.items():
    room = _room(module, house)
    if room is None:
      continue
    if room not in order:
      yield f"{source.path}: {house} has no place for it; its rooms are {', '.join(order)}"
      continue
    for node, name in imports(source):
      other = _room(name, house)
      if other in order and order.index(other) > order.index(room):
        yield f"{source.at(node)}: {name}: {other} stands above {room}"


def borders_within_mjx(source: Source) -> Iterator[str]:
  """`data/` reads MuJoCo Warp's dataclasses, enums and dtypes; numerics and verbs nothing of it."""
  if not source.path.startswith(MJX) or source.path.startswith((BACKEND, CORE)):
    return
  forbidden = _DATA if source.path.startswith(MJX + "data/") else _ABOVE
  for node, name in imports(source):
    for prefix, reason in forbidden:
      if starts(name, prefix):
        yield f"{source.at(node)}: {name}: {reason}"


def launches_in_data(source: Source) -> Iterator[str]:
  """Nothing in `data/` runs a kernel or makes an array of Warp's."""
  if not source.path.startswith(MJX + "data/"):
    return
  for node, name in imports(source):
    if name.startswith("warp.") and name.removeprefix("warp.") in _LAUNCHES:
      yield f"{source.at(node)}: {name}: `data/` launches nothing"
  for node, name in source.calls():
    if name.removeprefix("warp.").removeprefix("wp.") in _LAUNCHES and name.startswith("w"):
      yield f"{source.at(node)}: {name}: `data/` launches nothing"
    elif starts(name, "mujoco_warp") or starts(name, "mjw"):
      yield f"{source.at(node)}: {name}: `data/` calls nothing of MuJoCo Warp"


def folder_rules(source: Source) -> Iterator[str]:
  """The `__init__.py` of a folder says its rule in a sentence."""
  if source.path.endswith("__init__.py"):
    text = ast.get_docstring(source.tree) or ""
    if not text.rstrip().endswith("."):
      yield f"{source.path}: a folder's rule is a sentence, its docstring"


# Names of modules that stand twice on purpose.
_MEANT = {
  "the inside of a verb has the verb's name": "distance forward render stages support",
  "the address by which pickles name a class, whatever file holds it": "enums smoothing spec types",
  "the command of a verb": "rollout",
}


def names_of_their_own(sources: Sequence[Source]) -> Iterator[str]:
  """No two classes of one name in the package, and no two modules unless it is meant."""
  classes, modules = collections.defaultdict(list), collections.defaultdict(list)
  for source in sources:
    stem = source.path.rpartition("/")[2].removesuffix(".py")
    modules[stem].append(source.path)
    for node in source.nodes:
      if isinstance(node, ast.ClassDef):
        classes[node.name].append(source.path)
  meant = {"__init__", *" ".join(_MEANT.values()).split()}
  for kind, found in (("class", classes), ("module", modules)):
    for name, paths in found.items():
      if len(paths) > 1 and not (kind == "module" and name in meant):
        yield f"two {kind} {name}: {', '.join(paths)}"
