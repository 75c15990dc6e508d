"""A handler in C++ that launches captured CUDA graphs.

It finds an entry by where the call frame lies and serves the call if all is as the entry says; the
rest goes to a handler in Python. The C++ is a native function of a Warp kernel, so Warp's compiler
builds it and keeps it in the kernel cache; the kernel runs once, to return addresses.
"""

import ctypes
import functools
import threading
import time

import warp as wp

from mjx_warp_ffi.third_party.warp import guard, runtime, xla_ffi

MAX_GRAPHS = 3
_PLACES = 4096  # a power of two
_MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4)
_SHIFT = 64 - _PLACES.bit_length() + 1
_RUN, _TAKE, _LET_GO = range(3)  # as the C++ has them
_CALL, _PYTHON = 1, 2  # who holds an entry
_WAIT = 2e-5  # seconds; about as long as a call


def _words(name: str, fields: str) -> type[ctypes.Structure]:
  """Returns a structure of machine words; a name like `graphs[3]` is an array."""
  made = []
  for field in fields.split():
    plain, _, count = field.rstrip("]").partition("[")
    made.append((plain, ctypes.c_uint64 * int(count) if count else ctypes.c_uint64))
  return type(name, (ctypes.Structure,), {"_fields_": made})


# Described once, for both languages.
_ENTRY = (
  "held live used text text_size ordinal arg_count ret_count described pointers by_address"
  f" table_known table context graph_count graphs[{MAX_GRAPHS}] event stream"
)
_SHARED = "places python launch_graph copy_to_device wait_event record_event"
_Entry, _Shared = _words("_Entry", _ENTRY), _words("_Shared", _SHARED)


class Entry(_Entry):
  """What the handler knows of some calls.

  Attributes:
    keep: what it points to.
  """

  keep: object = None


