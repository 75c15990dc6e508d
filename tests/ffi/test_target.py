"""Targets: their names, their registries, the threads and devices that call them."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp
from jax.sharding import PartitionSpec as P

from mjx_warp_ffi.third_party import warp as ffi
from mjx_warp_ffi.third_party.warp.calls import target
from support.ffi_helpers import DEVICES, MODES, local_device, run_python, scale, scaled, sums


@pytest.fixture(params=MODES, ids=lambda mode: mode.name)
def mode(request):
  return request.param


@pytest.fixture(autouse=True)
def no_graphs_left():
  yield
  ffi.clear_jax_callable_graph_cache()


# ---------------------------------------------------------------------- wrappers and targets


def test_equal_arguments_give_the_same_object_and_any_other_option_another():
  base = {"graph_mode": ffi.GraphMode.NONE}
  first = ffi.jax_callable(sums, 2, **base)
  assert ffi.jax_callable(sums, num_outputs=2, **base) is first
  others = [
    ffi.jax_callable(sums, 1, **base),
    ffi.jax_callable(sums, 2, graph_mode=ffi.GraphMode.WARP_STAGED),
    ffi.jax_callable(sums, 2, **base, vmap_method="sequential"),
    ffi.jax_callable(sums, 2, **base, output_dims=3),
    ffi.jax_callable(sums, 2, **base, output_dims={"total": 3, "double": 3}),
    ffi.jax_callable(sums, 2, **base, in_out_argnames=["y"]),
    ffi.jax_callable(sums, 2, **base, stage_in_argnames=["x"]),
    ffi.jax_callable(sums, 2, **base, stage_out_argnames=["total"]),
    ffi.jax_callable(sums, 2, **base, module_preload_mode=ffi.ModulePreloadMode.NONE),
    ffi.jax_callable(sums, 2, **base, has_side_effect=True),
  ]
  assert len({first.name, *(other.name for other in others)}) == 11


def test_retraces_register_nothing_new():
  @jax.jit
  def f(x, n):
    def local(x: wp.array(dtype=float), y: wp.array(dtype=float)):
      wp.launch(scale, dim=x.shape, inputs=[x, 2.0], outputs=[y])

    return ffi.jax_callable(local, graph_mode=ffi.GraphMode.WARP_STAGED)(x)[0] + n.shape[0]

  f(jnp.ones(4, jnp.float32), jnp.zeros(100, jnp.float32))
  before = target.registered()
  for i in range(1, 40):
    np.testing.assert_array_equal(
      f(jnp.ones(4, jnp.float32), jnp.zeros(i, jnp.float32)), np.full(4, 2.0 + i)
    )
  assert target.registered() == before


def test_closures_of_different_content_are_different_targets():
  def make(factor):
    def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
      wp.launch(scale, dim=x.shape, inputs=[x, factor], outputs=[y])

    return ffi.jax_callable(body)

  assert make(2.0) is make(2.0)
  assert make(2.0).name != make(3.0).name
  np.testing.assert_array_equal(make(3.0)(jnp.ones(4, jnp.float32))[0], np.full(4, 3.0))


# ------------------------------------------------------------------------- threads and devices


def test_many_threads_get_their_own_results(mode):
  f = jax.jit(lambda x: ffi.jax_callable(scaled, graph_mode=mode)(x, 2.0)[0])
  wrong = []

  def work(value):
    for _ in range(20):
      if not (np.asarray(f(jnp.full(100, float(value), jnp.float32))) == 2 * value).all():
        wrong.append(value)

  threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(timeout=60)
    assert not thread.is_alive()
  assert not wrong


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from mjx_warp_ffi.third_party import warp as ffi
from support import ffi_helpers as t
mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
x = np.arange(64.0, dtype=np.float32)
for mode in t.MODES:
  call = ffi.jax_callable(t.scaled, graph_mode=mode)
  f = jax.shard_map(lambda x: call(x, 2.0)[0], mesh=mesh, in_specs=P("i"), out_specs=P("i"))
  f = jax.jit(f)
  for k in range(3):
    np.testing.assert_array_equal(f(x + k), 2 * (x + k))
  g = jax.pmap(lambda x: call(x, 2.0)[0])
  for k in range(3):
    np.testing.assert_array_equal(g((x + k).reshape(8, 8)), 2 * (x + k).reshape(8, 8))
  h = jax.jit(jax.shard_map(
    lambda x: jax.lax.scan(lambda c, _: (jax.lax.psum(call(c, 0.5)[0], "i"), None), x, None,
                           length=20)[0],
    mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))
  np.testing.assert_array_equal(h(np.ones(8, np.float32)), np.full(8, 4.0**20, np.float32))
  if mode > ffi.GraphMode.WARP:
    assert call.graph_cache_size >= 8  # one for each device
"""


