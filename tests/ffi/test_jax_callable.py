"""`jax_callable`: every mode, on every device, under every transform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.third_party import warp as ffi
from support.ffi_helpers import (
  DEVICES,
  DTYPES,
  MODES,
  add,
  doubled_kernel,
  grow,
  halved,
  local_device,
  scaled,
  sums,
  turned,
)


@functools.cache
def doubled(dtype):
  """A callable's function for one dtype: y = x + x, or not x."""
  kind, kernel = getattr(wp, dtype), doubled_kernel(dtype)

  def function(x: wp.array(dtype=kind), y: wp.array(dtype=kind)):
    wp.launch(kernel, dim=x.shape, inputs=[x], outputs=[y])

  return function


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_that_both_share_goes_through_every_mode(dtype, mode, device):
  with jax.enable_x64("64" in dtype):
    call = jax.jit(ffi.jax_callable(doubled(dtype), graph_mode=mode))
    for values in ([0, 1, 1, 0, 1], [1, 0, 0, 1, 1], [0, 1, 1, 0, 1]):
      x = jax.device_put(jnp.array(values, dtype), device)
      (y,) = call(x)
      assert y.dtype == x.dtype
      expected = ~np.asarray(x) if dtype == "bool" else np.asarray(x) + np.asarray(x)
      np.testing.assert_array_equal(y, expected)


def test_vector_and_matrix_elements_are_trailing_axes(mode, device, rng):
  m = jax.device_put(rng.normal(size=(5, 2, 2)).astype(np.float32), device)
  v = jax.device_put(rng.normal(size=(5, 2)).astype(np.float32), device)
  (w,) = jax.jit(ffi.jax_callable(turned, graph_mode=mode, output_dims=5))(m, v)
  # float32 products of two terms
  np.testing.assert_allclose(w, np.einsum("nij,nj->ni", m, v), rtol=1e-5, atol=1e-6)


def test_a_scan_feeds_results_back(mode, device):
  call = ffi.jax_callable(scaled, graph_mode=mode)
  x = jax.device_put(jnp.arange(4.0, dtype=jnp.float32), device)
  y, _ = jax.jit(lambda x: jax.lax.scan(lambda c, _: (call(c, 2.0)[0], None), x, None, length=9))(x)
  np.testing.assert_array_equal(y, 512 * np.arange(4.0))


def test_while_and_cond_run_the_call_as_often_as_they_say(mode, device):
  call = ffi.jax_callable(scaled, graph_mode=mode)

  @jax.jit
  def f(x):
    x = jax.lax.while_loop(lambda c: c[0] < 100, lambda c: call(c, 2.0)[0], x)
    return jax.lax.cond(x[0] > 100, lambda x: call(x, 3.0)[0], lambda x: x, x)

  np.testing.assert_array_equal(
    f(jax.device_put(jnp.ones(4, jnp.float32), device)), np.full(4, 384.0)
  )


def test_results_come_in_the_order_of_the_outputs(mode, device):
  call = ffi.jax_callable(sums, num_outputs=2, graph_mode=mode)
  x, y = (jax.device_put(jnp.arange(4.0, dtype=jnp.float32) + k, device) for k in (0, 1))
  for _ in range(3):
    results = jax.jit(call)(x, y)
    assert isinstance(results, list)
    np.testing.assert_array_equal(results[0], 2 * np.arange(4.0) + 1)
    np.testing.assert_array_equal(results[1], 4 * np.arange(4.0) + 2)


def test_in_outs_are_results_before_the_outputs_and_leave_the_argument_alone(mode, device):
  call = ffi.jax_callable(grow, num_outputs=2, in_out_argnames=["x"], graph_mode=mode)
  x, y = (jax.device_put(jnp.full(4, v, jnp.float32), device) for v in (1.0, 10.0))
  for _ in range(3):
    grown, twice = jax.jit(call)(x, y)
    np.testing.assert_array_equal(grown, np.full(4, 11.0))
    np.testing.assert_array_equal(twice, np.full(4, 22.0))
    np.testing.assert_array_equal(x, np.full(4, 1.0))


def test_static_scalars_tell_calls_apart(mode, device):
  call = ffi.jax_callable(scaled, graph_mode=mode)
  x = jax.device_put(jnp.ones(4, jnp.float32), device)
  f = jax.jit(lambda x: [call(x, factor)[0] for factor in (0.1, 2, np.float32(3), wp.float32(4.0))])
  for _ in range(2):
    for y, expected in zip(f(x), (0.1, 2, 3, 4), strict=True):
      np.testing.assert_array_equal(y, np.full(4, expected, np.float32))


def test_a_traced_scalar_is_refused_by_name():
  call = ffi.jax_callable(scaled)
  with pytest.raises(ValueError, match="'factor' must be a static value"):
    jax.jit(call)(jnp.ones(4, jnp.float32), 2.0)


# ---------------------------------------------------------------------------------------- vmap