_LAYOUT = {
  "ENTRY": "; ".join(f"Word {field}" for field in _ENTRY.split()),
  "SHARED": "; ".join(f"Word {field}" for field in _SHARED.split()),
  "MIX": f"{_MIX}ull",
  "SHIFT": _SHIFT,
  "CALL": _CALL,
  "PYTHON": _PYTHON,
  "EXTENSION": xla_ffi.EXTENSION,
  "API": xla_ffi.API,
  "CTX": xla_ffi.CTX,
  "STAGE": xla_ffi.STAGE,
  "EXECUTE": int(xla_ffi.Stage.EXECUTE),
  "ARG_COUNT": xla_ffi.ARG_COUNT,
  "ARGS": xla_ffi.ARGS,
  "RET_COUNT": xla_ffi.RET_COUNT,
  "RETS": xla_ffi.RETS,
  "ATTR_COUNT": xla_ffi.ATTR_COUNT,
  "ATTRS": xla_ffi.ATTRS,
  **xla_ffi.BUFFER_WORDS,
  **xla_ffi.API_WORDS,
}
_HANDLER = """
#if defined(__CUDA_ARCH__)
  return 0;
#else
  using Word = unsigned long long;
  struct Entry { @ENTRY@; };
  struct Shared { @SHARED@; };
  struct Handler {
    static Shared*& shared() {
      static Shared* memory = nullptr;
      return memory;
    }

    static bool take(Entry* entry, Word holder) {
      Word nobody = 0;
      return __atomic_compare_exchange_n(
          &entry->held, &nobody, holder, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    }

    static bool take_for_python(Entry* entry) { return take(entry, @PYTHON@); }

    static void let_go(Entry* entry) { __atomic_store_n(&entry->held, 0, __ATOMIC_RELEASE); }

    // Asks XLA for a word of the execution context. An error belongs to whoever asks.
    static bool ask(const Word* frame, int function, int error_destroy, Word* answer) {
      Word request[4] = {sizeof(request), 0, frame[@CTX@], 0};
      const Word* api = (const Word*)frame[@API@];
      Word error = ((Word (*)(Word*))api[function])(request);
      *answer = request[3];
      if (!error)
        return true;
      Word last[3] = {sizeof(last), 0, error};
      ((void (*)(Word*))api[error_destroy])(last);
      return false;
    }

    // Compares a list of buffers with its description: dtype, rank and dimensions of each.
    static bool same_shapes(Word list, Word count, const Word*& described) {
      for (Word i = 0; i < count; ++i) {
        const Word* buffer = ((const Word* const*)list)[i];
        Word rank = buffer[@BUFFER_RANK@];
        if ((unsigned)buffer[@BUFFER_DTYPE@] != described[0] || rank != described[1])
          return false;
        const Word* dims = (const Word*)buffer[@BUFFER_DIMS@];
        for (Word k = 0; k < rank; ++k)
          if (dims[k] != described[2 + k])
            return false;
        described += 2 + rank;
      }
      return true;
    }

    static bool same_pointers(Word list, Word count, const Word* pointers) {
      for (Word i = 0; i < count; ++i)
        if (((const Word* const*)list)[i][@BUFFER_DATA@] != pointers[i])
          return false;
      return true;
    }

    static void take_pointers(Word list, Word count, Word* pointers) {
      for (Word i = 0; i < count; ++i)
        pointers[i] = ((const Word* const*)list)[i][@BUFFER_DATA@];
    }

    static bool matches(const Entry* entry, const Word* frame, unsigned ordinal) {
      if (!entry->live || ordinal != entry->ordinal || frame[@ARG_COUNT@] != entry->arg_count ||
          frame[@RET_COUNT@] != entry->ret_count || frame[@ATTR_COUNT@] != 1)
        return false;
      const Word* text = *(const Word* const*)frame[@ATTRS@];
      if (text[1] != entry->text_size)
        return false;
      for (Word i = 0; i < entry->text_size; ++i)
        if (((const char*)text[0])[i] != ((const char*)entry->text)[i])
          return false;
      const Word* described = (const Word*)entry->described;
      return same_shapes(frame[@ARGS@], entry->arg_count, described) &&
             same_shapes(frame[@RETS@], entry->ret_count, described);
    }

    static bool launch(Entry* entry, const Word* frame) {
      Word stream;
      if (!ask(frame, @STREAM_GET@, @ERROR_DESTROY@, &stream))
        return false;
      Word args = entry->arg_count, rets = entry->ret_count;
      Word* pointers = (Word*)entry->pointers;
      bool same = same_pointers(frame[@ARGS@], args, pointers) &&
                  same_pointers(frame[@RETS@], rets, pointers + args);
      if (entry->by_address && !same)
        return false;
      const Shared& warp = *shared();
      if (entry->event && entry->stream != stream)
        ((void (*)(Word, Word, bool))warp.wait_event)(stream, entry->event, false);
      if (entry->table && !(same && entry->table_known)) {
        take_pointers(frame[@ARGS@], args, pointers);
        take_pointers(frame[@RETS@], rets, pointers + args);
        entry->table_known = ((bool (*)(Word, Word, Word*, Word, Word))warp.copy_to_device)(
            entry->context, entry->table, pointers, 8 * (args + rets), stream);
        if (!entry->table_known)
          return false;
      }
      for (Word i = 0; i < entry->graph_count; ++i)
        if (!((bool (*)(Word, Word))warp.launch_graph)(entry->graphs[i], stream))
          return false;
      if (entry->event)
        ((void (*)(Word, Word, bool))warp.record_event)(entry->event, stream, false);
      entry->stream = stream;
      entry->used = 1;
      return true;
    }

    static Word run(const Word* frame) {
      const Shared& own = *shared();
      Word ordinal;
      if (!frame[@EXTENSION@] && (int)frame[@STAGE@] == @EXECUTE@ &&
          ask(frame, @DEVICEORDINAL_GET@, @ERROR_DESTROY@, &ordinal)) {
        ordinal = (unsigned)ordinal;
        // Devices share the frames of a program.
        Word place = (frame[@ARGS@] + 3 * frame[@RETS@] + ordinal) * @MIX@ >> @SHIFT@;
        Entry* entry = __atomic_load_n((Entry**)own.places + place, __ATOMIC_RELAXED);
        if (entry && take(entry, @CALL@)) {
          bool served = matches(entry, frame, ordinal) && launch(entry, frame);
          let_go(entry);
          if (served)
            return 0;
        }
      }
      return ((Word (*)(const Word*))own.python)(frame);
    }
  };
  Handler::shared() = (Shared*)memory;
  Word functions[] = {(Word)&Handler::run, (Word)&Handler::take_for_python,
                      (Word)&Handler::let_go};
  return functions[which];
#endif
"""


