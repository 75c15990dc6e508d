"""jax_enable_x64: float32 stays float32, and the carries of loops keep their types.

CI runs what is here and not slow, in both modes. `make test-x64` runs the whole suite with
JAX_ENABLE_X64=1, and the slow test at the end the files on which the others build.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from support import helpers, worlds


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def x64(request):
  with jax.enable_x64(request.param):
    yield request.param


def _model(name="humanoid", **options):
  return mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path(name))), **options)


def _assert_same_types(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
    name = jax.tree_util.keystr(path)
    assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type), name
    assert x.dtype in (jnp.float32, jnp.int32, jnp.bool_), name


def test_models_and_data_have_the_same_types_in_both_modes(x64):
  m = _model("hand")
  d = mjx.make_data(m)
  for leaf in jax.tree.leaves((m, d)):
    assert leaf.dtype in (jnp.float32, jnp.int32, jnp.bool_) and not leaf.weak_type
  c = mujoco.MjData(m.spec.mj_model)
  mujoco.mj_forward(m.spec.mj_model, c)
  _assert_same_types(mjx.put_data(m.spec.mj_model, c), mjx.put_data(m.spec.mj_model, c))


@pytest.mark.parametrize("autoreset", [False, True])
def test_every_function_keeps_the_types_of_a_carry(x64, autoreset):
  m = _model("hand", autoreset=autoreset)
  d = mjx.make_data(m)
  spec = mujoco.mjtState.mjSTATE_INTEGRATION
  ctrl = np.full(m.nu, 0.1)  # float64, as numpy gives it
  for changed in (
    jax.jit(mjx.step)(m, d),
    jax.jit(mjx.forward)(m, d),
    mjx.reset(m, d),
    mjx.where(jnp.array(True), d, d),
    mjx.set_state(m, d, np.asarray(mjx.get_state(m, d, spec), np.float64), spec),
    d.replace(ctrl=ctrl, qpos=np.asarray(d.qpos, np.float64), eq_active=np.ones(m.neq, np.int64)),
    d.tree_replace({"qvel": np.zeros(m.nv)}),
  ):
    _assert_same_types(changed, d)
  _assert_same_types(jax.jit(mjx.set_const)(m), m)
  _assert_same_types(
    m.tree_replace({"opt.gravity": [0.0, 0.0, -1.0], "body_mass": np.ones(m.nbody)}), m
  )


def test_a_step_is_a_carry_of_scan_while_and_cond(x64):
  m = _model("hopper")
  d = worlds.repeat(mjx.make_data(m), 2)
  step = jax.vmap(mjx.step, (None, 0))

  @jax.jit
  def run(d):
    d = jax.lax.scan(lambda d, u: (step(m, d.replace(ctrl=u)), d.qpos), d, jnp.zeros((3, 2, m.nu)))[
      0
    ]
    d = jax.lax.while_loop(lambda d: d.time[0] < 0.05, lambda d: step(m, d), d)
    return jax.lax.cond(d.time[0] > 0, lambda d: mjx.reset(m, d), lambda d: step(m, d), d)

  _assert_same_types(run(d), d)


def test_the_results_are_the_same_bits_in_both_modes():
  results = []
  for mode in (False, True):
    with jax.enable_x64(mode):
      m = _model("humanoid")
      d = mjx.make_data(m)
      for _ in range(5):
        d = jax.jit(mjx.step)(m, d)
      results.append(jax.tree.map(np.asarray, d))
  for x, y in zip(*map(jax.tree.leaves, results), strict=True):
    np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_the_tests_of_the_step_and_of_batches_pass_with_x64():
  here = helpers.ROOT / "tests" / "mjx"
  names = (
    "step",
    "transforms",
    "io",
    "state",
    "reset",
    "set_const",
    "autoreset",
    "capacity",
    "fd_gradient",
  )
  files = [str(here / f"test_{name}.py") for name in names]
  done = subprocess.run(
    [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *files],
    env={**os.environ, "JAX_ENABLE_X64": "1"},
    capture_output=True,
    text=True,
    cwd=helpers.ROOT,
  )
  assert done.returncode == 0, done.stdout[-3000:]
