"""Warm starts, cleared caches, and memory that stays flat."""

import gc
import os
import time

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi import mjx
from mjx_warp_ffi.third_party.warp import live_programs
from support import helpers, worlds


def _model(name="hopper"):
  return mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path(name))))


def _batch(m, nworld):
  return worlds.repeat(mjx.make_data(m), nworld)


def _resident():
  """Bytes of this process in memory."""
  with open("/proc/self/statm") as file:
    return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_warm_start_leaves_only_xla_to_do(monkeypatch):
  m = _model()
  mjx.clear_caches()
  assert live_programs("step") == 0
  assert mjx.warmup(m, 5, progress=False) > 0
  assert live_programs("step") == 1

  def no_module(*args, **kwargs):
    raise AssertionError("a module was loaded after the warm start")

  monkeypatch.setattr(wp, "put_model", no_module, raising=False)
  monkeypatch.setattr("mujoco_warp.put_model", no_module)
  monkeypatch.setattr("mujoco_warp.make_data", no_module)
  run = jax.jit(
    lambda d: jax.lax.scan(lambda d, _: (jax.vmap(mjx.step, (None, 0))(m, d), None), d, None, 3)[0]
  )
  assert jnp.isfinite(run(_batch(m, 5)).qpos).all()
  assert live_programs("step") == 1


def test_a_warm_start_covers_randomized_models_and_other_functions():
  m = _model()
  mjx.clear_caches()
  batch = m.replace(body_mass=jnp.repeat(m.body_mass[None], 3, 0))
  mjx.warmup(batch, 3, functions=(mjx.step, mjx.forward), progress=False)
  assert live_programs("step") == live_programs("forward") == 1
  jax.jit(jax.vmap(mjx.step, (mjx.model_axes(batch), 0)))(batch, _batch(m, 3))
  assert live_programs("step") == 1
  with pytest.raises(ValueError, match="nworld=4"):
    mjx.warmup(batch, 4, progress=False)


def test_the_progress_bar_goes_to_stderr_and_nothing_to_stdout(capfd):
  mjx.warmup(_model(), 2)
  assert capfd.readouterr().out == ""


def test_cleared_caches_are_made_anew_with_the_same_results():
  m = _model()
  step = jax.jit(mjx.step)
  first = step(m, mjx.make_data(m))
  mjx.clear_caches()
  assert live_programs("step") == 0
  again = step(m, mjx.make_data(m))
  for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
    np.testing.assert_array_equal(x, y)


def test_new_parameters_and_new_functions_make_no_new_programs():
  m = _model()
  d = mjx.make_data(m)
  mjx.clear_caches()
  for i in range(20):
    model = m.replace(body_mass=m.body_mass * (1 + 0.1 * i))
    jax.block_until_ready(jax.jit(lambda m, d: mjx.step(m, d))(model, d))
  equal = mjx.put_model(m.spec.mj_model)
  jax.block_until_ready(jax.jit(mjx.step)(equal, d))
  assert live_programs("step") == 1


@pytest.mark.slow
def test_changing_batch_sizes_stay_within_the_bound_of_the_cache():
  m = _model("double_pendulum")
  mjx.clear_caches()
  step = jax.jit(jax.vmap(mjx.step, (None, 0)))
  for nworld in range(1, 36):
    jax.block_until_ready(step(m, _batch(m, nworld)))
  assert live_programs("step") <= 32


def test_host_memory_stays_flat_over_many_steps():
  m = _model("double_pendulum")
  d = _batch(m, 4)
  run = jax.jit(
    lambda d: jax.lax.scan(lambda d, _: (jax.vmap(mjx.step, (None, 0))(m, d), None), d, None, 500)[
      0
    ],
    donate_argnums=0,
  )
  for _ in range(4):
    d = jax.block_until_ready(run(d))
  gc.collect()
  before = _resident()
  for _ in range(40):
    d = jax.block_until_ready(run(d))
  gc.collect()
  # 20,000 steps; one leaked pointer a step would be 160 kB, one leaked buffer much more
  assert _resident() - before < 2e6


def test_tracing_and_lowering_a_step_takes_a_third_of_the_time_of_mujoco_mjx():
  peer = pytest.importorskip("mujoco.mjx", reason="mujoco-mjx is not installed")
  mj_model = _model("humanoid").spec.mj_model

  def seconds(package, **options):
    m = package.put_model(mj_model, **options)
    d = worlds.repeat(package.make_data(mj_model, **options), 8)
    times = []
    for _ in range(3):

      def fresh(m, d):
        return jax.vmap(package.step, (None, 0))(m, d)

      start = time.process_time()  # other processes do not count
      jax.jit(fresh).lower(m, d)
      times.append(time.process_time() - start)
    return min(times)

  with jax.numpy_dtype_promotion("standard"):  # the peer mixes types
    assert seconds(mjx) < seconds(peer, impl="jax") / 3
