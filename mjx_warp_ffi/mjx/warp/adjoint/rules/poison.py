"""Turns a world's gradient into NaN when a leaf leaves the values that its rule assumes.

Whether a model has a rule is decided when its adjoint is built, by the values that it was put with.
A leaf may have another value when it runs, in some worlds; their gradients are NaN then. So they
are where a sensor without a rule has a cotangent.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world

wp.set_module_options({"enable_backward": False})


def _rows(array: wp.array) -> wp.array:
  """A dense array as rows of floats."""
  words = array.capacity // 4 // max(1, array.shape[0])
  out = wp.array(ptr=array.ptr, dtype=float, shape=(array.shape[0], words), device=array.device)
  out._keep_alive = array  # a view made from a pointer does not own its memory
  return out


class Poison:
  """Turns the gradients of worlds into NaN in which a guarded number is not zero.

  Args:
    nworld: number of worlds.
    guarded: arrays of one row a world, or one for all worlds, and which of the floats in a row must
      be zero.
    gradients: arrays, likewise.
  """

  def __init__(
    self,
    nworld: int,
    *,
    guarded: Iterable[tuple[wp.array, Sequence[int]]],
    gradients: Iterable[wp.array],
  ):
    """On the current Warp device."""
    self._leaves = [(_rows(x), wp.array(np.array(at), dtype=int)) for x, at in guarded]
    self._gradients = [_rows(x) for x in gradients if x.size]
    self._bad = wp.zeros(nworld, dtype=int)

  def launch(self) -> None:
    """Looks at the numbers; after the gradients are there."""
    if not self._leaves:
      return
    self._bad.zero_()
    for values, columns in self._leaves:
      dim = (self._bad.size, columns.size)
      wp.launch(_look, dim, inputs=[values, columns], outputs=[self._bad])
    for out in self._gradients:
      wp.launch(_poison, (self._bad.size, out.shape[1]), inputs=[self._bad], outputs=[out])


@wp.kernel
def _look(values: wp.array2d[float], columns: wp.array[int], bad: wp.array[int]):
  """A thread per world and guarded number."""
  world, i = wp.tid()
  if of_world(values, world, columns[i]) != 0.0:
    wp.atomic_max(bad, world, 1)


@wp.kernel
def _poison(bad: wp.array[int], out: wp.array2d[float]):
  """A thread per world and number."""
  world, i = wp.tid()
  if bad[world] != 0:
    out[world % out.shape[0], i] = wp.nan
