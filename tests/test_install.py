"""The drop-in for mujoco.mjx, its arguments, and the table of its names."""

import enum
import inspect
import re
import subprocess
import sys
import types

import jax
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support.helpers import ROOT, model_path

MIGRATION = ROOT / "docs" / "migrating-from-mjx.md"


def _table() -> dict[str, tuple[str, str]]:
  """By name of mujoco.mjx: whether it is here, and the remark."""
  rows = {}
  for line in MIGRATION.read_text(encoding="utf-8").splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if line.startswith("| `") and len(cells) == 3:
      rows.update((name, (cells[1], cells[2])) for name in re.findall(r"`(\w+)`", cells[0]))
  return rows


def _names_of_mjx() -> dict[str, object]:
  theirs = pytest.importorskip("mujoco.mjx", reason="the extra `peers` is not installed")
  names = {n: getattr(theirs, n) for n in dir(theirs) if not n.startswith("_")}
  return {n: x for n, x in names.items() if not isinstance(x, types.ModuleType)}


def test_the_table_has_every_name_of_mjx_and_no_other():
  assert set(_table()) == set(_names_of_mjx())


def test_the_table_says_what_is_here_and_why_the_rest_is_not():
  for name, (here, remark) in _table().items():
    assert here in ("same", "no"), name
    assert hasattr(mjx, name) == (here == "same"), name
    assert here == "same" or remark, name


def test_functions_take_the_arguments_of_mjx():
  for name, theirs in _names_of_mjx().items():
    ours = getattr(mjx, name, None)
    if ours is None or not inspect.isfunction(theirs):
      continue
    parameters = inspect.signature(ours).parameters
    takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for parameter in inspect.signature(theirs).parameters.values():
      if parameter.kind is parameter.VAR_KEYWORD:
        continue
      known = parameter.name in parameters or takes_more
      assert known, f"{name} lacks {parameter.name}"


def test_enums_have_the_members_of_mjx():
  for name, theirs in _names_of_mjx().items():
    if isinstance(theirs, type) and issubclass(theirs, enum.Enum) and name != "Impl":
      ours = getattr(mjx, name)
      for member in theirs:
        assert ours[member.name] == member.value, f"{name}.{member.name}"
  assert mjx.JointType.FREE.qpos_width() == 7 and mjx.JointType.BALL.dof_width() == 3


DROP_IN = """
import mjx_warp_ffi
mjx_warp_ffi.install()
mjx_warp_ffi.install()
from mujoco import mjx
import mujoco.mjx
import mjx_warp_ffi.mjx as ours
assert mjx is mujoco.mjx
assert mjx.step is ours.step and mjx.Data is ours.Data and "put_model" in dir(mjx)
from mujoco.mjx import make_data
assert make_data is ours.make_data
"""

WITH_ORIGINAL = (
  DROP_IN
  + """
from mujoco.mjx._src import math
assert mjx._src.math.quat_mul is math.quat_mul
assert mjx.ConvexMesh.__module__ == "mujoco.mjx._src.types"
try:
  mjx.nothing_of_this_name
except AttributeError:
  pass
else:
  raise AssertionError
"""
)

WITHOUT_ORIGINAL = (
  """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "mujoco.mjx" else find(name, *a)
"""
  + DROP_IN
  + """
try:
  mjx.ConvexMesh
except AttributeError as error:
  assert "mujoco-mjx is not installed" in str(error)
else:
  raise AssertionError
"""
)


@pytest.mark.parametrize("code", [WITH_ORIGINAL, WITHOUT_ORIGINAL], ids=["with", "without"])
def test_it_takes_the_place_of_mujoco_mjx(code):
  if code is WITH_ORIGINAL:
    _names_of_mjx()
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
  assert done.returncode == 0, done.stderr


def test_arguments_without_a_meaning_here_are_accepted():
  mj_model = mujoco.MjModel.from_xml_path(str(model_path("cartpole")))
  device = jax.devices()[0]
  m = mjx.put_model(mj_model, device, impl="warp", graph_mode=3, batch_sizes={"body_mass": 4})
  assert m.impl.value == "warp" and m.impl is mjx.Impl.WARP
  for d in (
    mjx.make_data(mj_model, device, impl=mjx.Impl.WARP, naconmax=9, naccdmax=4, njmax=8),
    mjx.put_data(mj_model, mujoco.MjData(mj_model), device, dummy_arg_for_batching=None),
    mjx.make_data(m, _full_compat=True, keepalive_refs={}),
  ):
    assert d.impl is mjx.Impl.WARP
    assert mjx.get_data(mj_model, mjx.step(m, d), {}).time == np.float32(mj_model.opt.timestep)
  with pytest.raises(TypeError, match="impl='warp'"):
    mjx.put_model(mj_model, "warp")
  with pytest.raises(TypeError, match="put_model takes no argument gradients"):
    mjx.put_model(mj_model, gradients="fd")
  with pytest.raises(ValueError, match="only implementation"):
    mjx.put_model(mj_model, impl="jax")
