"""The lock that keeps bodies apart, and the cache of launchers that keeps to its bound."""

import contextlib
import threading
import time
import types

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi import mjx
from mjx_warp_ffi.third_party import warp as ffi
from mjx_warp_ffi.third_party.warp.calls.slots import Slot, SlotCache
from mjx_warp_ffi.third_party.warp.process import guard, shared_lock
from support.ffi_helpers import local_device, run_python, scale


def start(function, *args):
  thread = threading.Thread(target=function, args=args, daemon=True)
  thread.start()
  return thread


def test_readers_overlap_and_a_writer_waits_for_all_of_them():
  lock, inside, log = shared_lock.SharedLock(), threading.Barrier(3), []
  leave = threading.Event()

  def reader():
    with lock.shared:
      inside.wait(10)
      leave.wait(10)
      log.append("reader")

  def writer():
    with lock.exclusive:
      log.append("writer")

  readers = [start(reader), start(reader)]
  inside.wait(10)  # both are inside at once
  thread = start(writer)
  thread.join(0.1)
  assert not log
  leave.set()
  for other in (*readers, thread):
    other.join(10)
  assert log == ["reader", "reader", "writer"]


def test_a_waiting_writer_goes_before_a_new_reader():
  lock, log = shared_lock.SharedLock(), []
  with lock.shared:
    writer = start(lambda: log.append("writer") if _hold(lock.exclusive) else None)
    while not lock.writers_waiting:
      writer.join(0.01)
    reader = start(lambda: log.append("reader") if _hold(lock.shared) else None)
    reader.join(0.1)
    assert not log
  writer.join(10)
  reader.join(10)
  assert sorted(log) == ["reader", "writer"]


@pytest.mark.parametrize("held", ["shared", "exclusive"])
def test_who_waits_behind_a_writer_that_is_interrupted_gets_its_turn(held, monkeypatch):
  lock, interrupt = shared_lock.SharedLock(), threading.Event()
  holder = getattr(lock, held)
  holder.__enter__()

  def wait():  # as an interrupt in Condition.wait, which leaves with the mutex held
    lock.mutex.release()
    interrupt.wait(10)
    lock.mutex.acquire()
    raise KeyboardInterrupt

  def write():
    with contextlib.suppress(KeyboardInterrupt):
      _hold(lock.exclusive)

  monkeypatch.setattr(lock, "wait", wait)
  writer = start(write)
  while not lock.writers_waiting:
    writer.join(0.01)
  monkeypatch.undo()
  reader = start(_hold, lock.shared)
  while not lock.waiting:
    reader.join(0.01)
  if held == "exclusive":
    holder.__exit__()
    reader.join(0.1)
  assert reader.is_alive()
  interrupt.set()
  writer.join(10)
  reader.join(10)
  assert not reader.is_alive()


def _hold(context):
  with context:
    return True


@pytest.mark.gpu
@pytest.mark.parametrize("waits", ["of an evicted launcher", "of a body"])
def test_who_waits_for_a_gpu_may_do_so_while_another_thread_captures(monkeypatch, waits):
  device = wp.get_device("cuda:0")
  capturing, waited = threading.Event(), threading.Event()
  # as where there are more devices, whose collectives a body could keep waiting
  monkeypatch.setattr(guard.call_lib, "only_device", lambda platform: False)
  stream, slot = wp.Stream(device), Slot()
  slot.end(device, stream.cuda_stream)

  def capture():
    with wp.ScopedStream(wp.Stream(device)), wp.ScopedCapture(device):
      capturing.set()
      waited.wait(60)

  other = start(capture)
  assert capturing.wait(60)
  try:
    if waits == "of an evicted launcher":
      slot.release()
    else:
      assert _hold(guard.body(device, stream.cuda_stream, alone=True))
  finally:
    waited.set()
    other.join(60)


@pytest.mark.parametrize("alone", [True, False])
def test_a_body_that_is_interrupted_while_it_waits_leaves_others_their_turn(monkeypatch, alone):
  class Interrupted:
    def acquire(self):
      raise KeyboardInterrupt

  free = guard.CPU_KERNELS
  monkeypatch.setattr(guard, "CPU_KERNELS", Interrupted())
  with pytest.raises(KeyboardInterrupt), guard.body(wp.get_device("cpu"), 0, alone=alone):
    pass
  monkeypatch.setattr(guard, "CPU_KERNELS", free)
  entered = []
  other = start(lambda: entered.append(_hold(guard.body(wp.get_device("cpu"), 0, alone=True))))
  other.join(10)
  assert entered


def test_a_lock_is_free_after_an_exception():
  lock = shared_lock.SharedLock()
  for context in (lock.shared, lock.exclusive):
    with pytest.raises(ValueError), context:
      raise ValueError
  assert _hold(lock.exclusive)


def test_the_least_recently_used_slot_is_released_first():
  slots = SlotCache(2)

  def use(key):
    slot = slots.acquire(key)
    slot.value = key
    slot.lock.release()
    return slot

  a, b = use("a"), use("b")
  assert use("a") is a
  use("c")
  assert (a.released, b.released, len(slots)) == (False, True, 2)
  assert use("b") is not b
  assert b.value is None


