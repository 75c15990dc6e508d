"""`register_ffi_callback`: buffers, attributes and the execution context."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.third_party import warp as ffi
from support.ffi_helpers import DEVICES, local_device, run_python, scale

FLOATS = jax.ShapeDtypeStruct((3,), jnp.float32)


@pytest.fixture(params=DEVICES)
def device(request):
  return local_device(request.param)


def test_a_callback_reads_arguments_and_writes_results(device):
  def function(inputs, outputs, attrs, ctx):
    warp_device = "cpu" if ctx.platform == "cpu" else f"cuda:{ctx.device_ordinal}"
    x, y = (
      wp.array(ptr=b.data, shape=b.shape, dtype=float, device=warp_device)
      for b in (*inputs, *outputs)
    )
    stream = None if ctx.platform == "cpu" else wp.Stream(warp_device, cuda_stream=ctx.stream)
    factor = float(attrs["factor"])
    wp.launch(scale, 3, inputs=[x, factor], outputs=[y], device=warp_device, stream=stream)

  ffi.register_ffi_callback(f"test_callback_write_{device.platform}", function)
  call = jax.ffi.ffi_call(f"test_callback_write_{device.platform}", FLOATS)
  f = jax.jit(lambda x: call(x, factor=np.float32(3.0)))
  for value in (1.0, 2.0):
    x = jax.device_put(jnp.full(3, value, jnp.float32), device)
    np.testing.assert_array_equal(f(x), np.full(3, 3 * value))


def test_buffers_and_attributes_of_every_kind_arrive():
  seen = {}

  def function(inputs, outputs, attrs, ctx):
    seen.update(inputs=inputs, outputs=outputs, attrs=attrs, ctx=ctx)
    seen["values"] = np.asarray(inputs[1]).copy()
    np.asarray(outputs[0])[:] = 0

  ffi.register_ffi_callback("test_callback_kinds", function)
  attrs = {
    "text": "ä word",
    "empty": "",
    "whole": np.int64(-5),
    "small": np.uint8(200),
    "real": np.float64(0.25),
    "flag": np.bool_(True),
    "list": np.arange(3, dtype=np.int32),
    "none": np.zeros(0, np.float32),
    "inner": {"a": np.float32(1.5), "b": "deep"},
  }
  call = jax.ffi.ffi_call("test_callback_kinds", FLOATS)
  args = (
    jnp.zeros((), jnp.bfloat16),
    jnp.arange(6, dtype=jnp.int16).reshape(2, 3),
    jnp.zeros(0, jnp.float32),
  )
  args = jax.device_put(args, jax.devices("cpu")[0])  # NumPy reads them
  call(*args, **attrs).block_until_ready()
  assert [b.shape for b in seen["inputs"]] == [(), (2, 3), (0,)]
  assert [b.dtype for b in seen["inputs"]] == [jnp.bfloat16, np.int16, np.float32]
  assert [(b.shape, b.dtype) for b in seen["outputs"]] == [((3,), np.float32)]
  np.testing.assert_array_equal(seen["values"], np.arange(6).reshape(2, 3))
  got = seen["attrs"]
  assert set(got) == set(attrs)
  assert (got["text"], got["empty"], got["inner"]["b"]) == ("ä word", "", "deep")
  for name in ("whole", "small", "real", "flag", "list", "none"):
    np.testing.assert_array_equal(got[name], attrs[name])
    assert got[name].dtype == attrs[name].dtype
  assert got["inner"]["a"] == np.float32(1.5)
  assert seen["ctx"].stage.name == "EXECUTE"
  assert (seen["ctx"].platform, seen["ctx"].stream, seen["ctx"].device_ordinal) == ("cpu", 0, 0)


@pytest.mark.parametrize("rank", [0, 1, 4, 5, 8])
def test_shapes_of_any_rank_arrive(rank):
  seen = []

  def function(inputs, outputs, attrs, ctx):
    seen.extend([inputs[0].shape, outputs[0].shape])
    np.asarray(outputs[0])[...] = np.asarray(inputs[0])

  name = f"test_callback_rank_{rank}"
  ffi.register_ffi_callback(name, function)
  shape = (2, 1, 3, 1, 2, 1, 1, 2)[:rank]
  x = jnp.arange(float(np.prod(shape, dtype=int))).reshape(shape)
  x = jax.device_put(x, local_device("cpu"))  # NumPy reads it
  y = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(shape, jnp.float32))(x)
  assert seen == [shape, shape]
  np.testing.assert_array_equal(y, x)


def test_an_exception_reaches_the_caller_with_its_traceback(capfd):
  def function(inputs, outputs, attrs, ctx):
    raise ValueError("in the callback: \0 and ä")

  ffi.register_ffi_callback("test_callback_fails", function)
  with pytest.raises(jax.errors.JaxRuntimeError, match="(?s)test_callback.py.*in the callback"):
    jax.ffi.ffi_call("test_callback_fails", FLOATS)(jnp.ones(3, jnp.float32)).block_until_ready()
  assert capfd.readouterr() == ("", "")


def test_a_name_stands_for_one_function():
  def function(inputs, outputs, attrs, ctx): ...

  ffi.register_ffi_callback("test_callback_name", function)
  ffi.register_ffi_callback("test_callback_name", function)
  with pytest.raises(ValueError, match="'test_callback_name' is registered already"):
    ffi.register_ffi_callback("test_callback_name", lambda *_: None)
  with pytest.raises(ValueError, match="is registered already"):
    ffi.register_ffi_callback("test_callback_name", function, graph_compatible=False)


ORDINALS = """
import jax, jax.numpy as jnp, numpy as np
from mjx_warp_ffi.third_party import warp as ffi
def function(inputs, outputs, attrs, ctx):
  np.asarray(outputs[0])[:] = ctx.device_ordinal
ffi.register_ffi_callback("ordinal", function)
f = jax.jit(lambda x: jax.ffi.ffi_call("ordinal", jax.ShapeDtypeStruct((3,), jnp.float32))(x))
for i, device in enumerate(jax.devices()):
  np.testing.assert_array_equal(f(jax.device_put(jnp.ones(3, jnp.float32), device)), np.full(3, i))
"""


def test_the_context_tells_virtual_devices_apart():
  run_python(ORDINALS, devices=4)


def test_the_installed_jax_is_new_enough(monkeypatch):
  ffi.check_jax_version()
  monkeypatch.setattr(jax, "__version_info__", (0, 4, 30))
  with pytest.raises(RuntimeError, match="JAX 0.8.0 or newer"):
    ffi.check_jax_version()


@pytest.mark.gpu
def test_numpy_is_kept_from_memory_of_the_gpu():
  def function(inputs, outputs, attrs, ctx):
    np.asarray(inputs[0])

  ffi.register_ffi_callback("test_callback_numpy", function)
  x = jax.device_put(jnp.ones(3, jnp.float32), jax.devices("gpu")[0])
  with pytest.raises(jax.errors.JaxRuntimeError, match=r"wp\.array\(buffer"):
    jax.ffi.ffi_call("test_callback_numpy", FLOATS)(x).block_until_ready()
