"""A step that resets worlds with a bad state, as mj_step does.

mj_step checks position and velocity before the forward dynamics and the acceleration after it, and
a world that it resets goes through the forward dynamics again before it is integrated. Here that
second pass, of all worlds, sits in a conditional node of the graph, which is almost never taken.
Such a node may not allocate memory on CUDA, so its temporary arrays live in an arena.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.data.enums import IntegratorType, JointType
from mjx_warp_ffi.mjx.warp.staging import watch
from mjx_warp_ffi.mjx.warp.staging.watch import Watch


@wp.struct
class StateWords:
  """Consecutive 4-byte words of the state of each world, and where their values at reset lie."""

  src: wp.uint64
  dst: wp.uint64
  src_rows: int
  src_stride: int
  dst_stride: int
  words: int


@wp.func
def _mark(
  # In:
  bits: int,
  world: int,
  # Out:
  bad: wp.array[bool],
  any_bad: wp.array[int],
  warning: wp.array[int],
):
  bad[world] = bits != 0
  if bits != 0:
    warning[world] = bits  # a reset forgets the older ones
    any_bad[0] = 1


@wp.kernel(enable_backward=False)
def find_bad_state(
  # Data in:
  qpos: wp.array2d[float],
  qvel: wp.array2d[float],
  # Out:
  bad: wp.array[bool],
  any_bad: wp.array[int],
  warning: wp.array[int],
):
  """Marks the worlds whose position or velocity is bad."""
  world = wp.tid()
  bits = watch.bad_state(qpos, qvel, world)
  if (bits & watch.BADQPOS) != 0:
    bits = watch.BADQPOS  # the velocity is reset before it is looked at
  _mark(bits, world, bad, any_bad, warning)


@wp.kernel(enable_backward=False)
def find_bad_acceleration(
  # Data in:
  qacc: wp.array2d[float],
  qfrc_smooth: wp.array2d[float],
  # Out:
  bad: wp.array[bool],
  any_bad: wp.array[int],
  warning: wp.array[int],
):
  """Marks the worlds whose acceleration is bad."""
  world = wp.tid()
  bits = watch.bad_acceleration(qacc, qfrc_smooth, world)
  _mark(bits, world, bad, any_bad, warning)


@wp.kernel(enable_backward=False)
def reset_state(
  # Model:
  eq_active0: wp.array[bool],
  # In:
  bad: wp.array[bool],
  parts: wp.array[StateWords],
  # Data out:
  eq_active: wp.array2d[bool],
):
  """Gives the marked worlds the default state."""
  world, k = wp.tid()
  if not bad[world]:
    return
  part = parts[k]
  src = wp.array(ptr=part.src, shape=(part.src_rows, part.src_stride), dtype=int)
  dst = wp.array(ptr=part.dst, shape=(bad.shape[0], part.dst_stride), dtype=int)
  for i in range(part.words):
    dst[world, i] = src[world % part.src_rows, i]
  if k == 0:
    for e in range(eq_active0.shape[0]):
      eq_active[world, e] = eq_active0[e]


_ZEROED = (
  *("time", "qvel", "act", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied", "userdata"),
  "overflow",
)
# Fields whose values at reset are those that mujoco_warp's make_data gave them.
_AS_MADE = ("history", "tree_asleep")


class AutoReset:
  """The step with resets, for one workspace."""

  def __init__(self, m: mjw.Model, d: mjw.Data, watch: Watch):
    """Finds the state after a reset, and allocates the arena's memory by one forward pass."""
    self._m, self._d, self._watch = m, d, watch
    self._bad = wp.zeros(d.nworld, dtype=bool)
    self._any_bad = wp.zeros(1, dtype=int)
    copies = [c for c in _state_at_reset(m, d) if c.source.size and c.target.size]
    self._sources = [c.source for c in copies]  # which must live as long as the pointers to them
    self._parts = wp.array([c.part() for c in copies], dtype=StateWords)
    self._arena = _Arena(d.qpos.device)
    if self._has_conditional():
      self._again()

  def step(self, m: mjw.Model, d: mjw.Data) -> None:
    """One step; can be captured."""
    self._find(find_bad_state, d.qpos, d.qvel)
    self._if_any_bad(self._reset)
    mjw.forward(m, d)
    self._find(find_bad_acceleration, d.qacc, d.qfrc_smooth)
    self._if_any_bad(self._again)
    _integrate(m, d)

  def _has_conditional(self) -> bool:
    # sweep and prune sorts with memory of its own, which the arena does not see
    sweeps = self._m.opt.broadphase != mjw.BroadphaseType.NXN and self._d.qpos.device.is_cuda
    return bool(self._m.opt.graph_conditional) and not sweeps

  def _if_any_bad(self, action: Any) -> None:
    if self._has_conditional():
      wp.capture_if(self._any_bad, on_true=action)
    else:
      action()

  def _find(self, kernel: wp.Kernel, *values: wp.array) -> None:
    self._any_bad.zero_()
    wp.launch(
      kernel,
      dim=self._d.nworld,
      inputs=[*values],
      outputs=[self._bad, self._any_bad, self._watch.warning],
    )

  def _reset(self) -> None:
    wp.launch(
      reset_state,
      dim=(self._d.nworld, self._parts.size),
      inputs=[self._m.eq_active0, self._bad, self._parts],
      outputs=[self._d.eq_active],
    )

  def _again(self) -> None:
    self._reset()
    with self._arena:
      mjw.forward(self._m, self._d)


