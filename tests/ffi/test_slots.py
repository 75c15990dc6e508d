"""The cache of launchers: what is dropped, and that whatever is dropped is closed."""

import pytest

from mjx_warp_ffi.third_party.warp import runtime
from mjx_warp_ffi.third_party.warp.calls.slots import SlotCache


class Shortcut:
  """Stands for a way around Python."""

  def __init__(self, used=False):
    self.in_use, self.closed = used, False

  def used(self):
    used, self.in_use = self.in_use, False
    return used

  def close(self):
    self.closed = True


def fill(slots, key, **options):
  slot = slots.acquire(key)
  slot.value, slot.shortcut = key, Shortcut(**options)
  slot.lock.release()
  return slot


def held(slots):
  return list(slots._slots)


def test_the_least_recently_used_is_dropped_where_calls_around_python_count():
  slots = SlotCache(3)
  for key, used in (("a", True), ("b", False), ("c", False)):
    fill(slots, key, used=used)
  dropped = slots._slots["b"]
  cut = dropped.shortcut
  fill(slots, "d")
  assert sorted(held(slots)) == ["a", "c", "d"]
  assert dropped.released
  assert cut.closed
  fill(slots, "e")
  assert sorted(held(slots)) == ["a", "d", "e"]


def test_the_newest_is_never_dropped_though_all_others_are_in_use():
  slots = SlotCache(2)
  fill(slots, "a", used=True)
  fill(slots, "b", used=True)
  fill(slots, "new")
  assert held(slots)[-1] == "new"
  assert len(slots) == 2


def test_all_are_closed_though_the_wait_for_one_fails(monkeypatch):
  slots = SlotCache()
  made = [fill(slots, key) for key in "abc"]
  cuts = [slot.shortcut for slot in made]
  made[1].event = object()

  def fail(event):
    raise RuntimeError("the device is lost")

  monkeypatch.setattr(runtime, "synchronize_event", fail)
  with pytest.raises(RuntimeError, match="lost"):
    slots.clear()
  assert all(slot.released and slot.value is None for slot in made)
  assert all(cut.closed for cut in cuts)
