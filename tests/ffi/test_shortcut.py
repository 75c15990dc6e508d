"""Calls that go around Python: the handler in C++ on frames that are made here."""

import gc
import threading
import weakref

import pytest

from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.calls import target
from support.shortcut_world import F32, S32, Frame, World


@pytest.fixture(scope="module")
def made():
  yield World()
  own = target.native_handler()
  if own is not None:
    own.connect()


@pytest.fixture
def world(made):
  made.__dict__.update(launches=True, copies=True, captures=False)
  made.xla.__dict__.update(stream=70, ordinal=0, fails=False)
  made.frame = Frame(made.xla, [(F32, (2, 3)), (S32, ())], [(F32, (2, 3))])
  made.log.clear()
  yield made
  while made.kept:
    made.kept.pop().close()


LAUNCHES = [("launch", 31, 70), ("launch", 32, 70), ("record", 7, 70)]


def test_a_call_without_a_shortcut_goes_to_python(world):
  assert world.goes_to_python()


def test_a_call_copies_its_pointers_when_they_change_and_launches_in_order(world):
  world.shortcut()
  copy = ("copy", world.frame.pointers, 70)
  assert world.call() == [("wait", 70, 7), copy, *LAUNCHES]
  assert world.call() == LAUNCHES
  world.frame.buffers[2].data += 800
  assert world.call() == [("copy", world.frame.pointers, 70), *LAUNCHES]
  assert world.call() == LAUNCHES


def test_another_stream_waits_for_the_last_call(world):
  world.shortcut()
  world.call()
  world.xla.stream = 71
  assert world.call()[0] == ("wait", 71, 7)
  assert world.call()[0] == ("launch", 31, 71)


def test_python_in_between_makes_the_next_call_wait_and_copy(world):
  cut = world.shortcut()
  world.call()
  with cut:
    assert world.goes_to_python()
  assert [entry[0] for entry in world.call()] == ["wait", "copy", "launch", "launch", "record"]


def test_graphs_for_one_set_of_pointers_serve_no_other(world):
  world.shortcut(table=False, event=0)
  assert world.call() == LAUNCHES[:2]
  world.frame.buffers[0].data += 8
  assert world.call() == [("python", world.frame.address)]


def test_a_kernel_is_launched_with_the_pointers_of_the_call(world):
  cut = world.kernel()
  parameters = tuple(range(11, 20))
  assert world.call() == [("kernel", parameters, 70, world.frame.pointers[1:])]
  world.frame.buffers[2].data += 800
  world.xla.stream = 71
  assert world.call() == [("kernel", parameters, 71, world.frame.pointers[1:])]
  with cut:  # Python serves a call with others
    world.descriptors[:] = [1, 2]
  assert world.call() == [("kernel", parameters, 71, world.frame.pointers[1:])]
  world.captures = True  # the driver captures it
  assert world.call() == [("kernel", parameters, 71, world.frame.pointers[1:])]


def test_what_a_kernel_adds_to_is_filled_with_zeros_first(world):
  world.kernel(zeros=(2, 24))
  name, *rest = world.call()
  assert name == ("fill", 11, world.frame.pointers[2], 0, 24, 70)
  assert [entry[0] for entry in rest] == ["kernel"]
  world.copies = False
  assert world.goes_to_python()


def test_a_kernel_that_the_driver_refuses_goes_to_python(world):
  world.kernel()
  world.launches = False
  assert world.goes_to_python()


def test_a_body_gets_its_pointers_when_they_may_have_changed(world):
  cut = world.body()
  first = world.frame.pointers
  assert world.call() == [("body", first, 70)]
  assert world.call() == [("body", None, 70)]
  world.frame.buffers[2].data += 800
  world.xla.stream = 71
  assert world.call() == [("body", world.frame.pointers, 71)]
  assert world.call() == [("body", None, 71)]
  with cut:  # Python serves a call with others
    pass
  assert world.call() == [("body", world.frame.pointers, 71)]
  assert not world.error


def test_an_error_of_a_body_is_that_of_the_call_and_the_next_one_works(world):
  fails = [True]

  def does():
    if fails.pop():
      raise KeyError("no such thing")

  world.body(does)
  assert world.call() == [("body", world.frame.pointers, 70)]
  assert world.error == 55
  assert world.xla.message.startswith("name failed:\nTraceback")
  assert "no such thing" in world.xla.message
  fails.append(False)
  assert world.call() == [("body", world.frame.pointers, 70)]
  assert not world.error


def test_a_body_that_xla_captures_goes_to_python(world):
  world.body()
  world.captures = True
  assert world.call() == [("python", world.frame.address)]
  world.captures = False
  assert world.call() == [("body", world.frame.pointers, 70)]


