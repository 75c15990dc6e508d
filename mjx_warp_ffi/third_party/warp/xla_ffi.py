"""The border to XLA: its FFI C API (`xla/ffi/api/c_api.h`, version 0.1 and later) in Python.

The structures mirror the header. A call reads its frame as a block of machine words, since a
ctypes attribute access costs as much as reading forty words at once; the word positions are taken
from the structures, so the mirror below is the only description of the layout.
"""

import ctypes
import enum
import functools
import struct
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np


class Stage(enum.IntEnum):
  """The execution stage of a call (`XLA_FFI_ExecutionStage`)."""

  INSTANTIATE = 0
  PREPARE = 1
  INITIALIZE = 2
  EXECUTE = 3
  RECORD = 4


class Traits(enum.IntFlag):
  """What a handler promises to XLA (`XLA_FFI_Handler_TraitsBits`)."""

  NONE = 0
  COMMAND_BUFFER_COMPATIBLE = 1


class _AttrType(enum.IntEnum):
  ARRAY = 1
  DICTIONARY = 2
  SCALAR = 3
  STRING = 4


# XLA_FFI_DataType -> NumPy dtype. Types below one byte have no NumPy layout and are left out.
_DTYPES = {
  1: "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64",
  15: "complex64 bfloat16",
  18: "complex128 float8_e5m2 float8_e4m3fn",
  23: "float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz",
  28: "float8_e4m3 float8_e3m4",
}
DTYPES: dict[int, np.dtype] = {
  first + i: np.dtype(getattr(ml_dtypes, name, name))
  for first, names in _DTYPES.items()
  for i, name in enumerate(names.split())
}


def _layout(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
  """Returns a structure that begins with the size and extension words of XLA's structs."""
  head = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p)]
  return type(name, (ctypes.Structure,), {"_fields_": head + list(fields)})


_ApiVersion = _layout("_ApiVersion", ("major", ctypes.c_int), ("minor", ctypes.c_int))
_Buffer = _layout(
  "_Buffer",
  ("dtype", ctypes.c_int),
  ("data", ctypes.c_void_p),
  ("rank", ctypes.c_int64),
  ("dims", ctypes.c_void_p),
)
_List = _layout(  # XLA_FFI_Args and XLA_FFI_Rets
  "_List", ("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("items", ctypes.c_void_p)
)
_Attrs = _layout(
  "_Attrs",
  ("size", ctypes.c_int64),
  ("types", ctypes.c_void_p),
  ("names", ctypes.c_void_p),
  ("items", ctypes.c_void_p),
)
_CallFrame = _layout(
  "_CallFrame",
  ("api", ctypes.c_void_p),
  ("ctx", ctypes.c_void_p),
  ("stage", ctypes.c_int),
  ("args", _List),
  ("rets", _List),
  ("attrs", _Attrs),
)
# The functions that are used, at their places among those of the API; XLA renames others at times.
API_FUNCTIONS = {"Error_Create": 0, "Error_Destroy": 2, "Stream_Get": 4, "DeviceOrdinal_Get": 17}
API_LENGTH = 18
_PLACES = {place: name for name, place in API_FUNCTIONS.items()}
_Api = _layout(
  "_Api",
  ("version", _ApiVersion),
  ("internal", ctypes.c_void_p),
  *((_PLACES.get(i, f"unused_{i}"), ctypes.c_void_p) for i in range(API_LENGTH)),
)
_ErrorCreateArgs = _layout("_ErrorCreateArgs", ("message", ctypes.c_char_p), ("code", ctypes.c_int))
_ErrorDestroyArgs = _layout("_ErrorDestroyArgs", ("error", ctypes.c_void_p))
_StreamGetArgs = _layout("_StreamGetArgs", ("ctx", ctypes.c_void_p), ("stream", ctypes.c_void_p))
_OrdinalGetArgs = _layout("_OrdinalGetArgs", ("ctx", ctypes.c_void_p), ("ordinal", ctypes.c_int32))


class _Extension(ctypes.Structure):
  _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p)]