def test_sharded_calls_run_on_eight_devices_in_every_mode():
  run_python(SHARDED, devices=8)


TWO_GPUS = """
import jax, jax.numpy as jnp, numpy as np, warp as wp
from jax.sharding import PartitionSpec as P
from mjx_warp_ffi.third_party import warp as ffi
from support import ffi_helpers as t
assert len(jax.devices()) >= 2
auto = (jax.sharding.AxisType.Auto,)
mesh = jax.make_mesh((2,), ("i",), axis_types=auto, devices=jax.devices()[:2])
def waits(x: wp.array(dtype=float), y: wp.array(dtype=float)):
  wp.launch(t.scale, dim=x.shape, inputs=[x, 0.5], outputs=[y])
  if not wp.get_stream().is_capturing:
    wp.synchronize_stream()
for mode in t.MODES:
  call = ffi.jax_callable(waits if mode == ffi.GraphMode.NONE else t.halved, graph_mode=mode)
  step = lambda c, _: (jax.lax.psum(call(c)[0], "i"), None)
  f = jax.jit(jax.shard_map(
    lambda x: jax.lax.scan(step, x, None, length=50)[0],
    mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))
  for _ in range(3):
    np.testing.assert_array_equal(f(np.ones(8, np.float32)), np.ones(8, np.float32))
"""


@pytest.mark.gpu
def test_bodies_between_collectives_of_two_gpus_do_not_wait_for_each_other():
  if len(jax.devices("cuda")) < 2:
    pytest.skip("needs two CUDA devices")
  run_python(TWO_GPUS, platform="cuda")


def test_a_call_inside_shard_map_varies_with_its_arguments(mode):
  mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
  call = ffi.jax_callable(scaled, graph_mode=mode)
  f = jax.shard_map(lambda x: call(x, 2.0)[0], mesh=mesh, in_specs=P("i"), out_specs=P("i"))
  np.testing.assert_array_equal(jax.jit(f)(jnp.ones(4, jnp.float32)), np.full(4, 2.0))


# --------------------------------------------------------------------------- other processes

ENDED = """
import jax, jax.numpy as jnp
from mjx_warp_ffi.third_party import warp as ffi
from support import ffi_helpers as t
call = ffi.jax_callable(t.scaled, graph_mode=ffi.GraphMode.NONE)
f = jax.jit(lambda x: call(x[0], 2.0)[0])
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda _, x: x @ x, x))
x = jnp.eye(1000, dtype=jnp.float32)
f(slow(x)).block_until_ready()
kept = f(slow(x))  # waits in a thread of XLA
f(slow(x))
print("the end")
"""


def test_a_program_ends_while_calls_are_still_to_come():
  assert "the end" in run_python(ENDED, timeout=60)


CACHED = """
import logging, sys
import jax, jax.numpy as jnp, numpy as np, warp as wp
wp.config.log_level = wp.LOG_WARNING
from mjx_warp_ffi.third_party import warp as ffi
from support import ffi_helpers as t
jax.config.update("jax_compilation_cache_dir", sys.argv[1] if len(sys.argv) > 1 else DIRECTORY)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(
  lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
def make(factor):
  def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    wp.launch(t.scale, dim=x.shape, inputs=[x, factor], outputs=[y])
  return ffi.jax_callable(body, graph_mode=ffi.GraphMode.WARP_STAGED)
x = jnp.ones(4, jnp.float32)
hits.clear()
factors = FACTORS
for factor in factors:
  call = make(factor)
  np.testing.assert_array_equal(jax.jit(lambda x: call(x)[0])(x), np.full(4, factor))
print(len(hits))
"""


def test_a_compiled_call_is_found_in_the_persistent_cache_and_is_the_right_one(tmp_path):
  def run(factors):
    code = CACHED.replace("DIRECTORY", repr(str(tmp_path))).replace("FACTORS", repr(factors))
    return int(run_python(code).strip().splitlines()[-1])

  assert run([2.0, 3.0]) == 0
  assert run([3.0, 2.0]) == 2  # in another order, so that a counter would mix them up
  assert run([5.0]) == 0


def test_the_name_of_a_program_with_a_space_is_refused():
  with pytest.raises(ValueError, match="no space, got 'two words'"):
    ffi.jax_program("two words", lambda device: None, key="", result_types=())(jnp.ones(3))


