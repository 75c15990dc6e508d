"""Every folder keeps its rule: what it may import, and what its `__init__.py` says."""

import importlib
import re

import pytest

from mjx_warp_ffi.mjx.warp.adjoint.rules.parts import PARTS
from support import storeys
from support.helpers import ROOT
from support.structure import BACKEND, CORE, MJX, Source

RULES = (
  storeys.storeys,
  storeys.borders_within_mjx,
  storeys.launches_in_data,
  storeys.folder_rules,
)
ADJOINT = BACKEND + "adjoint/"
MJX_NAME, WARP = "mjx_warp_ffi.mjx", "mjx_warp_ffi.third_party.warp"


def package() -> list[Source]:
  paths = sorted((ROOT / "mjx_warp_ffi").rglob("*.py"))
  assert len(paths) > 100
  return [Source(p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8")) for p in paths]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule):
  found = [violation for source in package() for violation in rule(source)]
  assert not found, "\n".join(found)


def test_classes_and_modules_have_names_of_their_own():
  found = list(storeys.names_of_their_own(package()))
  assert not found, "\n".join(found)


def test_a_name_that_stands_twice_is_found():
  one, two = Source("a/b.py", "class A: pass"), Source("c/d.py", "class A: pass")
  assert list(storeys.names_of_their_own([one, two])) == ["two class A: a/b.py, c/d.py"]
  (found,) = storeys.names_of_their_own([one, Source("c/b.py", "")])
  assert found.startswith("two module b")
  verbs = [Source("mjx/render.py", ""), Source("mjx/warp/functions/render.py", "")]
  assert not list(storeys.names_of_their_own(verbs))


def test_every_folder_and_file_of_a_house_is_named_or_stands_on_top():
  for house, order in storeys.HOUSES.items():
    folder = ROOT / house.replace(".", "/")
    there = {p.stem for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    named = set(order) - {storeys.TOP, "engine"}  # the engine is to come
    assert named <= there, f"{house} has no {', '.join(sorted(named - there))}"


BAD = [
  ("storeys", MJX + "data/a.py", f"from {MJX_NAME} import numerics", "numerics stands above data"),
  ("storeys", MJX + "numerics/a.py", f"from {MJX_NAME}.warp import ffi", "warp stands above"),
  ("storeys", BACKEND + "ffi.py", f"from {MJX_NAME} import io", "stands above warp"),
  ("storeys", BACKEND + "models/a.py", f"import {MJX_NAME}.warp.staging.plan", "staging stands"),
  ("storeys", BACKEND + "ffi.py", f"from {MJX_NAME}.warp.adjoint import step", "above ffi"),
  ("storeys", BACKEND + "cellar/a.py", "x = 1", "has no place for it"),
  ("storeys", ADJOINT + "tape/a.py", f"from {MJX_NAME}.warp.adjoint.forces import x", "above tape"),
  ("storeys", ADJOINT + "contacts/a.py", f"from {MJX_NAME}.warp.adjoint import stage", "above con"),
  (
    "storeys",
    CORE + "warp/calls/a.py",
    f"from {WARP} import program",
    "program stands above calls",
  ),
  ("storeys", CORE + "warp/native/a.py", f"from {WARP}.launchers import x", "above native"),
  ("storeys", MJX + "data/__init__.py", f"from {MJX_NAME}.warp import ffi as ffi", "above data"),
  ("storeys", ADJOINT + "tape/__init__.py", f"import {MJX_NAME}.warp.adjoint.forces", "above tape"),
  ("launches_in_data", MJX + "data/a.py", "from warp import launch", "launches nothing"),
  ("borders_within_mjx", MJX + "data/a.py", f"from {WARP} import x", "takes no part in calls"),
  ("borders_within_mjx", MJX + "numerics/a.py", "import mujoco_warp", "through mjx/warp only"),
  ("borders_within_mjx", MJX + "numerics/a.py", "import warp as wp", "through mjx/warp only"),
  ("borders_within_mjx", MJX + "a.py", "import warp as wp", "through mjx/warp only"),
  ("borders_within_mjx", MJX + "a.py", "from mujoco_warp import step", "through mjx/warp only"),
  ("borders_within_mjx", MJX + "a.py", f"from {WARP} import x", "only `mjx/warp/` reaches"),
  ("launches_in_data", MJX + "data/a.py", "wp.launch(k, 1)", "launches nothing"),
  ("launches_in_data", MJX + "data/a.py", "x = wp.zeros(3)", "launches nothing"),
  ("launches_in_data", MJX + "data/a.py", "mjw.put_model(m)", "calls nothing of MuJoCo Warp"),
  ("folder_rules", "a/__init__.py", "from .a import b as b", "rule is a sentence"),
  ("folder_rules", "a/__init__.py", "'''TODO'''", "rule is a sentence"),
]


@pytest.mark.parametrize(("rule", "path", "text", "found"), BAD)
def test_a_source_that_breaks_a_rule_is_found(rule, path, text, found):
  violations = list(getattr(storeys, rule)(Source(path, text)))
  assert len(violations) == 1, violations
  assert found in violations[0]


GOOD = [
  ("storeys", MJX + "a.py", f"from {MJX_NAME}.warp.functions import x"),
  ("storeys", MJX + "warp/functions/a.py", f"from {MJX_NAME}.data import types"),
  ("storeys", ADJOINT + "stage.py", f"from {MJX_NAME}.warp.adjoint.rules import x"),
  (
    "storeys",
    ADJOINT + "contacts/geometry/a.py",
    f"from {MJX_NAME}.warp.adjoint.contacts import x",
  ),
  ("borders_within_mjx", MJX + "data/a.py", "import mujoco_warp as mjw\nimport warp as wp"),
  ("launches_in_data", MJX + "data/a.py", "x = np.zeros(3)\nwp.types.type_size(x)"),
  ("launches_in_data", BACKEND + "a.py", "wp.launch(k, 1)"),
]


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_a_source_that_keeps_a_rule_passes(rule, path, text):
  assert not list(getattr(storeys, rule)(Source(path, text)))


def test_every_part_is_among_those_whose_rules_are_united():
  """A part that nobody lists would be refused in silence, or not at all."""
  parts = {id(part) for part in PARTS}
  folder = ROOT / ADJOINT
  for path in folder.rglob("*.py"):
    names = re.findall(r"^(PART|FORCE|OUTPUT) = \w+\(", path.read_text(encoding="utf-8"), re.M)
    module = path.relative_to(ROOT).as_posix().removesuffix(".py").replace("/", ".")
    for name in names:
      assert id(getattr(importlib.import_module(module), name)) in parts, f"{module}.{name}"


def test_every_rule_has_a_source_that_breaks_it():
  assert {rule.__name__ for rule in RULES} == {rule for rule, *_ in BAD}
