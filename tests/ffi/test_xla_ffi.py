"""The mirror of XLA's C API, against the header that jaxlib ships and against frames built here."""

import ctypes
import pathlib
import re
import struct
import subprocess
import sys

import jaxlib
import numpy as np
import pytest

from mjx_warp_ffi.third_party.warp import xla_ffi
from mjx_warp_ffi.third_party.warp.calls import snapshot

HEADER = pathlib.Path(jaxlib.__file__).parent / "include/xla/ffi/api/c_api.h"


@pytest.fixture(scope="module")
def header():
  return HEADER.read_text(encoding="utf-8")


def enum_values(header, name):
  return {
    key: int(value) for key, value in re.findall(rf"XLA_FFI_{name}_(\w+) = (\d+)[,\s]", header)
  }


def test_data_types_are_those_of_the_header(header):
  codes = enum_values(header, "DataType")
  kinds = {"PRED": "bool", "BF16": "bfloat16"}
  kinds |= {f"S{n}": f"int{n}" for n in (8, 16, 32, 64)}
  kinds |= {f"U{n}": f"uint{n}" for n in (8, 16, 32, 64)}
  kinds |= {f"F{n}": f"float{n}" for n in (16, 32, 64)} | {"C64": "complex64", "C128": "complex128"}
  kinds |= {
    f"F8{kind}": f"float8_{kind.lower()}"
    for kind in ("E5M2", "E3M4", "E4M3", "E4M3FN", "E4M3B11FNUZ", "E5M2FNUZ", "E4M3FNUZ")
  }
  assert {codes[name]: kind for name, kind in kinds.items()} == {
    code: dtype.name for code, dtype in xla_ffi.DTYPES.items()
  }


def test_stages_are_those_of_the_header(header):
  # A newer XLA may have stages that an older one lacks, so the mirror has those of the newest.
  known = {stage.name: stage.value for stage in xla_ffi.Stage}
  assert enum_values(header, "ExecutionStage").items() <= known.items()


@pytest.mark.parametrize("name", xla_ffi.API_FUNCTIONS)
def test_a_function_that_is_used_is_where_the_header_has_it(name, header):
  names = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\(XLA_FFI_(\w+)\);", header)
  functions = [field for field, _ in xla_ffi._Api._fields_][-xla_ffi.API_LENGTH :]
  assert names[functions.index(name)] == name


def c_fields(header, name):
  """The field names of a struct of the header, in order."""
  body = re.search(rf"struct XLA_FFI_{name} {{(.*?)\n}}", header, re.DOTALL)[1]
  body = re.sub(r"//[^\n]*", "", body)
  return re.findall(r"(\w+);", body)


@pytest.mark.parametrize(
  ("name", "mirror"),
  [
    ("Buffer", xla_ffi._Buffer),
    ("Args", xla_ffi._List),
    ("Rets", xla_ffi._List),
    ("Attrs", xla_ffi._Attrs),
    ("CallFrame", xla_ffi._CallFrame),
    ("Error_Create_Args", xla_ffi._ErrorCreateArgs),
    ("Stream_Get_Args", xla_ffi._StreamGetArgs),
    ("DeviceOrdinal_Get_Args", xla_ffi._OrdinalGetArgs),
  ],
)
def test_structs_have_as_many_fields_as_the_header_says(name, mirror, header):
  fields = c_fields(header, name)
  if name == "CallFrame":
    fields = fields[: fields.index("attrs") + 1]
  assert len(mirror._fields_) == len(fields)


class Buffers:
  """A list of buffers as XLA lays it out: each buffer with its dimensions before it."""

  def __init__(self, shapes, *, data=0, dims_elsewhere=False, dims_behind=False, gaps=None):
    self.memory, self.table = [], []
    gaps = gaps or [0] * len(shapes)
    size = ctypes.sizeof(xla_ffi._Buffer)
    self.block = ctypes.create_string_buffer(sum(130 + g for g in gaps) + 96)
    address = ctypes.addressof(self.block)
    for i, (shape, gap) in enumerate(zip(shapes, gaps, strict=True)):
      dims = (ctypes.c_int64 * len(shape))(*shape)
      self.memory.append(dims)
      where = ctypes.addressof(dims)
      if dims_behind:
        where = ctypes.addressof(self.block) + 88 * len(shapes) + 32 * i
        ctypes.memmove(where, ctypes.addressof(dims), 8 * len(shape))
      elif not dims_elsewhere:
        ctypes.memmove(address, where, 8 * len(shape))
        where = address
      buffer = xla_ffi._Buffer(size, None, 11, data + 64 * i, len(shape), where)
      ctypes.memmove(address + 40, ctypes.addressof(buffer), size)
      self.table.append(address + 40)
      address += 88 + gap
    self.pointers = (ctypes.c_uint64 * len(self.table))(*self.table)
    self.items, self.count = ctypes.addressof(self.pointers), len(self.table)

  def set(self, index, **fields):
    buffer = xla_ffi._Buffer.from_address(self.table[index])
    for name, value in fields.items():
      setattr(buffer, name, value)


