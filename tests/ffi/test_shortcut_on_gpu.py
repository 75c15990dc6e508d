"""Calls that go around Python, from XLA on a GPU."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.third_party import warp as ffi
from mjx_warp_ffi.third_party.warp.calls import dispatch
from mjx_warp_ffi.third_party.warp.native import handler as native_lib
from support.ffi_helpers import CAPTURED, MODES, local_device, scale


@pytest.fixture
def python_calls(monkeypatch):
  """Counts the calls that Python serves."""
  calls = []
  serve = dispatch.Dispatcher.__call__

  def counted(self, call):
    calls.append(call.target)
    serve(self, call)

  monkeypatch.setattr(dispatch.Dispatcher, "__call__", counted)
  return calls


def tripled(mode, **options):
  def triple(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    wp.launch(scale, dim=x.shape, inputs=[x, 3.0], outputs=[y])

  return ffi.jax_callable(triple, graph_mode=mode, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_most_calls_of_a_scan_go_around_the_handler_in_python(mode, python_calls):
  triple = tripled(mode)
  x = jax.device_put(jnp.arange(8.0), local_device("cuda"))

  @jax.jit
  def run(x):
    return jax.lax.scan(lambda c, _: (triple(c)[0] / 3 + 1, c.sum()), x, None, length=200)

  for _ in range(3):
    last, sums = run(x)
    np.testing.assert_allclose(last, np.arange(8.0) + 200, rtol=1e-6)
    np.testing.assert_allclose(sums, 28 + 8 * np.arange(200.0), rtol=1e-6)
  assert len(python_calls) < 20


@pytest.mark.gpu
def test_most_calls_of_a_kernel_and_its_adjoint_take_no_python(python_calls):
  kernel = ffi.jax_kernel(scale, enable_backward=True)
  x = jax.device_put(jnp.arange(8.0), local_device("cuda"))

  @jax.jit
  def run(x):
    def loss(x):
      last, sums = jax.lax.scan(lambda c, _: (kernel(c, 0.5)[0] + 1, c.sum()), x, None, length=100)
      return last.sum() + sums.sum(), sums

    return jax.grad(loss, has_aux=True)(x)

  for _ in range(3):
    gradient, sums = run(x)
    powers = 0.5 ** np.arange(101.0)
    np.testing.assert_allclose(gradient, np.full(8, powers.sum()), rtol=1e-6)
    np.testing.assert_allclose(sums, 28 * powers[:100] + 16 * (1 - powers[:100]), rtol=1e-6)
  assert len(python_calls) < 20


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES[:2])
def test_a_body_that_fails_later_says_so_and_the_next_call_works(mode, python_calls):
  fails = []

  def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    if fails:
      raise KeyError(fails.pop())
    wp.launch(scale, dim=x.shape, inputs=[x, 3.0], outputs=[y])

  triple = jax.jit(ffi.jax_callable(body, graph_mode=mode))
  x = jax.device_put(jnp.arange(8.0), local_device("cuda"))
  for _ in range(3):
    np.testing.assert_array_equal(triple(x)[0], 3 * np.arange(8.0))
  python_calls.clear()
  fails.append("no such thing")
  with pytest.raises(jax.errors.JaxRuntimeError, match="no such thing"):
    jax.block_until_ready(triple(x))
  assert not python_calls
  np.testing.assert_array_equal(triple(x + 1)[0], 3 * np.arange(8.0) + 3)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_two_threads_and_programs_share_a_callable(mode):
  triple = tripled(mode)
  device = local_device("cuda")
  wrong = []

  def work(n):
    x = jax.device_put(jnp.full(16, float(n)), device)
    step = jax.jit(lambda x: jax.lax.scan(lambda c, _: (triple(c)[0] / 3, None), x, None, 50)[0])
    for _ in range(20):
      if not np.array_equal(step(x), np.full(16, n, np.float32)):
        wrong.append(n)

  threads = [threading.Thread(target=work, args=(n,)) for n in (3, 6, 12, 24)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(120)
  assert not any(thread.is_alive() for thread in threads)
  assert not wrong


@pytest.mark.gpu
@pytest.mark.parametrize("mode", CAPTURED)
def test_after_the_clear_function_calls_capture_again(mode, python_calls):
  triple = tripled(mode)
  x = jax.device_put(jnp.arange(4.0), local_device("cuda"))
  step = jax.jit(lambda x: triple(x)[0])
  for _ in range(5):
    np.testing.assert_array_equal(step(x), 3 * np.arange(4.0))
  before = len(python_calls)
  ffi.clear_jax_callable_graph_cache(triple)
  assert triple.graph_cache_size == 0
  np.testing.assert_array_equal(step(x), 3 * np.arange(4.0))
  assert len(python_calls) == before + 1
  assert triple.graph_cache_size == 1


@pytest.mark.gpu
def test_a_graph_that_is_in_use_is_not_the_one_that_is_dropped(python_calls):
  triple = tripled(ffi.GraphMode.WARP_STAGED, graph_cache_max=2)
  device = local_device("cuda")
  scan = jax.jit(lambda x: jax.lax.scan(lambda c, _: (triple(c)[0] / 3, None), x, None, 50)[0])
  kept, *others = (jax.device_put(jnp.ones(n), device) for n in (3, 4, 5, 6))
  scan(kept)
  for other in others:
    scan(other)
    jax.block_until_ready(scan(kept))
  python_calls.clear()
  jax.block_until_ready(scan(kept))
  assert len(python_calls) < 3


@pytest.mark.gpu
def test_the_handler_is_made_once():
  tripled(ffi.GraphMode.WARP)
  tripled(ffi.GraphMode.WARP_STAGED)
  assert native_lib._only.cache_info().currsize == 1
