"""Batches over several devices and processes, each in processes of their own."""

import socket
import subprocess
import sys

import jax
import pytest

from support import helpers


def _start(program: str, *args: str) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, "-m", f"support.{program}", *args],
    env=helpers.environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _finish(process: subprocess.Popen) -> None:
  try:
    output, _ = process.communicate(timeout=300)
  except subprocess.TimeoutExpired:
    process.kill()
    output, _ = process.communicate()
    raise AssertionError(f"the program hangs; it printed:\n{output[-5000:]}") from None
  assert process.returncode == 0, output[-5000:]


def test_eight_devices_of_one_process_share_a_batch():
  _finish(_start("program_devices"))


@pytest.mark.skipif(
  jax.__version__ == "0.11.2", reason="its shard_map crashes, see docs/troubleshooting.md"
)
def test_the_gradient_of_what_devices_share_is_the_sum_of_theirs():
  _finish(_start("program_shared_gradients"))


@pytest.mark.skipif(
  jax.__version_info__ < (0, 10), reason="shard_map of JAX 0.8 refuses axes that types show"
)
def test_worlds_stay_on_their_devices_where_types_say_so():
  _finish(_start("program_explicit"))


def test_two_processes_form_one_program():
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
  processes = [_start("program_processes", port, str(rank)) for rank in range(2)]
  for process in processes:
    _finish(process)
