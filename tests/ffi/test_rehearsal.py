"""Compiling what a body launches side by side, before it launches anything."""

import threading

import jax
import mujoco
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi import mjx
from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.process import rehearsal
from support import helpers
from support.ffi_helpers import DEVICES, local_device


def kernel(factor):
  """A kernel in a module of its own."""

  @wp.kernel(module="unique")
  def times(x: wp.array(dtype=float)):
    x[wp.tid()] *= wp.static(float(factor))

  return times


def loaded(kernel):
  return bool(kernel.module.execs)


def launch(kernel, x):
  wp.launch(kernel, dim=x.shape, inputs=[x], device="cpu")


def test_a_rehearsal_loads_modules_in_loops_and_branches_and_launches_nothing():
  kernels = [kernel(n) for n in (11, 12, 13, 14)]
  x, always = wp.ones(3, dtype=float, device="cpu"), wp.ones(1, dtype=int, device="cpu")
  turns = []

  def loop(more):
    turns.append(more)
    launch(kernels[1], x)

  def body():
    launch(kernels[0], x)
    wp.capture_while(always, while_body=loop, more=5)
    wp.capture_if(
      always, on_true=lambda: launch(kernels[2], x), on_false=lambda: launch(kernels[3], x)
    )
    wp.capture_if(always)

  rehearsal.compile_modules(body, wp.get_device("cpu"))
  assert all(map(loaded, kernels))
  assert turns == [5]
  np.testing.assert_array_equal(x.numpy(), 1)
  launch(kernels[0], x)
  np.testing.assert_array_equal(x.numpy(), 11)


def test_numbers_that_no_kernel_has_written_are_not_used():
  segments = wp.full(2, -5, dtype=int, device="cpu")
  keys, values = (wp.zeros(4, dtype=kind, device="cpu") for kind in (float, int))
  later = kernel(15)

  def body():
    launch(kernel(16), keys)
    wp.utils.segmented_sort_pairs(keys, values, 2, segments[:1], segments[1:])
    launch(later, keys)

  rehearsal.compile_modules(body, wp.get_device("cpu"))
  assert loaded(later)
  with pytest.raises(ValueError, match="segment"):
    body()


@pytest.mark.parametrize("device", DEVICES)
def test_a_question_to_a_module_is_answered_without_it(device):
  device = wp.device_from_jax(local_device(device))
  asked, launched = kernel(18), kernel(19)
  x = wp.ones(3, dtype=float, device=device)

  def body():
    size, count = wp.get_suggested_block_size(asked, device)
    wp.launch(launched, dim=3, inputs=[x], device=device, max_blocks=size * count)

  rehearsal.compile_modules(body, device)
  assert loaded(asked) == device.is_cuda
  assert loaded(launched)
  np.testing.assert_array_equal(x.numpy(), 1)
  body()
  np.testing.assert_array_equal(x.numpy(), 19)


def test_an_error_is_left_to_the_run():
  first = kernel(17)

  def body():
    launch(first, wp.ones(3, dtype=float, device="cpu"))
    raise KeyError("of the run")

  rehearsal.compile_modules(body, wp.get_device("cpu"))
  assert loaded(first)


def test_other_threads_launch_in_the_meantime():
  x = wp.ones(3, dtype=float, device="cpu")
  steps = wp.ones(1, dtype=int, device="cpu")
  triple = kernel(3)

  def other():
    launch(triple, x)
    wp.capture_while(steps, while_body=steps.zero_)
    wp.capture_if(steps, on_false=lambda: launch(triple, x))

  def body():
    thread = threading.Thread(target=other)
    thread.start()
    thread.join(60)
    launch(triple, x)

  rehearsal.compile_modules(body, wp.get_device("cpu"))
  np.testing.assert_array_equal(x.numpy(), 9)
  np.testing.assert_array_equal(steps.numpy(), 0)


def test_launches_are_back_after_an_error():
  x = wp.ones(3, dtype=float, device="cpu")
  before = wp.capture_while, wp.capture_if
  with pytest.raises(KeyError), runtime.NoLaunches(lambda *_: None):
    raise KeyError
  assert (wp.capture_while, wp.capture_if) == before
  launch(kernel(5), x)
  np.testing.assert_array_equal(x.numpy(), 5)


def test_a_module_that_does_not_compile_is_left_to_the_run():
  @wp.func_native("this is not C++;")
  def broken(x: float): ...

  @wp.kernel(module="unique", enable_backward=False)
  def uses(x: wp.array(dtype=float)):
    broken(x[0])

  x, works = wp.ones(3, dtype=float, device="cpu"), kernel(7)
  for body in (lambda: launch(uses, x), lambda: launch(works, x)):
    rehearsal.compile_modules(body, wp.get_device("cpu"))
  assert loaded(works)
  with pytest.raises(Exception, match=r"(?i)fail|error"):
    launch(uses, x)


def test_launches_are_not_left_off_halfway(monkeypatch):
  monkeypatch.setattr(runtime, "_READERS", ["array_scan", "no such thing"])
  before = wp.capture_while, wp.capture_if, wp.utils.array_scan
  with pytest.raises(AttributeError):
    rehearsal.compile_modules(lambda: None, wp.get_device("cpu"))
  assert (wp.capture_while, wp.capture_if, wp.utils.array_scan) == before
  x = wp.ones(3, dtype=float, device="cpu")
  launch(kernel(8), x)
  np.testing.assert_array_equal(x.numpy(), 8)


@pytest.mark.parametrize("name", ["humanoid", "pile"])
def test_the_first_step_and_gradient_launch_nothing_that_was_not_rehearsed(name, monkeypatch):
  mjx.clear_caches()
  m = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path(name))))
  d = mjx.make_data(m)
  rehearsed, launched, known = [], set(), set()
  compile_modules, load = rehearsal.compile_modules, runtime.context.Module.load

  def noted(body, device):
    rehearsed.append(True)
    compile_modules(body, device)
    rehearsed[-1] = False

  def named(module, *args, **kwargs):
    (known if rehearsed and rehearsed[-1] else launched).add(module.name)
    return load(module, *args, **kwargs)

  monkeypatch.setattr(rehearsal, "compile_modules", noted)
  jax.block_until_ready(d.qpos)
  monkeypatch.setattr(runtime.context.Module, "load", named)
  jax.block_until_ready(jax.jit(mjx.step)(m, d))
  gradient = jax.jit(jax.grad(lambda v: mjx.step(m, d.replace(qvel=v)).qpos.sum()))
  jax.block_until_ready(gradient(d.qvel))
  assert rehearsed == [False, False]
  assert "mujoco_warp._src.smooth" in launched
  ours = "mjx_warp_ffi.third_party.warp"
  # on CUDA the first program of a process also makes the handler that serves later calls
  assert launched - known - {f"{ours}.native.handler_code"} == {f"{ours}.launchers.copies"}