def test_a_call_whose_handler_could_not_be_built_works_later(monkeypatch):
  def copied(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    wp.copy(y, x)

  def interrupted():
    raise KeyboardInterrupt

  monkeypatch.setattr(target, "native_handler", interrupted)
  with pytest.raises(KeyboardInterrupt):
    ffi.jax_callable(copied, graph_mode=ffi.GraphMode.WARP_STAGED)(jnp.ones(3))
  monkeypatch.undo()
  call = ffi.jax_callable(copied, graph_mode=ffi.GraphMode.WARP_STAGED)
  np.testing.assert_array_equal(call(jnp.ones(3))[0], np.ones(3))


def test_a_callable_initialises_warp_only_when_it_is_traced():
  code = """
import warp as wp, jax.numpy as jnp
from mjx_warp_ffi.third_party import warp as ffi
def copied(x: wp.array(dtype=float), y: wp.array(dtype=float)):
  wp.copy(y, x)
call = ffi.jax_callable(copied, graph_mode=ffi.GraphMode.WARP_STAGED)
print(wp._src.context.runtime is None)
print(call(jnp.ones(3))[0].sum())
"""
  assert run_python(code).split() == ["True", "3.0"]


EXPORTED = """
import jax, jax.numpy as jnp, numpy as np, pathlib
from jax import export
from mjx_warp_ffi.third_party import warp as ffi
from support import ffi_helpers as t
path = pathlib.Path(PATH)
call = ffi.jax_callable(t.scaled, graph_mode=ffi.GraphMode.WARP_STAGED) if REGISTER else None
if not path.exists():
  checks = [export.DisabledSafetyCheck.custom_call(call.name)]
  exported = export.export(jax.jit(lambda x: call(x, 2.0)[0]), disabled_checks=checks)
  made = exported(jnp.ones(4, jnp.float32))
  path.write_bytes(made.serialize())
f = export.deserialize(bytearray(path.read_bytes()))
try:
  np.testing.assert_array_equal(f.call(jnp.ones(4, jnp.float32)), np.full(4, 2.0))
  print("right")
except jax.errors.JaxRuntimeError as error:
  print(str(error).splitlines()[0])
"""


def test_an_exported_call_runs_where_it_is_registered_and_says_so_elsewhere(tmp_path):
  def run(register):
    path = repr(str(tmp_path / "exported"))
    code = EXPORTED.replace("PATH", path).replace("REGISTER", repr(register))
    return run_python(code)

  assert "right" in run(True)
  assert "right" in run(True)
  assert "mjx_warp_ffi.callable" in run(False)


# ------------------------------------------------------------------------- what XLA makes of a call


@pytest.mark.parametrize("side_effect", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_a_call_whose_result_is_carried_and_stacked_runs_once(device, side_effect):
  runs = []

  def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    runs.append(1)
    wp.copy(y, x)

  call = ffi.jax_callable(body, graph_mode=ffi.GraphMode.NONE, has_side_effect=side_effect)
  x = jax.device_put(jnp.ones(1024, jnp.float32), local_device(device))
  # XLA for GPUs leaves alone what is stacked in pieces of less than a cache line
  f = jax.jit(lambda x: jax.lax.scan(lambda c, _: (call(c)[0],) * 2, x, None, length=8))
  np.testing.assert_array_equal(f(x)[1], np.ones((8, 1024)))
  assert len(runs) == 8


def test_every_kind_of_call_stands_behind_a_barrier():
  x = jnp.ones(4, jnp.float32)
  types = [jax.ShapeDtypeStruct((4,), jnp.float32)]
  calls = (
    lambda x: ffi.jax_callable(scaled)(x, 2.0),
    lambda x: ffi.jax_kernel(scale)(x, 2.0),
    ffi.jax_program("test_target_barrier", lambda device: None, key="barrier", result_types=types),
  )
  for call in calls:
    assert "optimization_barrier" in jax.jit(call).lower(x).as_text()


# ------------------------------------------------------------------------------------- CUDA


@pytest.mark.gpu
def test_xla_captures_a_lone_call_in_a_scan():
  call = ffi.jax_callable(scaled, graph_mode=ffi.GraphMode.JAX)
  x = jax.device_put(jnp.ones(4, jnp.float32), local_device("cuda"))
  f = jax.jit(
    lambda x: jax.lax.scan(lambda c, _: (call(c, 2.0)[0], None), x, None, length=8)[0],
    compiler_options={"xla_gpu_graph_min_graph_size": 1},
  )
  for _ in range(3):
    np.testing.assert_array_equal(f(x), np.full(4, 256.0))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_call_runs_where_xla_says_whatever_the_default_devices_are(mode):
  call = ffi.jax_callable(scaled, graph_mode=mode)
  gpu, cpu = local_device("cuda"), local_device("cpu")
  f = jax.jit(lambda x: call(x, 2.0)[0])
  for default in ("cpu", "cuda:0"):
    with wp.ScopedDevice(default):
      for device in (cpu, gpu, cpu):
        y = f(jax.device_put(jnp.ones(4, jnp.float32), device))
        assert y.devices() == {device}
        np.testing.assert_array_equal(y, np.full(4, 2.0))
        assert wp.get_device() == wp.get_device(default)
