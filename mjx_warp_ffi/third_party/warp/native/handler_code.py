"""The C++ of `handler.py`, and the memory that it shares with Python, described once for both.

It is a native function of a Warp kernel, so Warp's compiler builds it and keeps it in the kernel
cache; the kernel runs once, to return addresses.
"""

import ctypes

import warp as wp

from mjx_warp_ffi.third_party.warp import xla_ffi

MAX_GRAPHS = 3
PLACES = 4096  # a power of two
MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4)
SHIFT = 64 - PLACES.bit_length() + 1
RUN, RUN_CAPTURABLE, TAKE, LET_GO = range(4)  # as the C++ has them
CALL, PYTHON = 1, 2  # who holds an entry
GRAPHS, KERNEL, BODY = range(3)  # what an entry is for


def _words(name: str, fields: str) -> type[ctypes.Structure]:
  """Returns a structure of machine words; a name like `graphs[3]` is an array."""
  made = []
  for field in fields.split():
    plain, _, count = field.rstrip("]").partition("[")
    made.append((plain, ctypes.c_uint64 * int(count) if count else ctypes.c_uint64))
  return type(name, (ctypes.Structure,), {"_fields_": made})


_ENTRY = (
  "held live used text text_size ordinal arg_count ret_count described pointers pointers_known"
  f" kind launch by_address table context graph_count graphs[{MAX_GRAPHS}] event stream"
)
# Patches are pairs of words: an address, the pointer that belongs there; zeros likewise: a pointer,
# the size of what it points to.
_LAUNCH = (
  "context function dim max_blocks block_dim grid_stride cluster_dim shared params"
  " patch_count patches zero_count zeros"
)
_SHARED = (
  "places python python_capturable body launch_graph launch_kernel fill copy_to_device wait_event"
  " record_event is_capturing"
)
_Entry, _Launch = _words("_Entry", _ENTRY), _words("_Launch", _LAUNCH)
Shared = _words("Shared", _SHARED)


class Entry(_Entry):
  """What the handler knows of some calls.

  Attributes:
    keep: what it points to.
  """

  keep: object = None


class Launch(_Launch):
  """A launch of a kernel.

  Attributes:
    keep: what it points to.
  """

  keep: object = None


