"""`jax_kernel`: launches, dtypes, batches and reverse-mode derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.third_party import warp as ffi
from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.calls import target
from mjx_warp_ffi.third_party.warp.kernels import kernel_launch
from mjx_warp_ffi.third_party.warp.signature import folding
from support.ffi_helpers import (
  DEVICES,
  DTYPES,
  MODES,
  add,
  doubled_kernel,
  grow_kernel,
  local_device,
  matmul,
  neighbours,
  outer,
  product,
  rows,
  scale,
  total,
  turn,
)


@pytest.fixture(params=DEVICES)
def device(request):
  return local_device(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_that_both_share_goes_through(dtype, device):
  with jax.enable_x64("64" in dtype):
    call = jax.jit(ffi.jax_kernel(doubled_kernel(dtype)))
    for values in ([0, 1, 1, 0, 1], [1, 0, 0, 1, 1]):
      x = jax.device_put(jnp.array(values, dtype), device)
      (y,) = call(x)
      expected = ~np.asarray(x) if dtype == "bool" else np.asarray(x) + np.asarray(x)
      assert y.dtype == x.dtype
      np.testing.assert_array_equal(y, expected)


def test_the_launch_has_the_shape_of_the_first_array_unless_told(device):
  x, y = (jax.device_put(jnp.arange(n, dtype=jnp.float32), device) for n in (3, 4))
  call = ffi.jax_kernel(outer, launch_dims=(3, 4))
  np.testing.assert_array_equal(jax.jit(call)(x, y)[0], np.outer(x, y))
  call = ffi.jax_kernel(outer)
  (z,) = call(x, y, launch_dims=(3, 4), output_dims={"z": (3, 4)})
  np.testing.assert_array_equal(z, np.outer(x, y))
  (z,) = ffi.jax_kernel(scale, output_dims=3)(x, 2.0)
  np.testing.assert_array_equal(z, 2 * x)


def test_vectors_and_matrices_are_trailing_axes(device, rng):
  m = jax.device_put(rng.normal(size=(5, 2, 2)).astype(np.float32), device)
  v = jax.device_put(rng.normal(size=(5, 2)).astype(np.float32), device)
  (w,) = jax.jit(ffi.jax_kernel(turn))(m, v)
  # float32 products of two terms
  np.testing.assert_allclose(w, np.einsum("nij,nj->ni", m, v), rtol=1e-5, atol=1e-6)


def test_in_outs_are_results_and_leave_the_argument_alone(device):
  call = ffi.jax_kernel(grow_kernel, num_outputs=2, in_out_argnames=["x"])
  x, y = (jax.device_put(jnp.full(4, v, jnp.float32), device) for v in (1.0, 10.0))
  for _ in range(2):
    grown, twice = jax.jit(call)(x, y)
    np.testing.assert_array_equal(grown, np.full(4, 11.0))
    np.testing.assert_array_equal(twice, np.full(4, 22.0))
    np.testing.assert_array_equal(x, np.full(4, 1.0))


@pytest.mark.parametrize("block_dim", [None, 1, 64, 100])
def test_a_block_dim_does_not_change_the_result(block_dim, device):
  call = ffi.jax_kernel(scale, block_dim=block_dim)
  assert call.block_dim == block_dim
  x = jax.device_put(jnp.arange(300.0, dtype=jnp.float32), device)
  np.testing.assert_array_equal(call(x, 2.0)[0], 2 * np.arange(300.0))


@pytest.mark.parametrize(
  ("block_dim", "error"), [(0, ValueError), (True, TypeError), ("x", TypeError)]
)
def test_a_wrong_block_dim_is_refused(block_dim, error):
  with pytest.raises(error, match="block_dim"):
    ffi.jax_kernel(scale, block_dim=block_dim)


def test_an_empty_launch_and_a_scan_work(device):
  call = ffi.jax_kernel(scale)
  assert call(jnp.zeros(0, jnp.float32), 2.0)[0].shape == (0,)
  x = jax.device_put(jnp.arange(4.0, dtype=jnp.float32), device)
  f = jax.jit(lambda x: jax.lax.scan(lambda c, _: (call(c, 2.0)[0], None), x, None, length=9)[0])
  np.testing.assert_array_equal(f(x), 512 * np.arange(4.0))


@wp.kernel
def generic(x: wp.array(dtype=Any), y: wp.array(dtype=Any)):
  i = wp.tid()
  y[i] = x[i]


def test_a_generic_kernel_is_refused_and_its_overload_is_not():
  with pytest.raises(TypeError, match="wp.overload"):
    ffi.jax_kernel(generic)
  overload = wp.overload(generic, [wp.array(dtype=float), wp.array(dtype=float)])
  np.testing.assert_array_equal(ffi.jax_kernel(overload)(jnp.ones(4, jnp.float32))[0], np.ones(4))


# ---------------------------------------------------------------------------------------- vmap


@pytest.mark.parametrize(
  ("kernel", "expected"), [(scale, True), (add, True), (turn, True), (outer, False)]
)
def test_kernels_that_index_by_the_first_thread_index_only_are_folded(kernel, expected):
  arrays = [arg.label for arg in kernel.adj.args if isinstance(arg.type, wp.array)]
  assert folding.foldable(kernel.func, arrays) is expected


@pytest.mark.parametrize("kernel", [matmul, neighbours, total, rows])
def test_kernels_that_look_beyond_their_own_entry_are_not_folded(kernel):
  arrays = [arg.label for arg in kernel.adj.args]
  assert not folding.foldable(kernel.func, arrays)


METHODS = "sequential sequential_unrolled expand_dims broadcast_all legacy_vectorized".split()


@pytest.mark.parametrize("vmap_method", METHODS)
@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0), (1, -1)])
def test_vmap_of_a_kernel_that_reads_beyond_its_entry_equals_a_loop(
  vmap_method, in_axes, device, rng
):
  call = ffi.jax_kernel(matmul, vmap_method=vmap_method)
  shapes = [{0: (3, 4, 4), 1: (4, 3, 4), -1: (4, 4, 3), None: (4, 4)}[a] for a in in_axes]
  a, b = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
  f = jax.jit(jax.vmap(lambda a, b: call(a, b)[0], in_axes))
  expected = jax.vmap(lambda a, b: a @ b, in_axes)(a, b)
  result = f(jax.device_put(a, device), jax.device_put(b, device))
  # float32 sums of four terms, in another order
  np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("vmap_method", METHODS)
@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0), (1, None), (None, -1)])
def test_vmap_of_a_kernel_that_folds_equals_a_loop(vmap_method, in_axes, device, rng):
  call = ffi.jax_kernel(product, vmap_method=vmap_method)
  shapes = [{0: (3, 4), 1: (4, 3), -1: (4, 3), None: (4,)}[a] for a in in_axes]
  x, y = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
  f = jax.jit(jax.vmap(lambda x, y: call(x, y)[0], in_axes))
  result = f(jax.device_put(x, device), jax.device_put(y, device))
  np.testing.assert_array_equal(result, jax.vmap(jnp.multiply, in_axes)(x, y))


@pytest.mark.parametrize("vmap_method", ["expand_dims", "legacy_vectorized"])
def test_nested_batches_of_each_argument_alone(vmap_method, rng):
  call = ffi.jax_kernel(product, vmap_method=vmap_method)
  x, y = (rng.normal(size=(n, 5)).astype(np.float32) for n in (2, 3))
  f = jax.vmap(jax.vmap(lambda x, y: call(x, y)[0], (None, 0)), (0, None))
  np.testing.assert_array_equal(jax.jit(f)(x, y), x[:, None] * y)


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0), (1, -1)])
def test_vmap_of_a_kernel_with_a_launch_of_its_own_equals_a_loop(in_axes, rng):
  call = ffi.jax_kernel(outer, launch_dims=(4, 4))
  shapes = [{0: (3, 4), 1: (4, 3), -1: (4, 3), None: (4,)}[a] for a in in_axes]
  x, y = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
  result = jax.jit(jax.vmap(lambda x, y: call(x, y)[0], in_axes))(x, y)
  np.testing.assert_array_equal(result, jax.vmap(jnp.outer, in_axes)(x, y))


def test_a_launch_shorter_than_the_array_stays_short_in_every_entry(rng):
  call = ffi.jax_kernel(scale, launch_dims=2, output_dims=5)
  x = rng.normal(size=(3, 5)).astype(np.float32)
  result = jax.jit(jax.vmap(lambda x: call(x, 2.0)[0]))(x)
  np.testing.assert_array_equal(result[:, :2], 2 * x[:, :2])


def test_nested_vmap_folds_all_axes(rng):
  call = ffi.jax_kernel(add)
  x = rng.normal(size=(2, 5)).astype(np.float32)
  y = rng.normal(size=(3, 2, 5)).astype(np.float32)
  f = jax.jit(jax.vmap(jax.vmap(lambda x, y: call(x, y)[0]), (None, 0)))
  np.testing.assert_array_equal(f(x, y), x + y)


# ----------------------------------------------------------------------- wrappers and devices


def test_equal_arguments_give_the_same_object_and_any_other_option_another():
  first = ffi.jax_kernel(scale)
  assert ffi.jax_kernel(scale, 1) is first
  others = [
    ffi.jax_kernel(scale, vmap_method="sequential"),
    ffi.jax_kernel(scale, launch_dims=4),
    ffi.jax_kernel(scale, output_dims=4),
    ffi.jax_kernel(scale, in_out_argnames=["x"], num_outputs=2),
    ffi.jax_kernel(scale, module_preload_mode=ffi.ModulePreloadMode.ALL_DEVICES),
    ffi.jax_kernel(scale, has_side_effect=True),
    ffi.jax_kernel(scale, block_dim=32),
    ffi.jax_kernel(add),
  ]
  assert len({first.name, *(other.name for other in others)}) == 9
  assert ffi.jax_kernel(scale, enable_backward=True) is ffi.jax_kernel(scale, enable_backward=True)


def test_retraces_register_nothing_new():
  f = jax.jit(lambda x, n: ffi.jax_kernel(scale, enable_backward=True)(x, 2.0)[0] + n.shape[0])
  f(jnp.ones(4, jnp.float32), jnp.zeros(100, jnp.float32))
  before = target.registered()
  for i in range(40):
    np.testing.assert_array_equal(
      f(jnp.ones(4, jnp.float32), jnp.zeros(i, jnp.float32)), np.full(4, 2.0 + i)
    )
  assert target.registered() == before


@pytest.mark.gpu
def test_xla_captures_a_lone_launch_in_a_scan():
  call = ffi.jax_kernel(scale)
  x = jax.device_put(jnp.ones(4, jnp.float32), local_device("cuda"))
  f = jax.jit(
    lambda x: jax.lax.scan(lambda c, _: (call(c, 2.0)[0], None), x, None, length=8)[0],
    compiler_options={"xla_gpu_graph_min_graph_size": 1},
  )
  for _ in range(3):
    np.testing.assert_array_equal(f(x), np.full(4, 256.0))


def test_only_a_plain_launch_is_taken_apart():
  """Warp makes another kind on CUDA for kernels whose sums have a fixed order."""

  class InOrder(wp.Launch):
    pass

  x = wp.zeros(3, dtype=float, device="cpu")
  launch = wp.launch(scale, dim=3, inputs=[x, 1.0], outputs=[x], device="cpu", record_cmd=True)
  assert runtime.is_plain(launch)
  launch.__class__ = InOrder
  assert not runtime.is_plain(launch)


def test_what_is_not_a_plain_launch_follows_the_buffers(monkeypatch, rng):
  launched = []
  launch_arrays = kernel_launch.KernelLauncher._launch_arrays

  def noted(self, stream):
    launched.append(self._plan.kind.split()[0])
    launch_arrays(self, stream)

  monkeypatch.setattr(runtime, "is_plain", lambda launch: False)
  monkeypatch.setattr(kernel_launch.KernelLauncher, "_launch_arrays", noted)
  kernel = ffi.jax_kernel(scale, enable_backward=True, has_side_effect=True)
  x = rng.normal(size=(3, 4, 7)).astype(np.float32)
  run = jax.jit(jax.vmap(jax.vmap(lambda x: kernel(kernel(x, 3.0)[0] + 1, 2.0)[0])))
  np.testing.assert_allclose(run(x), 6 * x + 2, rtol=1e-6)
  gradient = jax.jit(jax.grad(lambda x: jnp.sum(kernel(x * x, 0.5)[0])))
  for n in (5, 6):
    y = rng.normal(size=n).astype(np.float32)
    np.testing.assert_allclose(gradient(y), y, rtol=1e-6)
  assert launched == ["forward"] * 2 + ["forward", "adjoint"] * 2


@wp.kernel(module="unique", module_options={"deterministic": wp.DeterministicMode.RUN_TO_RUN})
def summed(x: wp.array(dtype=float), sums: wp.array(dtype=float)):
  i = wp.tid()
  wp.atomic_add(sums, i % sums.shape[0], x[i])


def summed_by(mode):
  """The kernel by itself, without a mode, or launched by a body."""

  def body(x: wp.array(dtype=float), sums: wp.array(dtype=float)):
    wp.launch(summed, x.shape, inputs=[x], outputs=[sums])

  if mode is None:
    return ffi.jax_kernel(summed, launch_dims=50_000, in_out_argnames=["sums"])
  return ffi.jax_callable(body, graph_mode=mode, in_out_argnames=["sums"])


@pytest.mark.parametrize("mode", [None, *(m for m in MODES if m != ffi.GraphMode.JAX)])
def test_a_kernel_whose_sums_have_a_fixed_order_repeats_on_other_buffers(mode, device, rng):
  call = summed_by(mode)
  x = rng.normal(size=50_000).astype(np.float32)
  run = jax.jit(lambda x, start: jnp.stack([call(x, start + i)[0] - i for i in range(6)]))
  given, others = (
    [jax.device_put(a, device) for a in (x.copy(), np.zeros(3, np.float32))] for _ in range(2)
  )
  first = run(*given)
  expected = np.array([x[i::3].sum(dtype=np.float64) for i in range(3)])
  np.testing.assert_allclose(first, np.tile(expected, (6, 1)), atol=0.05)
  for _ in range(5):
    np.testing.assert_array_equal(run(*given), first)
    np.testing.assert_array_equal(run(*others), first)