@pytest.mark.parametrize(
  ("in_axes", "out_axes"), [(0, 0), (1, 0), (-1, 1), ((0, None), 0), ((None, 1), 0), ((1, 0), -1)]
)
def test_vmap_equals_a_loop_for_any_axes(in_axes, out_axes, mode, device, rng):
  call = ffi.jax_callable(sums, num_outputs=2, graph_mode=mode)
  axes = in_axes if isinstance(in_axes, tuple) else (in_axes, in_axes)
  shapes = [{0: (3, 5), 1: (5, 3), -1: (5, 3), None: (5,)}[axis] for axis in axes]
  args = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
  f = jax.jit(jax.vmap(lambda x, y: tuple(call(x, y)), in_axes, out_axes))
  batch = [
    np.broadcast_to(a, (3, 5)) if axis is None else np.moveaxis(a, axis, 0)
    for a, axis in zip(args, axes, strict=True)
  ]
  total, double = f(*(jax.device_put(a, device) for a in args))
  np.testing.assert_array_equal(np.moveaxis(total, out_axes, 0), batch[0] + batch[1])
  np.testing.assert_array_equal(np.moveaxis(double, out_axes, 0), 2 * (batch[0] + batch[1]))


VMAP_METHODS = "sequential sequential_unrolled expand_dims broadcast_all legacy_vectorized".split()
ALONE = [(0, 0), (0, None), (None, 0), (1, None), (None, -1)]


@pytest.mark.parametrize("vmap_method", VMAP_METHODS)
@pytest.mark.parametrize("in_axes", ALONE)
def test_every_vmap_method_covers_the_whole_batch(vmap_method, in_axes, mode, device, rng):
  call = ffi.jax_callable(sums, num_outputs=2, graph_mode=mode, vmap_method=vmap_method)
  batch = [rng.normal(size=(5,) if axis is None else (3, 5)) for axis in in_axes]
  args = [
    x if axis is None else np.moveaxis(x, 0, axis) for x, axis in zip(batch, in_axes, strict=True)
  ]
  f = jax.jit(jax.vmap(lambda x, y: tuple(call(x, y)), in_axes))
  for _ in range(2):  # run, then replayed
    total, double = f(*(jax.device_put(jnp.asarray(x, jnp.float32), device) for x in args))
    expected = np.broadcast_to(np.float32(batch[0]) + np.float32(batch[1]), (3, 5))
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(double, 2 * expected)


@pytest.mark.parametrize(
  ("vmap_method", "shapes"),
  [
    ("broadcast_all", [((15,), (15,))]),
    ("expand_dims", [((5,), (5,))] * 3),
    ("legacy_vectorized", [((5,), (5,))] * 3),
  ],
)
def test_an_array_without_the_batch_is_repeated_by_broadcast_all_alone(vmap_method, shapes):
  seen = []

  def adding(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=float)):
    seen.append((x.shape, y.shape))
    wp.launch(add, dim=x.shape, inputs=[x, y], outputs=[z])

  call = ffi.jax_callable(adding, graph_mode=ffi.GraphMode.NONE, vmap_method=vmap_method)
  f = jax.jit(jax.vmap(lambda x, y: call(x, y)[0], (0, None)))
  x, y = jnp.arange(15, dtype=jnp.float32).reshape(3, 5), jnp.arange(5, dtype=jnp.float32)
  np.testing.assert_array_equal(f(x, y), x + y)
  assert seen == shapes
  arguments = f.lower(x, y).as_text().split("stablehlo.custom_call")[1]
  repeated = "(tensor<3x5xf32>, tensor<3x5xf32>)" in arguments
  assert repeated == (vmap_method == "broadcast_all"), arguments


@pytest.mark.parametrize("vmap_method", ["expand_dims", "legacy_vectorized", "broadcast_all"])
def test_nested_batches_of_each_argument_alone(vmap_method, mode, rng):
  call = ffi.jax_callable(sums, num_outputs=2, graph_mode=mode, vmap_method=vmap_method)
  x, y = (rng.normal(size=(n, 5)).astype(np.float32) for n in (2, 3))
  f = jax.vmap(jax.vmap(lambda x, y: call(x, y)[1], (None, 0)), (0, None))
  np.testing.assert_array_equal(jax.jit(f)(x, y), 2 * (x[:, None] + y))
  g = jax.vmap(jax.vmap(lambda x, y: call(x, y)[1], (0, None)), (0, None))
  z = rng.normal(size=(2, 4, 5)).astype(np.float32)
  np.testing.assert_array_equal(jax.jit(g)(z, y[0]), 2 * (z + y[0]))


@pytest.mark.parametrize("vmap_method", VMAP_METHODS)
@pytest.mark.parametrize("in_axes", [(0, None), (None, 0)])
def test_an_in_out_batched_alone_or_not_at_all(vmap_method, in_axes, mode):
  call = ffi.jax_callable(
    grow, num_outputs=2, in_out_argnames=["x"], graph_mode=mode, vmap_method=vmap_method
  )
  x, y = (
    jnp.arange(5 if axis is None else 15, dtype=jnp.float32).reshape(-1, 5)[
      0 if axis is None else slice(None)
    ]
    for axis in in_axes
  )
  grown, twice = jax.jit(jax.vmap(lambda x, y: tuple(call(x, y)), in_axes))(x, y)
  np.testing.assert_array_equal(grown, np.broadcast_to(x + y, (3, 5)))
  np.testing.assert_array_equal(twice, 2 * np.broadcast_to(x + y, (3, 5)))


