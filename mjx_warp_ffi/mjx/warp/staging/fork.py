"""A second stream of a GPU, on which work runs beside that of the current stream."""

from contextlib import AbstractContextManager

import warp as wp

from mjx_warp_ffi.third_party.warp.process import guard


class SideStream:
  """A stream of the current CUDA device beside the current one.

  All workspaces of a device share one stream. They can, because only one of them runs at a time,
  and a captured graph keeps the order of its launches, not their streams. A stream of its own would
  be freed with its workspace, on whatever thread that happens, and Warp's table of streams must
  not be changed by two threads at once.
  """

  def __init__(self):
    """Takes the side stream of the current device."""
    self._stream = guard.own_streams(wp.get_device()).side

  def fork(self) -> AbstractContextManager:
    """A context whose launches run on the side stream, after all that was launched before it."""
    return wp.ScopedStream(self._stream, sync_enter=True)

  def join(self) -> None:
    """Makes all later launches wait for those on the side stream."""
    wp.get_stream().wait_stream(self._stream)