def _laid_out(snippet: str) -> str:
  for name, value in _LAYOUT.items():
    snippet = snippet.replace(f"@{name}@", str(value))
  return snippet


@wp.func_native(snippet=_laid_out(_HANDLER))
def _function(memory: wp.uint64, which: int) -> wp.uint64: ...


@wp.kernel(enable_backward=False)
def _functions(memory: wp.uint64, addresses: wp.array(dtype=wp.uint64)):
  which = wp.tid()
  addresses[which] = _function(memory, which)


_WARP = {
  "launch_graph": "wp_cuda_graph_launch",
  "copy_to_device": "wp_memcpy_h2d",
  "wait_event": "wp_cuda_stream_wait_event",
  "record_event": "wp_cuda_event_record",
}
_Take = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_LetGo = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Native:
  """The functions in C++ and the memory that they share with Python.

  XLA may call them until the process ends, so nothing of it is ever freed. They know one memory,
  that of the object that was connected last.

  Attributes:
    run: The address of the handler.
  """

  def __init__(self, python: int):
    """Builds the functions.

    Args:
      python: The address of the handler for the calls that this one cannot serve.
    """
    self._places = (ctypes.c_uint64 * _PLACES)()
    self._shared = _Shared(places=ctypes.addressof(self._places), python=python)
    for name, function in _WARP.items():
      setattr(self._shared, name, runtime.address_of(function))
    functions = self.connect()
    self.run = functions[_RUN]
    self._take, self._let_go = _Take(functions[_TAKE]), _LetGo(functions[_LET_GO])
    self._code = tuple(_functions.module.execs.values())
    self._lock = threading.Lock()
    self._entries: list[Entry] = []
    self._free: list[Entry] = []
    runtime.keep_forever(self)

  def connect(self) -> list[int]:
    """Lets the functions use this memory; returns their addresses."""
    with guard.tracing():
      addresses = wp.zeros(3, dtype=wp.uint64, device="cpu")
      inputs = [ctypes.addressof(self._shared), addresses]
      wp.launch(_functions, dim=3, inputs=inputs, device="cpu")
      found = addresses.numpy().tolist()
    if not all(found):
      raise RuntimeError("Warp records a graph on the CPU: make callables outside of it")
    return found

  def take(self) -> Entry:
    """Returns an entry that nobody uses."""
    with self._lock:
      if not self._free:
        self._free.append(Entry())
        self._entries.append(self._free[0])
      return self._free.pop()

  def give_back(self, entry: Entry) -> None:
    """Takes an entry back that is not live any more; a handler may still look at it."""
    with self._lock:
      self._free.append(entry)

  def hold(self, entry: Entry) -> None:
    """Keeps the handler away from an entry; waits for a call of it.

    Python holds an entry in one thread at a time: whoever asks must see to that.
    """
    address = ctypes.addressof(entry)
    try:
      while not self._take(address):
        time.sleep(_WAIT)
    except BaseException:  # an interrupt while it waits, or just after
      if entry.held == _PYTHON:
        self._let_go(address)
      raise

  def let_go(self, entry: Entry) -> None:
    """Ends `hold`."""
    self._let_go(ctypes.addressof(entry))

  def lead(self, frame: tuple[int, ...], entry: Entry) -> None:
    """Lets the handler try an entry for calls at a frame on its device."""
    at = frame[xla_ffi.ARGS] + 3 * frame[xla_ffi.RETS] + entry.ordinal
    mixed = at * _MIX % 2**64
    self._places[mixed >> _SHIFT] = ctypes.addressof(entry)


_building = threading.Lock()
_only = functools.cache(Native)


def get(python: int) -> Native | None:
  """Returns the handler in C++, made once; None without a CUDA device or without a compiler.

  Args:
    python: As for `Native`.
  """
  runtime.initialise()
  if not (wp.is_cuda_available() and wp.is_cpu_available()):
    return None
  with _building:
    return _only(python)
