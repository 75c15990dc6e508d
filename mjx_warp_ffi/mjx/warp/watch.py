"""Watches every call for bad states, full capacities and parameters that would be ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.spec import SLACK
from mjx_warp_ffi.mjx.warp import watch_kernels
from mjx_warp_ffi.mjx.warp.kernels import WorldContacts
from mjx_warp_ffi.mjx.warp.types import IntegratorType


class Watch:
  """Finds what went wrong in each world, and keeps the largest counts.

  A parameter of a feature that is compiled out must be zero, and the inertial frame of a simple
  body stays (`Spec.fixed`). `Model.replace` sees to it, but `jax.tree.map` over a Model, or a
  traced value, can give it another value, which would be ignored in silence. In the worlds
  where that is so, position, velocity and acceleration become NaN.

  Attributes:
    warning: mjWARN_* bits of each world.
  """

  def __init__(
    self,
    d: mjw.Data,
    contacts: WorldContacts,
    *,
    peaks: wp.array,
    fixed: Sequence[tuple[wp.array, np.ndarray]],
  ):
    """Watches `d`; `peaks` may be shared, `fixed` are parameters and their values (as in Spec)."""
    self._d, self._contacts, self._peaks = d, contacts, peaks
    self._flags = wp.zeros(watch_kernels.FLAGS, dtype=int)
    self._ignored = wp.zeros(d.nworld, dtype=int)
    fixed = [(x, values) for x, values in fixed if x.size]
    self._fixed = [(x, wp.array(values, dtype=float)) for x, values in fixed]
    self._leaves = wp.array([_leaf(*pair) for pair in self._fixed], dtype=watch_kernels.Leaf)
    self._words = max((x.capacity // 4 for x, _ in self._fixed), default=0)
    self._values = max(1, d.qpos.shape[1])  # of a world; there are no more velocities
    self.warning = wp.zeros(d.nworld, dtype=int)

  def begin(self) -> None:
    """Flags bad positions and velocities, and zeroes the counts; before the physics."""
    d = self._d
    wp.launch(
      watch_kernels.begin,
      dim=(d.nworld, self._values),
      inputs=[d.qpos, d.qvel],
      outputs=[self.warning, self._contacts.ncon, d.nefc, self._ignored, self._flags],
    )

  def collided(self, m: mjw.Model, d: mjw.Data) -> None:
    """Notes what the pools lost; after each collision detection."""
    if m.opt.integrator == IntegratorType.RK4:
      wp.launch(  # of the stage before
        watch_kernels.watch_rows,
        dim=d.nworld,
        inputs=[d.nefc, d.njmax],
        outputs=[d.overflow, self._peaks],
      )
    wp.launch(
      watch_kernels.watch_pools,
      dim=1,
      inputs=[d.naconmax, d.ncollision, d.nacon],
      outputs=[self._flags, self._peaks],
    )

  def leaves(self) -> None:
    """Notes parameters that are ignored; between `begin` and `end`."""
    if self._fixed:
      outputs = [self._ignored, self._flags]
      wp.launch(watch_kernels.watch_leaves, self._words, inputs=[self._leaves], outputs=outputs)

  def end(self) -> None:
    """Flags bad accelerations and the worlds that lost something; after contacts and `leaves`."""
    d = self._d
    wp.launch(
      watch_kernels.end,
      dim=(d.nworld, self._values),
      inputs=[
        *(d.qpos, d.qvel, d.qacc, d.qfrc_smooth, self.warning),
        *(self._contacts.ncon, self._contacts.nconmax, d.nefc, d.njmax),
        *(self._ignored, self._flags, d.overflow, self._peaks),
      ],
    )


def _leaf(array: wp.array, values: wp.array) -> Any:
  leaf = watch_kernels.Leaf()
  leaf.ptr, leaf.rows = array.ptr, array.shape[0]
  leaf.words = array.capacity // 4 // array.shape[0]
  leaf.values, leaf.slack = values.ptr, SLACK
  return leaf