def test_graphs_bodies_and_kernels_take_turns_in_one_entry(world):
  first = None
  for make, expected in (
    (world.body, ["body"]),
    (lambda: world.shortcut(table=False, event=0), ["launch", "launch"]),
    (world.kernel, ["kernel"]),
    (world.shortcut, ["wait", "copy", "launch", "launch", "record"]),
    (world.body, ["body"]),
  ):
    made = make()
    first = first or made._entry
    assert made._entry is first
    assert [entry[0] for entry in world.call()] == expected
    world.kept.remove(made)
    made.close()
    assert world.goes_to_python()


def test_what_xla_may_capture_goes_to_a_handler_that_says_so(world):
  world.log.clear()
  world.run_capturable(world.frame.address)
  assert world.log == [("capturable", world.frame.address)]
  world.body()
  world.log.clear()
  world.run_capturable(world.frame.address)
  assert world.log == [("body", world.frame.pointers, 70)]


def change_text(world):
  world.frame.text[0] = b"m"


def change_length(world):
  world.frame.span.len -= 1


def change_dtype(world):
  world.frame.buffers[1].dtype = F32


def change_rank(world):
  world.frame.buffers[2].rank = 1


def change_dim(world):
  world.frame.keep[0][1] = 4


def change_arg_count(world):
  world.frame.frame.args.size = 1


def change_ret_count(world):
  world.frame.frame.rets.size = 0


def change_attr_count(world):
  world.frame.frame.attrs.size = 2


def change_stage(world):
  world.frame.frame.stage = xla_ffi.Stage.INITIALIZE


def change_extension(world):
  world.frame.frame.extension_start = 8


def change_ordinal(world):
  world.xla.ordinal = 1


def fail_xla(world):
  world.xla.fails = True


@pytest.mark.parametrize(
  "change",
  [
    change_text,
    change_length,
    change_dtype,
    change_rank,
    change_dim,
    change_arg_count,
    change_ret_count,
    change_attr_count,
    change_stage,
    change_extension,
    change_ordinal,
    fail_xla,
  ],
)
def test_a_call_that_is_not_as_it_was_does_nothing_but_go_to_python(change, world):
  world.shortcut()
  assert not world.goes_to_python()
  change(world)
  assert world.call() == [("python", world.frame.address)]


def test_an_error_of_xla_is_freed(world):
  world.shortcut()
  world.xla.fails = True
  world.xla.destroyed.clear()
  assert world.goes_to_python()
  assert world.xla.destroyed == [99]


@pytest.mark.parametrize("what", ["launches", "copies"])
def test_what_the_driver_refuses_goes_to_python(what, world):
  world.shortcut()
  setattr(world, what, False)
  assert world.goes_to_python()


def test_a_closed_shortcut_is_followed_no_more_and_its_entry_serves_another(world):
  cut = world.shortcut()
  assert not world.goes_to_python()
  cut.close()
  world.kept.clear()
  assert world.goes_to_python()
  other = world.shortcut()
  assert other._entry is cut._entry
  assert not world.goes_to_python()


def test_an_entry_that_is_held_is_waited_for_and_calls_go_to_python(world):
  cut = world.shortcut()
  cut._entry.held = 1  # as while a call in C++ runs
  assert world.goes_to_python()
  timer = threading.Timer(0.1, setattr, (cut._entry, "held", 0))
  timer.start()
  with cut:
    assert not timer.is_alive()
  assert not world.goes_to_python()


@pytest.mark.parametrize("taken", [False, True])
def test_an_interrupt_while_python_waits_leaves_no_entry_held(taken, world, monkeypatch):
  cut = world.shortcut()
  take = world.native._take

  def interrupted(address):
    if taken:
      assert take(address)
    raise KeyboardInterrupt

  monkeypatch.setattr(world.native, "_take", interrupted)
  with pytest.raises(KeyboardInterrupt), cut:
    pass
  monkeypatch.undo()
  assert not cut._entry.held
  assert not world.goes_to_python()


def test_an_entry_keeps_what_it_points_to_until_its_shortcut_is_closed(world):
  cut = world.shortcut()
  table = weakref.ref(cut._routine.table)
  world.kept.clear()
  entry = cut._entry
  del cut
  gc.collect()
  assert table() is not None
  assert not world.goes_to_python()
  entry.live, entry.keep = 0, None

  cut = world.shortcut()
  table = weakref.ref(cut._routine.table)
  world.kept.pop().close()
  del cut
  gc.collect()
  assert table() is None


def test_it_is_known_whether_a_shortcut_was_used(world):
  cut = world.shortcut()
  cut.used()
  assert not cut.used()
  world.call()
  assert cut.used()
  assert not cut.used()


def test_entries_that_share_a_place_take_turns(world):
  world.shortcut()
  mine = world.frame
  world.frame = other = Frame(world.xla, [(F32, (2, 3)), (S32, ())], [(F32, (2, 3))], "name other")
  cut = world.shortcut()
  cut.lead(xla_ffi.read_frame(mine.address))
  assert world.goes_to_python(mine)
  assert not world.goes_to_python(other)