@dataclasses.dataclass(frozen=True)
class _Copy:
  """Copies the rows of `source` to those of `target`, or one element to the words from `word`."""

  target: Any
  source: Any
  element: int | None = None
  word: int = 0

  def part(self) -> Any:
    """The same as addresses and strides, for the kernel."""
    part = StateWords()
    part.src_rows, part.src_stride = self.source.shape[0], self.source.strides[0] // 4
    part.dst_stride = self.target.strides[0] // 4
    part.words = part.dst_stride if self.element is None else self.source.strides[1] // 4
    part.src = self.source.ptr + 4 * part.words * (self.element or 0)
    part.dst = self.target.ptr + 4 * self.word
    return part


def _state_at_reset(m: mjw.Model, d: mjw.Data) -> list[_Copy]:
  """The copies that give a world the state that it has after a reset."""
  copies = []
  for name in _ZEROED:
    target = getattr(d, name)
    copies.append(_Copy(target, wp.zeros((1, *target.shape[1:]), dtype=target.dtype)))
  for name in _AS_MADE:
    if getattr(d, name).size:
      copies.append(_Copy(getattr(d, name), wp.clone(getattr(d, name)[:1])))
  copies.append(_Copy(d.qpos, m.qpos0))
  mocap = m.body_mocapid.numpy()
  for body in np.flatnonzero(mocap >= 0):
    copies.append(_Copy(d.mocap_pos, m.body_pos, int(body), 3 * int(mocap[body])))
    copies.append(_Copy(d.mocap_quat, m.body_quat, int(body), 4 * int(mocap[body])))
  return copies + _plastic(m, d)


def _plastic(m: mjw.Model, d: mjw.Data) -> list[_Copy]:
  """Copies to `plastic`: rest positions to the references of plastic springs, zero for flexes."""
  copies, rest = [], np.ones(d.plastic.shape[1], bool)
  first, start = m.jnt_plasticadr.numpy(), m.jnt_qposadr.numpy()
  for joint in np.flatnonzero(first >= 0):
    for k in range(4 if m.jnt_type.numpy()[joint] == JointType.BALL else 1):
      word = int(first[joint]) + k
      copies.append(_Copy(d.plastic, m.qpos_spring, int(start[joint]) + k, word))
      rest[word] = False
  first = m.tendon_plasticadr.numpy()
  for tendon in np.flatnonzero(first >= 0):
    word = int(first[tendon])
    copies.append(_Copy(d.plastic, m.tendon_lengthspring, int(tendon), word))
    rest[word : word + 2] = False
  zero = wp.zeros((1, 1), dtype=float)
  return copies + [_Copy(d.plastic, zero, 0, int(word)) for word in np.flatnonzero(rest)]


def _integrate(m: mjw.Model, d: mjw.Data) -> None:
  """The second half of mujoco_warp's step."""
  if m.opt.integrator == IntegratorType.EULER:
    mjw.euler(m, d)
  elif m.opt.integrator == IntegratorType.RK4:
    mjw.rungekutta4(m, d)
  elif m.opt.integrator == IntegratorType.DISCRETE:
    mjw.discrete(m, d)
  else:
    mjw.implicit(m, d)


class _Arena(contextlib.AbstractContextManager):
  """Memory for the temporary arrays of a function, the same in each of its runs.

  A Warp allocator within its context: the n-th request of a run gets the block that the n-th
  request of the first run got.
  """

  def __init__(self, device: wp.Device):
    self._device = device
    self._blocks: list[wp.array] = []
    self._next = 0
    self._scope: contextlib.AbstractContextManager | None = None

  def __enter__(self) -> _Arena:
    self._next = 0
    if self._device.is_cuda:
      self._scope = wp.ScopedAllocator(self._device, self)
      self._scope.__enter__()
    return self

  def __exit__(self, *error: object) -> None:
    if self._scope is not None:
      self._scope.__exit__(*error)
      self._scope = None

  def allocate(self, size_in_bytes: int) -> int:
    """The address of the block for the next request, which the first run makes."""
    if self._next == len(self._blocks):
      with wp.ScopedAllocator(self._device, None):
        self._blocks.append(wp.empty(size_in_bytes, dtype=wp.uint8, device=self._device))
    block = self._blocks[self._next]
    self._next += 1
    if block.size < size_in_bytes:
      raise RuntimeError("the forward dynamics asked for other memory than in its first run")
    return int(block.ptr or 0)

  def deallocate(self, ptr: int, size_in_bytes: int) -> None:
    """Keeps the block for the next run."""
