"""What the tests of the FFI core share."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
import warp as wp

from mjx_warp_ffi.third_party import warp as ffi
from support import helpers

MODES = list(ffi.GraphMode)
CAPTURED = [ffi.GraphMode.WARP, ffi.GraphMode.WARP_STAGED, ffi.GraphMode.WARP_STAGED_EX]
STAGED = CAPTURED[1:]
DTYPES = (
  "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def local_device(platform):
  """The first JAX device of a platform."""
  return jax.local_devices(backend=platform)[0]


def run_python(code, *, devices=1, platform="cpu", timeout=300, **environment):
  """Runs code in a process of its own, with virtual CPU devices; returns what it printed."""
  flags = f"--xla_force_host_platform_device_count={devices}"
  variables = {"XLA_FLAGS": flags, "JAX_PLATFORMS": platform} | environment
  done = subprocess.run(
    [sys.executable, "-c", code],
    env=helpers.environment(**variables),
    capture_output=True,
    text=True,
    timeout=timeout,
  )
  assert done.returncode == 0, done.stderr[-4000:]
  return done.stdout


def loss(z):
  """A smooth number of an array, to be differentiated."""
  return jnp.sum(jnp.sin(z))


@wp.kernel
def scale(x: wp.array(dtype=float), factor: float, y: wp.array(dtype=float)):
  i = wp.tid()
  y[i] = factor * x[i]


@functools.cache
def doubled_kernel(dtype):
  """A kernel for one dtype: y = x + x, or not x."""
  kind = getattr(wp, dtype)

  def body(x: wp.array(dtype=kind), y: wp.array(dtype=kind)):
    i = wp.tid()
    y[i] = (not x[i]) if wp.static(dtype == "bool") else x[i] + x[i]

  return wp.Kernel(body, key=f"doubled_{dtype}", module=wp.get_module(f"doubled_{dtype}"))


@wp.kernel
def add(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=float)):
  i = wp.tid()
  z[i] = x[i] + y[i]


@wp.kernel
def turn(m: wp.array(dtype=wp.mat22), v: wp.array(dtype=wp.vec2), w: wp.array(dtype=wp.vec2)):
  i = wp.tid()
  w[i] = m[i] * v[i]


def scaled(x: wp.array(dtype=float), factor: float, y: wp.array(dtype=float)):
  wp.launch(scale, dim=x.shape, inputs=[x, factor], outputs=[y])


def halved(x: wp.array(dtype=float), y: wp.array(dtype=float)):
  wp.launch(scale, dim=x.shape, inputs=[x, 0.5], outputs=[y])


def sums(
  x: wp.array(dtype=float),
  y: wp.array(dtype=float),
  total: wp.array(dtype=float),
  double: wp.array(dtype=float),
):
  wp.launch(add, dim=x.shape, inputs=[x, y], outputs=[total])
  wp.launch(scale, dim=x.shape, inputs=[total, 2.0], outputs=[double])


def grow(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=float)):
  """Adds y to x in place; z is twice the new x."""
  wp.launch(add, dim=x.shape, inputs=[x, y], outputs=[x])
  wp.launch(scale, dim=x.shape, inputs=[x, 2.0], outputs=[z])


def turned(m: wp.array(dtype=wp.mat22), v: wp.array(dtype=wp.vec2), w: wp.array(dtype=wp.vec2)):
  wp.launch(turn, dim=v.shape, inputs=[m, v], outputs=[w])


def counted():
  """A function that counts the runs of its body."""
  runs = []

  def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    runs.append(1)
    wp.launch(scale, dim=x.shape, inputs=[x, 2.0], outputs=[y])

  return body, runs


@wp.kernel
def outer(x: wp.array[float], y: wp.array[float], z: wp.array2d[float]):
  i, j = wp.tid()
  z[i, j] = x[i] * y[j]


@wp.kernel
def matmul(a: wp.array2d(dtype=float), b: wp.array2d(dtype=float), c: wp.array2d(dtype=float)):
  i, j = wp.tid()
  entry = wp.float32(0.0)  # a variable: Warp takes a bare 0.0 for a constant
  for k in range(a.shape[1]):
    entry += a[i, k] * b[k, j]
  c[i, j] = entry


@wp.kernel
def neighbours(x: wp.array(dtype=float), y: wp.array(dtype=float)):
  i = wp.tid()
  y[i] = x[i] + x[(i + 1) % x.shape[0]]


@wp.kernel
def total(x: wp.array(dtype=float), y: wp.array(dtype=float)):
  i = wp.tid()
  wp.atomic_add(y, 0, x[i] * x[i])


@wp.kernel
def rows(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
  i = wp.tid()
  for j in range(x.shape[1]):
    y[i, j] = x[i, j] * x[i, j]


@wp.kernel
def product(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=float)):
  i = wp.tid()
  z[i] = x[i] * y[i]


@wp.kernel
def grow_kernel(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=float)):
  i = wp.tid()
  x[i] = x[i] + y[i]
  z[i] = 2.0 * x[i]


@wp.kernel
def pick(x: wp.array(dtype=float), index: wp.array(dtype=int), y: wp.array(dtype=float)):
  i = wp.tid()
  y[i] = 3.0 * x[index[i]]


@wp.kernel(enable_backward=False)
def no_adjoint(x: wp.array(dtype=float), y: wp.array(dtype=float)):
  i = wp.tid()
  y[i] = x[i]