@pytest.mark.parametrize("vmap_method", ["broadcast_all", "expand_dims"])
def test_an_empty_batch_gives_an_empty_result(vmap_method, mode):
  call = ffi.jax_callable(sums, num_outputs=2, graph_mode=mode, vmap_method=vmap_method)
  f = jax.vmap(lambda x, y: call(x, y)[0], (0, None))
  assert f(jnp.zeros((0, 5), jnp.float32), jnp.ones(5, jnp.float32)).shape == (0, 5)


def test_nested_vmap_folds_all_axes(mode, rng):
  call = ffi.jax_callable(turned, graph_mode=mode)
  m = rng.normal(size=(2, 5, 2, 2)).astype(np.float32)
  v = rng.normal(size=(3, 2, 5, 2)).astype(np.float32)
  f = jax.vmap(jax.vmap(lambda m, v: call(m, v, output_dims=5)[0]), (None, 0))
  expected = np.einsum("bnij,abnj->abni", m, v)
  # float32 products of two terms
  np.testing.assert_allclose(jax.jit(f)(m, v), expected, rtol=1e-5, atol=1e-6)


def test_arrays_of_many_dimensions_are_recognised_wherever_xla_keeps_them():
  call = ffi.jax_callable(halved, graph_mode=ffi.GraphMode.NONE)
  half = lambda x: call(x)[0]  # noqa: E731
  for _ in range(4):
    half = jax.vmap(half)

  @jax.jit
  def many(x):
    for _ in range(40):
      x = half(x)
    return x

  for n in range(2, 8):  # four dimensions lie in the frame of a call, five anywhere
    np.testing.assert_array_equal(
      many(jnp.ones((1, 2, 1, n, 3))), np.full((1, 2, 1, n, 3), 0.5**40)
    )


@pytest.mark.parametrize(
  ("call", "error", "message"),
  [
    (
      lambda c: c(jnp.ones(4, jnp.float32)),
      ValueError,
      r"Expected 2 inputs \(x, factor\), but got 1",
    ),
    (lambda c: c(jnp.ones(4, jnp.int32), 1.0), TypeError, "'x', expected float32, got int32"),
    (
      lambda c: c(jnp.ones((4, 2), jnp.float32), 1.0),
      TypeError,
      "'x', expected 1 dimensions, got 2",
    ),
    (lambda c: c([1.0], 1.0), TypeError, "'x' must be an array, got list"),
    (lambda c: c(jnp.ones(4, jnp.float32), 1.0, output_dims={"z": 4}), ValueError, "Missing.*'y'"),
    (
      lambda c: c(jnp.ones(4, jnp.float32), 1.0, output_dims=(4, 1)),
      ValueError,
      "Invalid output dim.*'y'",
    ),
  ],
)
def test_a_wrong_call_names_the_argument(call, error, message):
  with pytest.raises(error, match=message):
    call(ffi.jax_callable(scaled))


@pytest.mark.parametrize(
  ("options", "error", "message"),
  [
    ({"num_outputs": 0}, ValueError, "At least one output"),
    ({"num_outputs": 5}, ValueError, "greater than the number of arguments"),
    ({"in_out_argnames": ["x", "x"], "num_outputs": 2}, ValueError, "duplicate"),
    ({"in_out_argnames": ["nope"]}, ValueError, "nope"),
    ({"in_out_argnames": ["x", "y"]}, ValueError, "smaller than"),
    ({"in_out_argnames": ["double"], "num_outputs": 2}, ValueError, "argument double"),
    ({"graph_mode": 9}, ValueError, "9 is not a valid GraphMode"),
  ],
)
def test_wrong_options_are_refused(options, error, message):
  with pytest.raises(error, match=message):
    ffi.jax_callable(sums, **options)


def test_wrong_annotations_are_refused():
  def no_annotation(x, y: wp.array(dtype=float)): ...
  def returns(x: wp.array(dtype=float), y: wp.array(dtype=float)) -> int: ...
  def text(x: str, y: wp.array(dtype=float)): ...
  def scalar_output(x: wp.array(dtype=float), y: float): ...

  with pytest.raises(RuntimeError, match="'x' has none"):
    ffi.jax_callable(no_annotation)
  with pytest.raises(TypeError, match="must not return"):
    ffi.jax_callable(returns)
  with pytest.raises(TypeError, match="'x', expected an array"):
    ffi.jax_callable(text)
  with pytest.raises(TypeError, match="'y' is not"):
    ffi.jax_callable(scalar_output)


def test_differentiating_says_what_to_do():
  call = ffi.jax_callable(scaled)
  for transform in (jax.grad, jax.jacfwd):
    with pytest.raises(ValueError, match="cannot be differentiated"):
      transform(lambda x: call(x, 2.0)[0].sum())(jnp.ones(4, jnp.float32))
