"""Graph modes: when the body runs, what is kept, and what may be captured."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.third_party import warp as ffi
from support.ffi_helpers import (
  CAPTURED,
  DEVICES,
  MODES,
  STAGED,
  counted,
  local_device,
  scale,
  scaled,
  sums,
)


@pytest.fixture(params=MODES, ids=lambda mode: mode.name)
def mode(request):
  return request.param


@pytest.fixture(params=DEVICES)
def device(request):
  return local_device(request.param)


@pytest.fixture(autouse=True)
def no_graphs_left():
  yield
  ffi.clear_jax_callable_graph_cache()


# ------------------------------------------------------------------------- when the body runs


@pytest.mark.parametrize(
  ("mode", "expected"), [(mode, 6 if mode < ffi.GraphMode.WARP else 2) for mode in MODES]
)
def test_the_body_runs_in_every_call_or_once_and_once_captured(mode, expected):
  body, runs = counted()
  call = ffi.jax_callable(body, graph_mode=mode)
  # The carry stays in one place, so that WARP sees the same addresses.
  loop = jax.jit(
    lambda x: jax.lax.fori_loop(0, 6, lambda _, c: call(c, vmap_method="sequential")[0] * 0.5, x)
  )
  np.testing.assert_array_equal(loop(jnp.ones(4, jnp.float32)), np.ones(4))
  assert len(runs) == expected


def test_clearing_frees_everything_and_the_next_call_captures_again(mode):
  body, runs = counted()
  call = ffi.jax_callable(body, graph_mode=mode)
  f = jax.jit(call)
  x = jnp.ones(123, jnp.float32)

  def arrays():
    return [a for a in gc.get_objects() if isinstance(a, wp.array) and a.shape == (123,)]

  others = arrays()  # of other tests in this process
  f(x)[0].block_until_ready()
  held = [weakref.ref(a) for a in arrays() if not any(a is other for other in others)]
  assert held
  before = len(runs)
  ffi.clear_jax_callable_graph_cache(call)
  assert call.graph_cache_size == 0
  gc.collect()
  assert not [a for a in held if a() is not None]
  np.testing.assert_array_equal(f(x)[0], np.full(123, 2.0))
  assert len(runs) > before


def test_warp_mode_keeps_no_more_graphs_than_its_bound_for_any_number_of_buffers():
  call = ffi.jax_callable(scaled, graph_mode=ffi.GraphMode.WARP, graph_cache_max=8)
  f = jax.jit(lambda x: call(x, 2.0)[0])
  kept = []
  for i in range(50):
    kept.append(
      (jnp.full(4, float(i), jnp.float32), f(jnp.full(4, float(i), jnp.float32)))
    )  # so that addresses differ
    assert call.graph_cache_size <= 8
  for x, y in kept:
    np.testing.assert_array_equal(y, 2 * x)
  call.graph_cache_max = 2
  assert call.graph_cache_size <= 2
  call.graph_cache_max = None
  for i in range(20):
    kept.append((jnp.full(4, float(i), jnp.float32), f(jnp.full(4, float(i), jnp.float32))))
  assert call.graph_cache_size > 8


def test_the_default_bound_is_that_of_the_process():
  before = ffi.get_jax_callable_default_graph_cache_max()
  assert before == 32
  try:
    ffi.set_jax_callable_default_graph_cache_max(5)
    body, _ = counted()
    assert ffi.jax_callable(body, graph_mode=ffi.GraphMode.WARP).graph_cache_max == 5
  finally:
    ffi.set_jax_callable_default_graph_cache_max(before)


@pytest.mark.parametrize("mode", STAGED, ids=lambda mode: mode.name)
def test_only_the_named_arguments_are_staged(mode):
  call = ffi.jax_callable(
    sums, num_outputs=2, graph_mode=mode, stage_in_argnames=["x"], stage_out_argnames=["total"]
  )
  f = jax.jit(call)
  x, y = jnp.ones(4, jnp.float32), jnp.full(4, 10.0, jnp.float32)
  np.testing.assert_array_equal(f(x, y)[0], np.full(4, 11.0))
  # y keeps its first value
  np.testing.assert_array_equal(f(2 * x, 5 * y)[0], np.full(4, 12.0))


# ------------------------------------------------------------------- what a body may contain


@wp.kernel
def count_down(n: wp.array(dtype=int), total: wp.array(dtype=float)):
  n[0] = n[0] - 1
  total[0] = total[0] + 1.0


def conditional(n: wp.array(dtype=int), total: wp.array(dtype=float)):
  total.zero_()
  wp.capture_while(n, lambda: wp.launch(count_down, dim=1, inputs=[n, total]))


@pytest.mark.parametrize("mode", [ffi.GraphMode.NONE, *CAPTURED], ids=lambda mode: mode.name)
def test_a_loop_on_the_device_is_captured_as_such(mode, device):
  call = ffi.jax_callable(conditional, graph_mode=mode, num_outputs=2, in_out_argnames=["n"])
  f = jax.jit(lambda n: call(n, output_dims=1))
  for n in (3, 7, 0, 3):
    _, total = f(jax.device_put(jnp.array([n], jnp.int32), device))
    np.testing.assert_array_equal(total, np.array([n], np.float32))


def with_adjoint(
  x: wp.array(dtype=float),
  dy: wp.array(dtype=float),
  y: wp.array(dtype=float),
  dx: wp.array(dtype=float),
):
  dx.zero_()
  wp.launch(
    scale,
    dim=x.shape,
    inputs=[x, 3.0],
    outputs=[y],
    adj_inputs=[dx, 0.0],
    adj_outputs=[dy],
    adjoint=True,
  )
  wp.launch(scale, dim=x.shape, inputs=[x, 3.0], outputs=[y])


def test_a_body_may_launch_an_adjoint(mode, device):
  call = jax.jit(ffi.jax_callable(with_adjoint, num_outputs=2, graph_mode=mode))
  for value in (1.0, 5.0):
    x, dy = (jax.device_put(jnp.full(4, v, jnp.float32), device) for v in (value, value + 1))
    y, dx = call(x, dy)
    np.testing.assert_array_equal(y, np.full(4, 3 * value))
    np.testing.assert_array_equal(dx, np.full(4, 3 * (value + 1)))


def test_empty_arrays_go_through(mode):
  call = jax.jit(ffi.jax_callable(sums, num_outputs=2, graph_mode=mode))
  for _ in range(2):
    total, double = call(jnp.zeros(0, jnp.float32), jnp.zeros(0, jnp.float32))
    assert total.shape == double.shape == (0,)


def test_a_failing_body_raises_with_its_traceback_and_the_next_call_works(mode):
  state = {"fail": True}

  def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    wp.launch(scale, dim=x.shape, inputs=[x, 2.0], outputs=[y])
    if state["fail"]:
      raise ValueError("a reason to be seen")

  f = jax.jit(ffi.jax_callable(body, graph_mode=mode))
  with pytest.raises(jax.errors.JaxRuntimeError, match="(?s)test_launchers.*reason to be seen"):
    f(jnp.ones(4, jnp.float32))[0].block_until_ready()
  assert not wp.get_device("cpu").is_capturing
  state["fail"] = False
  np.testing.assert_array_equal(f(jnp.ones(4, jnp.float32))[0], np.full(4, 2.0))


def test_nothing_is_printed_when_a_body_fails(capfd):
  def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    raise ValueError("silent")

  with pytest.raises(jax.errors.JaxRuntimeError):
    ffi.jax_callable(body)(jnp.ones(4, jnp.float32))[0].block_until_ready()
  assert capfd.readouterr() == ("", "")
