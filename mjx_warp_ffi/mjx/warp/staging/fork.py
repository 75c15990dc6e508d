"""Work beside other work on a GPU."""

from contextlib import AbstractContextManager

import warp as wp

from mjx_warp_ffi.third_party.warp.process import guard


class Side:
  """A stream of the current CUDA device beside the current one.

  The workspaces of a device share it: bodies take turns, and a graph knows only what comes before
  what. A stream of its own would die with a workspace, at any time, and Warp's table of streams is
  for one thread at a time.
  """

  def __init__(self):
    """Finds the stream."""
    self._stream = guard.own_streams(wp.get_device()).side

  def fork(self) -> AbstractContextManager:
    """What is launched in this context comes after all that was launched so far."""
    return wp.ScopedStream(self._stream, sync_enter=True)

  def join(self) -> None:
    """What is launched from now on comes after what the side has."""
    wp.get_stream().wait_stream(self._stream)
