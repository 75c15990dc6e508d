"""Programs: fixed Warp buffers behind one FFI call, on the CPU (and with `gpu`, on CUDA)."""

import gc
import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.third_party import warp as ffi
from support.affine_programs import MODES, affine, affine_program
from support.ffi_helpers import DEVICES, local_device, run_python

TARGET = "test_program"


@wp.kernel(enable_backward=False)
def increment(x: wp.array(dtype=wp.uint8)):
  i = wp.tid()
  x[i] = x[i] + wp.uint8(1)


def affine_function(key, *, size=5, offset=1.0, name=TARGET, **options):
  def make(device):
    return affine_program(device, size, offset)

  types = [jax.ShapeDtypeStruct((size,), jnp.float32)]
  return ffi.jax_program(name, make, key=key, result_types=types, **options)


@pytest.fixture(autouse=True)
def no_programs_left():
  yield
  ffi.clear_programs()


@pytest.fixture(params=MODES, ids=lambda mode: mode.name)
def mode(request):
  return request.param


@pytest.fixture(params=DEVICES)
def device(request):
  return local_device(request.param)


def test_a_call_copies_in_runs_the_body_and_copies_out(mode, device):
  f = jax.jit(affine_function(f"plain-{mode.name}", graph_mode=mode))
  for value in (0.0, 3.0, 0.0):
    x = jax.device_put(jnp.full(5, value, jnp.float32), device)
    (y,) = f(x)
    np.testing.assert_array_equal(y, np.full(5, 2 * value + 1, np.float32))


def test_a_scan_carries_the_result_of_one_call_into_the_next(mode, device):
  f = affine_function(f"scan-{mode.name}", graph_mode=mode)
  x = jax.device_put(jnp.arange(5.0, dtype=jnp.float32), device)
  y, _ = jax.jit(lambda x: jax.lax.scan(lambda c, _: (f(c)[0], None), x, None, length=7))(x)
  # x -> 2 x + 1, seven times; exact in float32
  np.testing.assert_array_equal(y, 128 * np.arange(5.0) + 127)


def test_a_call_inside_a_while_loop_sees_fresh_values(mode, device):
  f = affine_function(f"while-{mode.name}", graph_mode=mode)
  x = jax.device_put(jnp.ones(5, jnp.float32), device)
  y = jax.jit(lambda x: jax.lax.while_loop(lambda c: c[0] < 100, lambda c: f(c)[0], x))(x)
  np.testing.assert_array_equal(y, np.full(5, 127, np.float32))


