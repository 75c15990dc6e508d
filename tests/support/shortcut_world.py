"""The handler in C++, with functions that only write down how they were called."""

import ctypes

import numpy as np
import warp as wp

from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.native import handler as native_lib
from mjx_warp_ffi.third_party.warp.native import handler_code, shortcut

Api = xla_ffi._ApiFunction
Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
Words = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_uint64] * 2)
Copy = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_uint64] * 5)
Kernel = ctypes.CFUNCTYPE(
  ctypes.c_size_t,
  *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
  *[ctypes.c_int] * 5,
  *[ctypes.c_void_p] * 3,
)
Fill = ctypes.CFUNCTYPE(
  ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
)
Query = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint64)
Event = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_bool)
F32, S32 = (next(code for code, kind in xla_ffi.DTYPES.items() if kind == x) for x in ("f4", "i4"))


class Xla:
  """An API that answers with a stream and an ordinal."""

  def __init__(self):
    self.stream, self.ordinal, self.fails, self.destroyed = 70, 0, False, []
    self.message = ""
    self.functions = {
      "Stream_Get": Api(lambda a: self.answer(xla_ffi._StreamGetArgs, a, "stream")),
      "DeviceOrdinal_Get": Api(lambda a: self.answer(xla_ffi._OrdinalGetArgs, a, "ordinal")),
      "Error_Destroy": Api(self.destroy),
      "Error_Create": Api(self.create),
    }
    self.api = xla_ffi._Api()
    for name, function in self.functions.items():
      setattr(self.api, name, ctypes.cast(function, ctypes.c_void_p).value)

  def answer(self, kind, address, name):
    setattr(kind.from_address(address), name, getattr(self, name))
    return 99 if self.fails else None

  def create(self, address):
    self.message = xla_ffi._ErrorCreateArgs.from_address(address).message.decode()
    return 55

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
    self.captures = False
    self.python = Handler(lambda address: self.log.append(("python", address)))
    self.capturable = Handler(lambda address: self.log.append(("capturable", address)))
    self.native = native_lib.Native(
      *(ctypes.cast(x, ctypes.c_void_p).value for x in (self.python, self.capturable))
    )
    self.functions = {
      "launch_graph": Words(self.launch),
      "launch_kernel": Kernel(self.launch_kernel),
      "fill": Fill(self.fill),
      "copy_to_device": Copy(self.copy),
      "wait_event": Event(lambda *a: self.log.append(("wait", *a[:2]))),
      "record_event": Event(lambda *a: self.log.append(("record", *a[:2]))),
      "is_capturing": Query(lambda stream: self.captures),
    }
    for name, function in self.functions.items():
      setattr(self.native._shared, name, ctypes.cast(function, ctypes.c_void_p).value)
    self.run, self.run_capturable = Handler(self.native.run), Handler(self.native.run_capturable)
    self.frame = Frame(self.xla, [(F32, (2, 3)), (S32, ())], [(F32, (2, 3))])

  def launch(self, graph, stream):
    self.log.append(("launch", graph, stream))
    return self.launches

  def launch_kernel(self, *args):
    self.log.append(("kernel", args[:-2], args[-2], self.descriptors[:]))
    assert args[-1] is None
    return 0 if self.launches else 700

  def fill(self, context, address, value, size, stream):
    self.log.append(("fill", context, address, value, size, stream))
    return self.copies

  def copy(self, context, table, source, size, stream):
    words = np.frombuffer(ctypes.string_at(source, size), np.uint64).tolist()
    self.log.append(("copy", words, stream))
    return self.copies

  def shortcut(self, *, table=True, event=7):
    class Event:
      cuda_event = event

    graphs = [ctypes.c_void_p(31), ctypes.c_void_p(32)]
    array = wp.zeros(3, dtype=wp.uint64, device="cpu") if table else None
    return self.open(shortcut.Routine(graphs, array), Event() if event else None)

  def open(self, routine, event=None):
    words = xla_ffi.read_frame(self.frame.address)
    made = shortcut.Shortcut(self.native, words, ordinal=0, routine=routine, event=event)
    made.open(words)
    self.kept.append(made)
    return made

  def kernel(self, zeros=()):
    """A shortcut to a launch of a kernel with the second argument and the result."""
    self.descriptors = (ctypes.c_uint64 * 2)()
    start = ctypes.addressof(self.descriptors)
    patches = (ctypes.c_uint64 * 4)(start, 1, start + 8, 2)
    filled = (ctypes.c_uint64 * max(1, len(zeros)))(*zeros)
    values = zip(handler_code._LAUNCH.split()[:9], range(11, 20), strict=True)
    launch = handler_code.Launch(
      **dict(values),
      patch_count=2,
      patches=ctypes.addressof(patches),
      zero_count=len(zeros) // 2,
      zeros=ctypes.addressof(filled),
    )
    launch.keep = patches, filled
    return self.open(shortcut.Routine(launch=launch))

  def body(self, does=lambda: None):
    """A shortcut to a function in Python."""

    def body(pointers, stream):
      words = pointers and np.frombuffer(pointers, np.uint64).tolist()
      self.log.append(("body", words, stream))
      does()

    return self.open(shortcut.Routine(body=body))

  def call(self, frame=None):
    """Runs a call; returns what was done."""
    self.log.clear()
    self.error = self.run((frame or self.frame).address)
    return list(self.log)

  def goes_to_python(self, frame=None):
    address = (frame or self.frame).address
    return self.call(frame)[-1] == ("python", address)
