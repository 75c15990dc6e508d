"""Calls that go around Python: the handler in C++ on frames that are made here."""

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.third_party.warp import native as native_lib
from mjx_warp_ffi.third_party.warp import shortcut, target, xla_ffi

Api = xla_ffi._ApiFunction
Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
Words = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_uint64] * 2)
Copy = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_uint64] * 5)
Event = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_bool)
F32, S32 = (next(code for code, kind in xla_ffi.DTYPES.items() if kind == x) for x in ("f4", "i4"))


class Xla:
  """An API that answers with a stream and an ordinal."""

  def __init__(self):
    self.stream, self.ordinal, self.fails, self.destroyed = 70, 0, False, []
    self.functions = {
      "Stream_Get": Api(lambda a: self.answer(xla_ffi._StreamGetArgs, a, "stream")),
      "DeviceOrdinal_Get": Api(lambda a: self.answer(xla_ffi._OrdinalGetArgs, a, "ordinal")),
      "Error_Destroy": Api(self.destroy),
    }
    self.api = xla_ffi._Api()
    for name, function in self.functions.items():
      setattr(self.api, name, ctypes.cast(function, ctypes.c_void_p).value)

  def answer(self, kind, address, name):
    setattr(kind.from_address(address), name, getattr(self, name))
    return 99 if self.fails else None

  def destroy(self, address):
    self.destroyed.append(xla_ffi._ErrorDestroyArgs.from_address(address).error)


class Frame:
  """A call frame: `(dtype, shape)` of its arguments and results, and its attribute."""

  def __init__(self, xla, inputs, outputs, text="name key"):
    self.keep = []
    self.buffers = [self.buffer(*x) for x in (*inputs, *outputs)]
    pointers = [ctypes.addressof(b) for b in self.buffers]
    self.lists = [
      (ctypes.c_void_p * 9)(*p) for p in (pointers[: len(inputs)], pointers[len(inputs) :])
    ]
    self.text = ctypes.create_string_buffer(text.encode())
    self.span = xla_ffi._ByteSpan(ctypes.addressof(self.text), len(text))
    self.spans = ctypes.c_void_p(ctypes.addressof(self.span))
    self.frame = frame = xla_ffi._CallFrame()
    frame.api, frame.stage = ctypes.addressof(xla.api), xla_ffi.Stage.EXECUTE
    for part, memory, count in zip(
      (frame.args, frame.rets), self.lists, (len(inputs), len(outputs)), strict=True
    ):
      part.size, part.items = count, ctypes.addressof(memory)
    frame.attrs.size, frame.attrs.items = 1, ctypes.addressof(self.spans)

  def buffer(self, dtype, shape):
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    self.keep.append(dims)
    data = 1000 + 8 * len(self.keep)
    return xla_ffi._Buffer(dtype=dtype, data=data, rank=len(shape), dims=ctypes.addressof(dims))

  @property
  def address(self):
    return ctypes.addressof(self.frame)

  @property
  def pointers(self):
    return [b.data for b in self.buffers]


class World:
  """The handler with functions that only write down how they were called."""

  def __init__(self):
    self.log, self.launches, self.copies, self.kept = [], True, True, []
    self.xla = Xla()
    self.python = Handler(lambda address: self.log.append(("python", address)))
    self.native = native_lib.Native(ctypes.cast(self.python, ctypes.c_void_p).value)
    self.functions = {
      "launch_graph": Words(self.launch),
      "copy_to_device": Copy(self.copy),
      "wait_event": Event(lambda *a: self.log.append(("wait", *a[:2]))),
      "record_event": Event(lambda *a: self.log.append(("record", *a[:2]))),
    }
    for name, function in self.functions.items():
      setattr(self.native._shared, name, ctypes.cast(function, ctypes.c_void_p).value)
    self.run = Handler(self.native.run)
    self.frame = Frame(self.xla, [(F32, (2, 3)), (S32, ())], [(F32, (2, 3))])

  def launch(self, graph, stream):
    self.log.append(("launch", graph, stream))
    return self.launches

  def copy(self, context, table, source, size, stream):
    words = np.frombuffer(ctypes.string_at(source, size), np.uint64).tolist()
    self.log.append(("copy", words, stream))
    return self.copies

  def shortcut(self, *, table=True, event=7):
    class Event:
      cuda_event = event

    graphs = [ctypes.c_void_p(31), ctypes.c_void_p(32)]
    array = wp.zeros(3, dtype=wp.uint64, device="cpu") if table else None
    words = xla_ffi.read_frame(self.frame.address)
    made = shortcut.Shortcut(
      self.native,
      words,
      ordinal=0,
      replays=shortcut.Replays(graphs, array),
      event=Event() if event else None,
    )
    made.open(words)
    self.kept.append(made)
    return made

  def call(self, frame=None):
    """Runs a call; returns what was done."""
    self.log.clear()
    self.run((frame or self.frame).address)
    return list(self.log)

  def goes_to_python(self, frame=None):
    address = (frame or self.frame).address
    return self.call(frame)[-1] == ("python", address)


@pytest.fixture(scope="module")
def made():
  yield World()
  own = target.native_handler()
  if own is not None:
    own.connect()


@pytest.fixture
def world(made):
  made.__dict__.update(launches=True, copies=True)
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
  table = weakref.ref(cut._replays.table)
  world.kept.clear()
  entry = cut._entry
  del cut
  gc.collect()
  assert table() is not None
  assert not world.goes_to_python()
  entry.live, entry.keep = 0, None

  cut = world.shortcut()
  table = weakref.ref(cut._replays.table)
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
