"""Kernels that find and reset worlds with a bad state."""

from __future__ import annotations

import warp as wp

from mjx_warp_ffi.mjx.warp import watch_kernels


@wp.struct
class Part:
  """Consecutive words of the state of each world, and where their first values are."""

  src: wp.uint64
  dst: wp.uint64
  src_rows: int
  src_stride: int
  dst_stride: int
  words: int


@wp.func
def _note(bits: int, world: int, bad: wp.array[bool], some: wp.array[int], warning: wp.array[int]):
  bad[world] = bits != 0
  if bits != 0:
    warning[world] = bits  # a reset forgets the older ones
    some[0] = 1


@wp.kernel(enable_backward=False)
def find_bad_state(
  qpos: wp.array2d[float],
  qvel: wp.array2d[float],
  bad: wp.array[bool],
  some: wp.array[int],
  warning: wp.array[int],
):
  """Marks the worlds whose position or velocity is bad."""
  world = wp.tid()
  bits = watch_kernels.bad_state(qpos, qvel, world)
  if (bits & watch_kernels.BADQPOS) != 0:
    bits = watch_kernels.BADQPOS  # the velocity is reset before it is looked at
  _note(bits, world, bad, some, warning)


@wp.kernel(enable_backward=False)
def find_bad_acceleration(
  qacc: wp.array2d[float],
  qfrc_smooth: wp.array2d[float],
  bad: wp.array[bool],
  some: wp.array[int],
  warning: wp.array[int],
):
  """Marks the worlds whose acceleration is bad."""
  world = wp.tid()
  bits = watch_kernels.bad_acceleration(qacc, qfrc_smooth, world)
  _note(bits, world, bad, some, warning)


@wp.kernel(enable_backward=False)
def reset_state(
  bad: wp.array[bool],
  parts: wp.array[Part],
  eq_active0: wp.array[bool],
  eq_active: wp.array2d[bool],
):
  """Gives the marked worlds the default state."""
  world, k = wp.tid()
  if not bad[world]:
    return
  p = parts[k]
  src = wp.array(ptr=p.src, shape=(p.src_rows, p.src_stride), dtype=int)
  dst = wp.array(ptr=p.dst, shape=(bad.shape[0], p.dst_stride), dtype=int)
  for i in range(p.words):
    dst[world, i] = src[world % p.src_rows, i]
  if k == 0:
    for e in range(eq_active0.shape[0]):
      eq_active[world, e] = eq_active0[e]