@pytest.mark.parametrize("sizes", [(1, 3, 17), (0, 4, 0), (16, 0, 40001), tuple(range(70))])
def test_arrays_of_any_size_also_empty_ones_arrive_whole(sizes, mode, device, rng):
  def make(device):
    arrays = tuple(wp.zeros(n, dtype=wp.uint8, device=device) for n in sizes)

    def body():
      for array in arrays:
        wp.launch(increment, dim=array.size, inputs=[array])

    return ffi.Program(arrays, arrays, body)

  types = [jax.ShapeDtypeStruct((n,), jnp.uint8) for n in sizes]
  key = f"sizes-{len(sizes)}-{sum(sizes)}-{mode.name}"
  f = jax.jit(ffi.jax_program(TARGET, make, key=key, result_types=types, graph_mode=mode))
  for _ in range(3):
    values = [rng.integers(0, 255, n, dtype=np.uint8) for n in sizes]
    results = f(*(jax.device_put(v, device) for v in values))
    for value, result in zip(values, results, strict=True):
      np.testing.assert_array_equal(result, value + np.uint8(1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("handed_out", [True, False])
def test_results_may_be_handed_out_early_and_inputs_come_in_pieces(mode, device, handed_out):
  def make(device):
    pieces = tuple(wp.zeros(n, dtype=float, device=device) for n in (1, 3, 300))
    first, last = (wp.zeros(300, dtype=float, device=device) for _ in range(2))
    early = ffi.Early({0})

    def body():
      wp.launch(affine, dim=300, inputs=[pieces[2], pieces[0].size], outputs=[first])
      if handed_out:
        early.hand_out()
        first.fill_(-1.0)  # what is copied now is what was handed out
      wp.launch(affine, dim=3, inputs=[pieces[1], 0.0], outputs=[last])

    return ffi.Program((pieces,), (first, last), body, early=early)

  types = [jax.ShapeDtypeStruct((300,), jnp.float32)] * 2
  f = jax.jit(
    ffi.jax_program(TARGET, make, key=f"early-{handed_out}", result_types=types, graph_mode=mode)
  )
  overwritten = handed_out and mode != ffi.GraphMode.WARP_STAGED
  for shift in (0.0, 1.0, 2.0):  # the first call is not yet a replay
    x = jnp.arange(304, dtype=jnp.float32) + shift
    first, last = f(jax.device_put(x, local_device(device)))
    if not overwritten:
      np.testing.assert_array_equal(first, 2 * np.asarray(x)[4:] + 1)
    np.testing.assert_array_equal(last[:3], 2 * np.asarray(x)[1:4])


def test_an_aliased_input_shares_the_buffer_of_its_result(mode):
  f = affine_function(f"alias-{mode.name}", graph_mode=mode, input_output_aliases={0: 0})
  g = jax.jit(lambda x: f(x)[0], donate_argnums=0)
  x = jnp.ones(5, jnp.float32)
  assert "output_to_operand_aliasing" in g.lower(x).compile().as_text()
  for expected in (3, 7, 15):
    x = g(x)
    np.testing.assert_array_equal(x, np.full(5, expected, np.float32))


def test_one_jit_holds_several_programs_of_one_target():
  f, g = affine_function("first", offset=1.0), affine_function("second", offset=10.0)
  y, z = jax.jit(lambda x: (f(x)[0], g(x)[0]))(jnp.zeros(5, jnp.float32))
  np.testing.assert_array_equal(y, np.full(5, 1, np.float32))
  np.testing.assert_array_equal(z, np.full(5, 10, np.float32))


def test_equal_keys_share_a_program_also_after_a_retrace():
  made = []

  def make(device):
    made.append(device)
    return affine_program(device)

  for _ in range(3):
    types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
    f = ffi.jax_program(TARGET, make, key="shared", result_types=types)
    jax.jit(lambda x, f=f: f(x))(jnp.ones(5, jnp.float32))[0].block_until_ready()
  assert len(made) == 1


def test_a_failing_body_raises_with_its_traceback_and_the_next_call_works(mode):
  state = {"fail": True}

  def make(device):
    program = affine_program(device)

    def body():
      program.body()
      if state["fail"]:
        raise ValueError("a reason to be seen")

    return ffi.Program(program.inputs, program.outputs, body)

  types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
  f = jax.jit(
    ffi.jax_program(TARGET, make, key=f"fail-{mode.name}", result_types=types, graph_mode=mode)
  )
  with pytest.raises(jax.errors.JaxRuntimeError, match="(?s)test_program.py.*a reason to be seen"):
    f(jnp.ones(5, jnp.float32))[0].block_until_ready()
  state["fail"] = False
  np.testing.assert_array_equal(f(jnp.ones(5, jnp.float32))[0], np.full(5, 3, np.float32))


@pytest.mark.parametrize("mode", MODES[1:], ids=lambda mode: mode.name)
def test_a_failing_capture_names_another_mode_and_leaves_nothing_capturing(mode):
  calls = []

  def make(device):
    program = affine_program(device)

    def body():
      program.body()
      calls.append(bool(wp.get_device(device).is_capturing))
      if calls == [False, True]:
        raise ValueError("only while capturing")

    return ffi.Program(program.inputs, program.outputs, body)

  types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
  f = jax.jit(
    ffi.jax_program(TARGET, make, key=f"capture-{mode.name}", result_types=types, graph_mode=mode)
  )
  with pytest.raises(jax.errors.JaxRuntimeError, match="GraphMode.NONE"):
    f(jnp.ones(5, jnp.float32))[0].block_until_ready()
  assert not wp.get_device("cpu").is_capturing
  for _ in range(2):
    np.testing.assert_array_equal(f(jnp.ones(5, jnp.float32))[0], np.full(5, 3, np.float32))
  assert calls == [False, True, False, True]


def test_a_program_whose_buffers_do_not_fit_the_call_is_refused():
  types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
  f = ffi.jax_program(TARGET, affine_program, key="misfit", result_types=types)
  with pytest.raises(jax.errors.JaxRuntimeError, match="input 0 of the program has 20 bytes"):
    f(jnp.ones(6, jnp.float32))[0].block_until_ready()


@pytest.mark.parametrize("mode", [ffi.GraphMode.JAX, ffi.GraphMode.WARP])
def test_modes_without_fixed_buffers_are_refused_with_the_valid_ones(mode):
  with pytest.raises(ValueError, match="WARP_STAGED_EX"):
    affine_function("refused", graph_mode=mode)


def test_live_programs_stay_within_the_bound_and_evicted_ones_come_back():
  functions = [jax.jit(affine_function(f"lru-{i}", offset=float(i))) for i in range(40)]
  for _ in range(2):
    for i, f in enumerate(functions):
      np.testing.assert_array_equal(f(jnp.zeros(5, jnp.float32))[0], np.full(5, i, np.float32))
      assert ffi.live_programs(TARGET) <= 32


def test_clearing_frees_the_buffers_and_the_next_call_makes_them_again():
  arrays = []

  def make(device):
    program = affine_program(device)
    arrays.append(weakref.ref(program.inputs[0]))
    return program

  types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
  f = jax.jit(ffi.jax_program(TARGET, make, key="freed", result_types=types))
  f(jnp.ones(5, jnp.float32))[0].block_until_ready()
  assert arrays[0]() is not None
  ffi.clear_programs(TARGET)
  gc.collect()
  assert arrays[0]() is None
  np.testing.assert_array_equal(f(jnp.ones(5, jnp.float32))[0], np.full(5, 3, np.float32))
  assert len(arrays) == 2


def test_a_prepared_program_does_not_run_its_body_again():
  runs = []

  def make(device):
    program = affine_program(device)

    def body():
      runs.append(1)
      program.body()

    return ffi.Program(program.inputs, program.outputs, body)

  types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
  f = jax.jit(ffi.jax_program(TARGET, make, key="prepared", result_types=types))
  compiled = f.lower(jnp.ones(5, jnp.float32)).compile()
  assert ffi.prepare_programs(TARGET, "prepared", device=jax.devices()[0]) == 1
  before = len(runs)
  np.testing.assert_array_equal(compiled(jnp.ones(5, jnp.float32))[0], np.full(5, 3, np.float32))
  assert len(runs) == before == 2


def test_many_threads_on_one_program_get_their_own_results(mode):
  f = jax.jit(affine_function(f"threads-{mode.name}", size=1000, graph_mode=mode))
  wrong = []

  def work(value):
    for _ in range(30):
      (y,) = f(jnp.full(1000, float(value), jnp.float32))
      if not (np.asarray(y) == 2 * value + 1).all():
        wrong.append(value)

  threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(timeout=60)
    assert not thread.is_alive()
  assert not wrong


def test_a_body_in_another_thread_waits_while_the_cpu_is_captured():
  """Warp's CPU capture is one for the process: a launch beside it would enter its registry."""
  log, capturing = [], threading.Event()

  def make_slow(device):
    program = affine_program(device)

    def body():
      program.body()
      if wp.get_device(device).is_capturing:
        log.append("capture begins")
        capturing.set()
        time.sleep(0.3)
        log.append("capture ends")

    return ffi.Program(program.inputs, program.outputs, body)

  def make_other(device):
    program = affine_program(device)

    def body():
      program.body()
      log.append("other body")

    return ffi.Program(program.inputs, program.outputs, body)

  types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
  slow = jax.jit(ffi.jax_program(TARGET, make_slow, key="slow", result_types=types))
  none = ffi.GraphMode.NONE
  other = jax.jit(
    ffi.jax_program(TARGET, make_other, key="other", result_types=types, graph_mode=none)
  )
  other(jnp.ones(5, jnp.float32))[0].block_until_ready()
  log.clear()
  thread = threading.Thread(target=lambda: slow(jnp.ones(5, jnp.float32))[0].block_until_ready())
  thread.start()
  assert capturing.wait(30)
  np.testing.assert_array_equal(other(jnp.ones(5, jnp.float32))[0], np.full(5, 3, np.float32))
  thread.join()
  assert log == ["capture begins", "capture ends", "other body"]


EIGHT_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from mjx_warp_ffi.third_party import warp as ffi
from support import affine_programs as t
made = []
def make(device):
  made.append(1)
  return t.affine_program(device)
types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
devices = jax.devices()
assert len(devices) == 8
for mode in t.MODES:
  made.clear()
  f = ffi.jax_program("eight", make, key=mode.name, result_types=types, graph_mode=mode)
  f = jax.jit(lambda x, f=f: f(x)[0])
  for round in range(3):
    ys = [f(jax.device_put(jnp.full(5, float(i), jnp.float32), d)) for i, d in enumerate(devices)]
    for i, y in enumerate(ys):
      np.testing.assert_array_equal(y, np.full(5, 2 * i + 1, np.float32))
  assert len(made) == 8, made
"""


def test_eight_virtual_devices_have_their_own_programs():
  run_python(EIGHT_DEVICES, devices=8)


THREADS = """
import threading, jax, jax.numpy as jnp, numpy as np
from mjx_warp_ffi.third_party import warp as ffi
from support import affine_programs as t
barrier = threading.Barrier(3)
types = [jax.ShapeDtypeStruct((5,), jnp.float32)]
make = t.affine_program
f = ffi.jax_program("threads", make, key="k", result_types=types, graph_mode=ffi.GraphMode.NONE)
f = jax.jit(lambda x, f=f: f(x)[0])
xs = [jax.device_put(jnp.full(5, float(i), jnp.float32), d) for i, d in enumerate(jax.devices())]
results = [None] * len(xs)
def work(i):
  barrier.wait(timeout=20)
  results[i] = np.asarray([f(xs[i]) for _ in range(20)])
threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
for thread in threads: thread.start()
for thread in threads: thread.join()
for i, y in enumerate(results):
  np.testing.assert_array_equal(y, np.full((20, 5), 2 * i + 1, np.float32))
"""


def test_threads_may_call_on_different_virtual_devices_at_once():
  run_python(THREADS, devices=3)