def test_a_slot_that_is_in_use_is_released_when_it_is_free():
  slots = SlotCache(None)
  slot = slots.acquire("a")
  slot.value = "held"
  clearing = start(slots.clear)
  clearing.join(0.1)
  assert slot.value == "held"
  slot.lock.release()
  clearing.join(10)
  assert slot.released
  again = slots.acquire("a")
  assert again is not slot
  again.lock.release()


def test_a_body_is_alone_unless_the_cpu_is_the_default_device_once_it_may_run(monkeypatch):
  """Another body may have made it that for as long as it runs itself."""
  defaults, entered = iter([False]), []

  @contextlib.contextmanager
  def alone(device, stream, *, waits):
    entered.append(device)
    yield

  monkeypatch.setattr(
    guard.runtime, "default_device", lambda: types.SimpleNamespace(is_cpu=next(defaults))
  )
  monkeypatch.setattr(guard, "_Alone", alone)
  cpu = wp.get_device("cpu")
  scope = guard.body(cpu, 0)  # asks for nothing yet
  with scope:
    assert entered == [cpu]
    assert not guard.CPU_KERNELS.locked()
  defaults = iter([True])
  with guard.body(cpu, 0):
    assert entered == [cpu]
    assert guard.CPU_KERNELS.locked()
  assert not guard.CPU_KERNELS.locked()


TILES = """
import jax, jax.numpy as jnp, numpy as np, warp as wp
from jax.sharding import PartitionSpec as P
from mjx_warp_ffi.third_party import warp as ffi
from support.tile_kernels import transposing

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
x = jnp.arange(2 * 64 * 16 * 16, dtype=jnp.float32).reshape(2 * 64, 16, 16)
expected = np.asarray(x)
for call in (ffi.jax_callable(transposing, graph_mode=mode) for mode in ffi.GraphMode):
  def often(x, call=call):
    return jax.lax.scan(lambda x, _: (call(x)[0], None), x, length=200)[0]

  f = jax.jit(jax.shard_map(often, mesh=mesh, in_specs=P("i"), out_specs=P("i")))
  for _ in range(3):
    np.testing.assert_array_equal(f(x), expected)  # an even number of times
"""


def test_kernels_with_tiles_on_two_devices_of_a_cpu_keep_out_of_each_others_memory():
  run_python(TILES, devices=2)


def test_putting_a_model_waits_for_a_graph_that_another_thread_records():
  m = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
  mjx.put_model(m)  # whatever takes long the first time
  with guard.recording(wp.get_device("cpu"), None):
    thread = start(lambda: mjx.put_model(m))
    thread.join(1)
    assert thread.is_alive()
  thread.join(10)
  assert not thread.is_alive()


def test_a_stream_of_xla_leaves_warps_table_before_the_next_body_has_its_turn(monkeypatch):
  held = []

  class Stream:
    def __del__(self):
      held.append(guard._bodies.writing)

  class OnStream:
    def __init__(self, stream):
      self.stream = stream

    def __enter__(self):
      pass

    def __exit__(self, *exception):
      pass

  class Device:
    is_cuda, is_cpu, alias = True, False, "cuda:0"

  monkeypatch.setattr(guard, "own_streams", lambda device: None)
  monkeypatch.setattr(guard, "_external_stream", lambda device, handle: Stream())
  monkeypatch.setattr(guard.runtime, "OnStream", OnStream)

  def run(fails):
    own = Stream()  # as a capture in the body has one
    with guard.body(Device(), 70, waits=False):
      assert not held
      if fails:
        inner()
    del own

  def inner():
    own = Stream()  # noqa: F841
    raise KeyError

  run(False)
  assert held == [True, False]
  held.clear()
  with pytest.raises(KeyError) as error:
    run(True)
  assert held == [True, True]
  del error


def test_an_error_that_is_its_own_cause_leaves_a_body():
  with pytest.raises(KeyError), guard.body(wp.get_device("cpu"), 0, alone=True):
    error = KeyError()
    raise error from error
  assert not guard._bodies.writing


@pytest.mark.gpu
def test_threads_run_bodies_and_kernels_while_others_capture():
  device = local_device("cuda")
  end, wrong = time.monotonic() + 8, []

  def work(n):
    captured = ffi.jax_callable(_closure(float(n)), graph_mode=ffi.GraphMode.WARP)
    plain = ffi.jax_callable(_closure(n + 100.0), graph_mode=ffi.GraphMode.NONE)
    kernel = ffi.jax_kernel(scale)
    while time.monotonic() < end:
      x = jax.device_put(jnp.arange(1.0, n + 2), device)
      for f in (lambda x: captured(x)[0], lambda x: plain(x)[0], lambda x: kernel(x, n + 0.5)[0]):
        ratio = np.asarray(jax.jit(f)(x) / x)
        if not np.allclose(ratio, ratio[0]) or ratio[0] not in (n, n + 100, n + 0.5):
          wrong.append((n, ratio))
      ffi.clear_jax_callable_graph_cache(captured)

  threads = [start(work, n) for n in range(1, 9)]
  for thread in threads:
    thread.join(120)
  assert not wrong


def _closure(factor):
  def body(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    wp.launch(scale, dim=x.shape, inputs=[x, factor], outputs=[y])

  return body
