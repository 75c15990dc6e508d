"""Derivatives of kernels: right, or refused in words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mjx_warp_ffi.third_party import warp as ffi
from support.ffi_helpers import (
  DEVICES,
  grow_kernel,
  local_device,
  loss,
  matmul,
  neighbours,
  no_adjoint,
  outer,
  pick,
  product,
  rows,
  run_python,
  scale,
  total,
)


@pytest.fixture(params=DEVICES)
def device(request):
  return local_device(request.param)


def differences(function, x, eps=1e-4):
  """Central differences in float64."""
  x = np.asarray(x, np.float64)
  steps = eps * np.eye(x.size)
  return np.array([(function(x + step) - function(x - step)) / (2 * eps) for step in steps])


@pytest.mark.parametrize(
  ("kernel", "statics", "reference"),
  [
    (scale, (2.0,), lambda x: np.sum(np.sin(2 * x))),
    (neighbours, (), lambda x: np.sum(np.sin(x + np.roll(x, -1)))),
  ],
)
def test_gradients_equal_central_differences(kernel, statics, reference, device, rng):
  call = ffi.jax_kernel(kernel, enable_backward=True)
  x = jax.device_put(rng.normal(size=5).astype(np.float32), device)
  for transform in (lambda f: f, jax.jit):
    gradient = transform(jax.grad(lambda x: loss(call(x, *statics)[0])))(x)
    # float32 against float64 differences with an error of eps^2 = 1e-8
    np.testing.assert_allclose(gradient, differences(reference, x), rtol=1e-5, atol=1e-5)


def test_gradients_of_a_matrix_product_reach_both_factors(device, rng):
  call = ffi.jax_kernel(matmul, enable_backward=True)
  a, b = (jax.device_put(rng.normal(size=(4, 4)).astype(np.float32), device) for _ in range(2))
  mine = jax.jit(jax.grad(lambda a, b: loss(call(a, b)[0]), (0, 1)))(a, b)
  theirs = jax.grad(lambda a, b: loss(a @ b), (0, 1))(a, b)
  for x, y in zip(mine, theirs, strict=True):
    # float32 sums of four terms, in another order
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_an_argument_used_twice_gets_both_gradients(device):
  call = ffi.jax_kernel(product, enable_backward=True)
  x = jax.device_put(jnp.arange(1.0, 5.0, dtype=jnp.float32), device)
  np.testing.assert_array_equal(jax.grad(lambda x: call(x, x)[0].sum())(x), 2 * np.arange(1.0, 5.0))


def test_gradients_start_at_zero_in_every_call(device):
  call = ffi.jax_kernel(scale, enable_backward=True)
  gradient = jax.jit(jax.grad(lambda x: call(x, 3.0)[0].sum()))
  for _ in range(3):
    x = jax.device_put(jnp.arange(4.0, dtype=jnp.float32), device)
    np.testing.assert_array_equal(gradient(x), np.full(4, 3.0))


def test_outputs_that_are_accumulated_start_at_zero(device):
  call = ffi.jax_kernel(total, enable_backward=True)
  x = jax.device_put(jnp.arange(4.0, dtype=jnp.float32), device)
  for _ in range(2):
    value, gradient = jax.jit(jax.value_and_grad(lambda x: call(x)[0][0]))(x)
    assert value == 14
    np.testing.assert_array_equal(gradient, 2 * np.arange(4.0))


def test_integer_inputs_have_no_gradient_but_route_it(device):
  call = ffi.jax_kernel(pick, enable_backward=True)
  x = jax.device_put(jnp.arange(4.0, dtype=jnp.float32), device)
  index = jax.device_put(jnp.array([2, 2, 0, 1], jnp.int32), device)
  gradient = jax.jit(jax.grad(lambda x: call(x, index)[0].sum()))(x)
  np.testing.assert_array_equal(gradient, [3.0, 3.0, 6.0, 0.0])
  (none,) = jax.vjp(lambda i: call(x, i)[0], index)[1](jnp.ones(4, jnp.float32))
  assert none.dtype == jax.dtypes.float0


@pytest.mark.parametrize("kernel", [matmul, outer])
def test_vmap_of_grad_and_grad_of_vmap_equal_a_loop(kernel, device, rng):
  options = {"launch_dims": (4, 4)} if kernel is outer else {}
  call = ffi.jax_kernel(kernel, enable_backward=True, **options)
  shape = (3, 4) if kernel is outer else (3, 4, 4)
  a, b = (jax.device_put(rng.normal(size=shape).astype(np.float32), device) for _ in range(2))

  def one(a, b):
    return loss(call(a, b)[0])

  loop = np.stack([jax.grad(one)(a[i], b[i]) for i in range(3)])
  inside = jax.jit(jax.vmap(jax.grad(one)))(a, b)
  outside = jax.jit(jax.grad(lambda a, b: jax.vmap(one)(a, b).sum()))(a, b)
  # the same launches, float32
  np.testing.assert_allclose(inside, loop, rtol=1e-6, atol=1e-6)
  np.testing.assert_allclose(outside, loop, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("vmap_method", ["broadcast_all", "expand_dims", "sequential"])
def test_the_gradient_of_a_shared_argument_sums_over_the_batch(vmap_method, rng):
  call = ffi.jax_kernel(matmul, enable_backward=True, vmap_method=vmap_method)
  a = rng.normal(size=(4, 4)).astype(np.float32)
  b = rng.normal(size=(3, 4, 4)).astype(np.float32)
  gradient = jax.grad(lambda a: jax.vmap(lambda b: loss(call(a, b)[0]))(b).sum())(a)
  theirs = jax.grad(lambda a: jax.vmap(lambda b: loss(a @ b))(b).sum())(a)
  # float32 sums of twelve terms, in another order
  np.testing.assert_allclose(gradient, theirs, rtol=1e-5, atol=1e-5)


def test_a_launch_over_more_axes_than_thread_indices_is_refused():
  call = ffi.jax_kernel(rows, enable_backward=True)
  with pytest.raises(ValueError, match="uses 1 thread indices.*pass launch_dims"):
    jax.grad(lambda x: call(x)[0].sum())(jnp.ones((3, 4), jnp.float32))
  with pytest.raises(ValueError, match="uses 1 thread indices"):
    ffi.jax_kernel(rows, enable_backward=True, launch_dims=(3, 4))(jnp.ones((3, 4), jnp.float32))


@pytest.mark.parametrize(
  ("kernel", "options", "error", "message"),
  [
    (
      grow_kernel,
      {"num_outputs": 2, "in_out_argnames": ["x"]},
      NotImplementedError,
      "in_out_argnames",
    ),
    (scale, {"output_dims": 4}, NotImplementedError, "output_dims"),
    (no_adjoint, {}, ValueError, "enable_backward=False"),
  ],
)
def test_what_has_no_gradient_is_refused_when_wrapped(kernel, options, error, message):
  with pytest.raises(error, match=message):
    ffi.jax_kernel(kernel, enable_backward=True, **options)


def test_overrides_and_forward_mode_are_refused_in_words():
  call = ffi.jax_kernel(scale, enable_backward=True)
  with pytest.raises(TypeError, match="launch_dims cannot be overridden"):
    call(jnp.ones(4, jnp.float32), 2.0, launch_dims=4)
  with pytest.raises(TypeError, match="forward-mode"):
    jax.jvp(lambda x: call(x, 2.0)[0], (jnp.ones(4, jnp.float32),), (jnp.ones(4, jnp.float32),))
  with pytest.raises(ValueError, match="cannot be differentiated"):
    jax.grad(lambda x: jax.grad(lambda x: call(x, 2.0)[0].sum())(x).sum())(jnp.ones(4, jnp.float32))
  with pytest.raises(ValueError, match="cannot be differentiated"):
    jax.grad(lambda x: ffi.jax_kernel(scale)(x, 2.0)[0].sum())(jnp.ones(4, jnp.float32))


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from mjx_warp_ffi.third_party import warp as ffi
from support import ffi_helpers as h
call = ffi.jax_kernel(h.matmul, enable_backward=True)
a = np.random.default_rng(0).normal(size=(8, 4, 4)).astype(np.float32)
mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
one = jax.grad(lambda a: h.loss(call(a, a)[0]))
expected = np.stack([one(x) for x in a])
f = jax.jit(jax.shard_map(jax.vmap(one), mesh=mesh, in_specs=P("i"), out_specs=P("i")))
for _ in range(3):
  # the same launches, float32
  np.testing.assert_allclose(f(a), expected, rtol=1e-6, atol=1e-6)
  np.testing.assert_allclose(jax.pmap(one)(a), expected, rtol=1e-6, atol=1e-6)
"""


def test_sharded_gradients_equal_those_of_one_device():
  run_python(SHARDED, devices=8)
