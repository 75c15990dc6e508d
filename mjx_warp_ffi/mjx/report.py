"""Which results of steps made gradients NaN, because no rule covers them."""

from __future__ import annotations

from mjx_warp_ffi.mjx.warp.gradient import unruled_outputs


def gradient_report(*, clear: bool = False) -> tuple[str, ...]:
  """The results of steps that turned gradients into NaN, for want of a rule.

  In the carry of a `scan` or a `while_loop` JAX gives every result a cotangent, most of them zero,
  so `gradient="analytic"` cannot refuse a result without a rule while it traces. A world with a
  cotangent that is not zero has NaN as its gradient, and the name of the result is kept here, on
  all devices, until it is cleared. A call that still runs may not be in it yet: wait for its
  results first.

  Args:
    clear: forget the names afterwards.

  Returns:
    Names of fields of Data, such as ("qfrc_bias",); empty if every gradient had its rules. Take
    them out of the loss, or put the model with `gradient="fd"`.
  """
  return unruled_outputs.read(clear=clear)