_LAYOUT = {
  "ENTRY": "; ".join(f"Word {field}" for field in _ENTRY.split()),
  "LAUNCH": "; ".join(f"Word {field}" for field in _LAUNCH.split()),
  "SHARED": "; ".join(f"Word {field}" for field in _SHARED.split()),
  "KERNEL": KERNEL,
  "BODY": BODY,
  "MIX": f"{MIX}ull",
  "SHIFT": SHIFT,
  "CALL": CALL,
  "PYTHON": PYTHON,
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
  struct Launch { @LAUNCH@; };
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

    static void take_all_pointers(const Entry* entry, const Word* frame) {
      Word* pointers = (Word*)entry->pointers;
      take_pointers(frame[@ARGS@], entry->arg_count, pointers);
      take_pointers(frame[@RETS@], entry->ret_count, pointers + entry->arg_count);
    }

    static bool launch_graphs(Entry* entry, const Word* frame, Word stream, bool same) {
      const Shared& warp = *shared();
      if (entry->by_address && !same)
        return false;
      if (entry->event && entry->stream != stream)
        ((void (*)(Word, Word, bool))warp.wait_event)(stream, entry->event, false);
      if (entry->table && !(same && entry->pointers_known)) {
        take_all_pointers(entry, frame);
        entry->pointers_known = ((bool (*)(Word, Word, Word, Word, Word))warp.copy_to_device)(
            entry->context, entry->table, entry->pointers,
            8 * (entry->arg_count + entry->ret_count), stream);
        if (!entry->pointers_known)
          return false;
      }
      for (Word i = 0; i < entry->graph_count; ++i)
        if (!((bool (*)(Word, Word))warp.launch_graph)(entry->graphs[i], stream))
          return false;
      if (entry->event)
        ((void (*)(Word, Word, bool))warp.record_event)(entry->event, stream, false);
      entry->stream = stream;
      return true;
    }

    static bool launch_kernel(Entry* entry, const Word* frame, Word stream, bool same) {
      const Launch* launch = (const Launch*)entry->launch;
      const Word* pointers = (const Word*)entry->pointers;
      const Shared& warp = *shared();
      if (!(same && entry->pointers_known)) {
        take_all_pointers(entry, frame);
        const Word* patches = (const Word*)launch->patches;
        for (Word i = 0; i < launch->patch_count; ++i)
          *(Word*)patches[2 * i] = pointers[patches[2 * i + 1]];
        entry->pointers_known = 1;
      }
      const Word* zeros = (const Word*)launch->zeros;
      for (Word i = 0; i < launch->zero_count; ++i)
        if (!((bool (*)(Word, Word, int, Word, Word))warp.fill)(
                launch->context, pointers[zeros[2 * i]], 0, zeros[2 * i + 1], stream))
          return false;
      return !((Word (*)(Word, Word, Word, int, int, int, int, int, Word, Word, Word))
                   warp.launch_kernel)(
          launch->context, launch->function, launch->dim, (int)launch->max_blocks,
          (int)launch->block_dim, (int)launch->grid_stride, (int)launch->cluster_dim,
          (int)launch->shared, launch->params, stream, 0);
    }

    // Runs the function in Python that an entry stands for, unless XLA captures.
    static bool run_body(Entry* entry, const Word* frame, Word stream, bool same, Word* error) {
      const Shared& own = *shared();
      if (((bool (*)(Word))own.is_capturing)(stream))
        return false;
      bool known = same && entry->pointers_known;
      if (!same)
        take_all_pointers(entry, frame);
      *error = ((Word (*)(Word, Word, Word, Word))own.body)(
          (Word)entry, stream, known, frame[@API@]);
      entry->pointers_known = !*error;
      return true;
    }

    static bool serve(Entry* entry, const Word* frame, Word* error) {
      Word stream;
      if (!ask(frame, @STREAM_GET@, @ERROR_DESTROY@, &stream))
        return false;
      const Word* pointers = (const Word*)entry->pointers;
      bool same = same_pointers(frame[@ARGS@], entry->arg_count, pointers) &&
                  same_pointers(frame[@RETS@], entry->ret_count, pointers + entry->arg_count);
      entry->used = 1;
      switch (entry->kind) {
        case @KERNEL@: return launch_kernel(entry, frame, stream, same);
        case @BODY@: return run_body(entry, frame, stream, same, error);
        default: return launch_graphs(entry, frame, stream, same);
      }
    }

    static Word run_or(const Word* frame, Word python) {
      Word ordinal;
      if (!frame[@EXTENSION@] && (int)frame[@STAGE@] == @EXECUTE@ &&
          ask(frame, @DEVICEORDINAL_GET@, @ERROR_DESTROY@, &ordinal)) {
        ordinal = (unsigned)ordinal;
        // Devices share the frames of a program.
        Word place = (frame[@ARGS@] + 3 * frame[@RETS@] + ordinal) * @MIX@ >> @SHIFT@;
        Entry* entry = __atomic_load_n((Entry**)shared()->places + place, __ATOMIC_RELAXED);
        if (entry && take(entry, @CALL@)) {
          Word error = 0;
          bool served = matches(entry, frame, ordinal) && serve(entry, frame, &error);
          let_go(entry);
          if (served)
            return error;
        }
      }
      return ((Word (*)(const Word*))python)(frame);
    }

    static Word run(const Word* frame) { return run_or(frame, shared()->python); }

    static Word run_capturable(const Word* frame) {
      return run_or(frame, shared()->python_capturable);
    }
  };
  Handler::shared() = (Shared*)memory;
  Word functions[] = {(Word)&Handler::run, (Word)&Handler::run_capturable,
                      (Word)&Handler::take_for_python, (Word)&Handler::let_go};
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
def functions(memory: wp.uint64, addresses: wp.array(dtype=wp.uint64)):
  """Writes the addresses of `RUN`, `RUN_CAPTURABLE`, `TAKE` and `LET_GO`, which use this memory."""
  which = wp.tid()
  addresses[which] = _function(memory, which)