LAYOUTS = {
  "strided": {},
  "dims elsewhere": {"dims_elsewhere": True},
  "dims behind": {"dims_behind": True},
  "irregular": {"gaps": [8, 16, 8]},
}


@pytest.fixture(params=LAYOUTS, ids=str)
def buffers(request):
  return Buffers([(2, 3), (), (4,)], data=4096, **LAYOUTS[request.param])


def test_buffers_are_read_with_shapes_and_dtypes(buffers):
  found = xla_ffi.read_buffers(buffers.items, buffers.count)
  assert [b.shape for b in found] == [(2, 3), (), (4,)]
  assert [b.data for b in found] == [4096, 4160, 4224]
  assert {b.dtype for b in found} == {np.dtype(np.float32)}


def test_a_snapshot_recognises_its_list_and_follows_the_pointers(buffers):
  seen = snapshot.Buffers(buffers.items, buffers.count)
  assert struct.unpack("=3Q", seen.pointers) == (4096, 4160, 4224)
  assert seen.recognises(buffers.items, buffers.count)
  buffers.set(1, data=5)
  assert seen.recognises(buffers.items, buffers.count)
  assert struct.unpack("=3Q", seen.pointers) == (4096, 5, 4224)


@pytest.mark.parametrize("change", ["dtype", "rank", "dimension", "count", "table"])
def test_a_snapshot_notices_any_other_change(change, buffers):
  seen = snapshot.Buffers(buffers.items, buffers.count)
  count = buffers.count
  if change == "dtype":
    buffers.set(0, dtype=12)
  elif change == "rank":
    buffers.set(2, rank=0)
  elif change == "dimension":
    dims = xla_ffi._Buffer.from_address(buffers.table[0]).dims
    ctypes.c_int64.from_address(dims + 8).value = 7
  elif change == "count":
    count -= 1
  else:
    buffers.pointers[0], buffers.pointers[1] = buffers.table[1], buffers.table[0]
  assert not seen.recognises(buffers.items, count)


def test_an_empty_list_is_recognised():
  seen = snapshot.Buffers(0, 0)
  assert seen.recognises(0, 0)
  assert seen.pointers == b""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_as_many_pointers_are_found_as_there_are_buffers(count, layout):
  options = {k: v[:count] if k == "gaps" else v for k, v in LAYOUTS[layout].items()}
  buffers = Buffers([(2, 3, 4, 5, 6)] * count, data=4096, **options)
  seen = snapshot.Buffers(buffers.items, buffers.count)
  assert struct.unpack(f"={count}Q", seen.pointers) == (4096, 4160, 4224)[:count]
  assert seen.recognises(buffers.items, buffers.count)
  dims = xla_ffi._Buffer.from_address(buffers.table[-1]).dims
  ctypes.c_int64.from_address(dims + 32).value = 7
  assert not seen.recognises(buffers.items, buffers.count)


class Attribute:
  """The list of one string, as XLA has it."""

  def __init__(self, text):
    self.text = ctypes.create_string_buffer(text)
    self.span = xla_ffi._ByteSpan(ctypes.addressof(self.text), len(text))
    self.table = ctypes.c_void_p(ctypes.addressof(self.span))
    self.items = ctypes.addressof(self.table)


@pytest.mark.parametrize("change", ["text", "length", "place", "table"])
def test_a_text_notices_any_change(change):
  attribute, other = Attribute(b"name key"), Attribute(b"name key")
  seen = snapshot.Text(attribute.items)
  assert seen.value == b"name key"
  assert seen.recognises(attribute.items)
  if change == "text":
    attribute.text[5] = b"K"
  elif change == "length":
    attribute.span.len -= 1
  elif change == "place":
    attribute.span.ptr = other.span.ptr
  else:
    attribute.table.value = other.table.value
  assert not seen.recognises(attribute.items)


def test_an_empty_text_is_recognised():
  attribute = Attribute(b"")
  assert snapshot.Text(attribute.items).recognises(attribute.items)


def test_a_type_without_a_numpy_dtype_is_refused():
  buffers = Buffers([(2,)])
  buffers.set(0, dtype=21)  # four-bit integers
  with pytest.raises(TypeError, match="XLA data type 21"):
    xla_ffi.read_buffers(buffers.items, 1)


def test_the_core_is_imported_without_mujoco():
  code = (
    "import sys; import mjx_warp_ffi.third_party.warp;"
    "sys.exit(bool({'mujoco', 'mujoco_warp'} & set(sys.modules)))"
  )
  assert subprocess.run([sys.executable, "-c", code]).returncode == 0