class _Metadata(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("version", _ApiVersion),
    ("traits", ctypes.c_uint32),
  ]


class _MetadataExtension(ctypes.Structure):
  _fields_ = [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


class _ByteSpan(ctypes.Structure):
  _fields_ = [("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Scalar(ctypes.Structure):
  _fields_ = [("dtype", ctypes.c_int), ("value", ctypes.c_void_p)]


class _Array(ctypes.Structure):
  _fields_ = [("dtype", ctypes.c_int), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


_METADATA_EXTENSION = 1
_UNKNOWN = 2  # of XLA_FFI_Error_Code: a Python exception has no better one
_API_MAJOR, _API_MINOR = 0, 1
WORD = 8
Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_ApiFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_FRAME = struct.Struct(f"={ctypes.sizeof(_CallFrame) // WORD}Q")
_frame_at = (ctypes.c_char * _FRAME.size).from_address


def _word(structure: type[ctypes.Structure], *path: str) -> int:
  """Returns the index of the machine word that holds a nested field."""
  offset = 0
  for name in path:
    kinds: dict[str, Any] = {field[0]: field[1] for field in structure._fields_}
    offset += getattr(structure, name).offset
    structure = kinds[name]
  return offset // WORD


EXTENSION = _word(_CallFrame, "extension_start")
API = _word(_CallFrame, "api")
CTX = _word(_CallFrame, "ctx")
STAGE = _word(_CallFrame, "stage")
ARG_COUNT = _word(_CallFrame, "args", "size")
ARGS = _word(_CallFrame, "args", "items")
RET_COUNT = _word(_CallFrame, "rets", "size")
RETS = _word(_CallFrame, "rets", "items")
ATTR_COUNT = _word(_CallFrame, "attrs", "size")
ATTRS = _word(_CallFrame, "attrs", "items")
# The words of a buffer, and the places of functions in the API, for a handler that is not Python.
BUFFER_WORDS = {
  f"BUFFER_{name}": _word(_Buffer, name.lower()) for name in ("DTYPE", "DATA", "RANK", "DIMS")
}
API_WORDS = {name.upper(): _word(_Api, name) for name in API_FUNCTIONS}
DATA = _Buffer.data.offset
"""Where the address of the data lies in a buffer, in bytes."""
BUFFER = ctypes.sizeof(_Buffer)


def read_frame(address: int) -> tuple[int, ...]:
  """Returns the words of the call frame at an address; the constants above index them."""
  return _FRAME.unpack_from(_frame_at(address))


def answer_metadata(extension: int, traits: Traits) -> bool:
  """Fills in a metadata query; returns whether the extension was one."""
  if _Extension.from_address(extension).type != _METADATA_EXTENSION:
    return False
  metadata = _MetadataExtension.from_address(extension).metadata.contents
  metadata.version.major = _API_MAJOR
  metadata.version.minor = _API_MINOR
  metadata.traits = int(traits)
  return True


_function = functools.lru_cache(maxsize=64)(_ApiFunction)


def _api(api: int, name: str):
  return _function(getattr(_Api.from_address(api), name))


def make_error(api: int, message: str) -> int:
  """Returns an `XLA_FFI_Error*`; XLA takes ownership when a handler returns it."""
  text = message.encode("utf-8", "replace").replace(b"\0", b"?")
  args = _ErrorCreateArgs(ctypes.sizeof(_ErrorCreateArgs), None, text, _UNKNOWN)
  return _api(api, "Error_Create")(ctypes.addressof(args))


def _query(api: int, function: str, args: ctypes.Structure) -> None:
  error = _api(api, function)(ctypes.addressof(args))
  if error:
    destroy = _ErrorDestroyArgs(ctypes.sizeof(_ErrorDestroyArgs), None, error)
    _api(api, "Error_Destroy")(ctypes.addressof(destroy))
    raise RuntimeError(f"XLA_FFI_{function} failed: this XLA backend does not offer it")


def get_stream(api: int, ctx: int) -> int:
  """Returns the platform stream (a `CUstream`) of an execution context."""
  args = _StreamGetArgs(ctypes.sizeof(_StreamGetArgs), None, ctx, None)
  _query(api, "Stream_Get", args)
  return args.stream or 0


def get_device_ordinal(api: int, ctx: int) -> int:
  """Returns the process-local ordinal of the device that executes."""
  args = _OrdinalGetArgs(ctypes.sizeof(_OrdinalGetArgs), None, ctx, 0)
  _query(api, "DeviceOrdinal_Get", args)
  return args.ordinal


# ------------------------------------------------------------------------------------- buffers


class Buffer(NamedTuple):
  """An argument or a result: where it lies and what it holds."""

  data: int
  dtype: np.dtype
  shape: tuple[int, ...]


def dims_regions(items: int, count: int) -> list[tuple[int, int]]:
  """Returns the memory that holds the dimensions of a list: addresses and sizes."""
  regions = []
  for i in range(count):
    buffer = _Buffer.from_address(ctypes.c_uint64.from_address(items + WORD * i).value)
    if buffer.rank:
      regions.append((buffer.dims, WORD * buffer.rank))
  return regions


def read_words(items: int, count: int) -> list[tuple[int, tuple[int, ...]]]:
  """Returns the buffers of a list as XLA has them: the address; data type, rank and dimensions."""
  buffers = []
  for i in range(count):
    buffer = _Buffer.from_address(ctypes.c_uint64.from_address(items + WORD * i).value)
    dims = struct.unpack(f"={buffer.rank}Q", ctypes.string_at(buffer.dims or 0, 8 * buffer.rank))
    buffers.append((buffer.data or 0, (buffer.dtype, buffer.rank, *dims)))
  return buffers


def read_buffers(items: int, count: int) -> list[Buffer]:
  """Returns the buffers of an argument or result list with dtypes and shapes."""
  buffers = []
  for i, (data, (code, _, *dims)) in enumerate(read_words(items, count)):
    dtype = DTYPES.get(code)
    if dtype is None:
      raise TypeError(f"buffer {i} has XLA data type {code}, which has no NumPy dtype")
    buffers.append(Buffer(data, dtype, tuple(dims)))
  return buffers


# ---------------------------------------------------------------------------------- attributes


def _span(address: int) -> bytes:
  span = _ByteSpan.from_address(address)
  return ctypes.string_at(span.ptr, span.len) if span.len else b""


def _numbers(dtype: int, data: int, count: int) -> np.ndarray:
  if dtype not in DTYPES:
    raise TypeError(f"an attribute has XLA data type {dtype}, which has no NumPy dtype")
  kind = DTYPES[dtype]
  return np.frombuffer(ctypes.string_at(data, kind.itemsize * count) if count else b"", kind)


def _attribute(kind: int, address: int) -> Any:
  if kind == _AttrType.STRING:
    return _span(address).decode("utf-8")
  if kind == _AttrType.SCALAR:
    scalar = _Scalar.from_address(address)
    return _numbers(scalar.dtype, scalar.value, 1).reshape(())
  if kind == _AttrType.ARRAY:
    array = _Array.from_address(address)
    return _numbers(array.dtype, array.data, array.size)
  if kind == _AttrType.DICTIONARY:
    attrs = _Attrs.from_address(address)
    return read_attributes((attrs.size, attrs.types, attrs.names, attrs.items))
  raise TypeError(f"unknown XLA FFI attribute type {kind}")


def read_attributes(words: tuple[int, ...]) -> dict[str, Any]:
  """Returns attributes as strings, NumPy scalars (0-d arrays), arrays and dictionaries.

  Args:
    words: the four words of the attribute list: its count, types, names and items.
  """
  result = {}
  count, types, names, items = words
  for i in range(count):
    name = _span(ctypes.c_uint64.from_address(names + WORD * i).value).decode("utf-8")
    kind = ctypes.c_int.from_address(types + 4 * i).value
    result[name] = _attribute(kind, ctypes.c_uint64.from_address(items + WORD * i).value)
  return result


def read_only_string(items: int) -> bytes:
  """Returns the value of the first attribute, which must be a string."""
  return _span(ctypes.c_uint64.from_address(items).value)
