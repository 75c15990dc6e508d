"""The lock that keeps bodies apart, and the cache of launchers that keeps to its bound."""

import threading

import pytest

from mjx_warp_ffi.third_party.warp import cache, guard


def start(function):
  thread = threading.Thread(target=function, daemon=True)
  thread.start()
  return thread


def test_readers_overlap_and_a_writer_waits_for_all_of_them():
  lock, inside, log = guard.SharedLock(), threading.Barrier(3), []
  leave = threading.Event()

  def reader():
    with lock.shared:
      inside.wait(10)
      leave.wait(10)
      log.append("reader")

  def writer():
    with lock.exclusive():
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
  lock, log = guard.SharedLock(), []
  with lock.shared:
    writer = start(lambda: log.append("writer") if _hold(lock.exclusive()) else None)
    while not lock.writers_waiting:
      writer.join(0.01)
    reader = start(lambda: log.append("reader") if _hold(lock.shared) else None)
    reader.join(0.1)
    assert not log
  writer.join(10)
  reader.join(10)
  assert sorted(log) == ["reader", "writer"]


def _hold(context):
  with context:
    return True


def test_a_lock_is_free_after_an_exception():
  lock = guard.SharedLock()
  for context in (lambda: lock.shared, lock.exclusive):
    with pytest.raises(ValueError), context():
      raise ValueError
  assert _hold(lock.exclusive())


def test_the_least_recently_used_slot_is_released_first():
  slots = cache.SlotCache(2)

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
  slots = cache.SlotCache(None)
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
