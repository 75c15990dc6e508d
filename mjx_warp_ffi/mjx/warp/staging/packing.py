"""The leaves of a model that all worlds share, as one argument of a call.

The leaves of a humanoid are 6 arguments of a call instead of 102, and in a loop XLA has no kernel
to run for each leaf of equal numbers: it makes those anew in every iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import warp as wp

from mjx_warp_ffi.mjx.data import fields


class Packing:
  """Packs those leaves of a call that all worlds share and that are numbers of single precision."""

  def __init__(self, leaves: Sequence[str], batched: Collection[str]):
    """For the leaves of a call; those in `batched` have a row for each world."""
    single = {f.name for f in fields.model_leaves() if f.dtype == np.float32}
    self._together = [i for i, n in enumerate(leaves) if n in single and n not in batched]
    self._apart = [i for i in range(len(leaves)) if i not in set(self._together)]

  def __len__(self) -> int:
    """The number of arguments."""
    return bool(self._together) + len(self._apart)

  def arguments(self, leaves: Sequence[jax.Array]) -> list[jax.Array]:
    """The arguments, for the leaves in the order of the call."""
    together = [leaves[i].ravel() for i in self._together]
    packed = [jnp.concatenate(together)] if together else []
    return packed + [leaves[i] for i in self._apart]

  def places(self, leaves: Sequence[wp.array]) -> list[wp.array | tuple[wp.array, ...]]:
    """The arrays that the arguments are copied to, for the leaves' arrays."""
    together = tuple(leaves[i] for i in self._together)
    packed = [together] if together else []
    return [*packed, *(leaves[i] for i in self._apart)]
