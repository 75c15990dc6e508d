"""What the command-line tools share: finding and loading models, help, progress, devices."""

import argparse
import pathlib
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Sequence

import jax
import mujoco
import numpy as np
import rich.console
import rich.markup
import rich.progress
import warp as wp

MAX_MODEL_BYTES = 64 * 2**20
LOAD_SECONDS = 60
LOAD_MEMORY_BYTES = 8 * 2**30

# MuJoCo's parser is C code: what kills it must not kill the tool, and what fills the memory must
# not fill the machine's. Exits with 0 for a model that loads.
_TRIAL = """
import sys
import mujoco
try:
  import resource
  resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
except (ImportError, ValueError):
  pass  # Windows and macOS have no such limit
try:
  mujoco.MjModel.from_xml_path(sys.argv[1])
except (ValueError, RuntimeError, MemoryError, mujoco.FatalError) as error:
  sys.exit(str(error) or type(error).__name__)
"""


class ToolError(Exception):
  """What a tool tells its user in place of a traceback."""


def models_dir() -> pathlib.Path:
  """The folder of the models that come with the package.

  Returns:
    The folder inside the installed package, or the one beside it in a clone.
  """
  package = pathlib.Path(__file__).resolve().parents[1]
  installed = package / "models"
  return installed if installed.is_dir() else package.parent / "models"


def find_model(name: str) -> pathlib.Path:
  """The path of a model given by the name of one of the package's, or by a path.

  Raises:
    ToolError: there is no such file, it is not MJCF or URDF, or it is larger than 64 MiB.
  """
  bundled = models_dir() / f"{name}.xml"
  if bundled.is_file() and "/" not in name:
    return bundled
  path = pathlib.Path(name).expanduser()
  if not path.is_file():
    known = ", ".join(sorted(p.stem for p in models_dir().glob("*.xml")))
    raise ToolError(f"no file {name!r}, and no model of that name; there are: {known}")
  if path.suffix.lower() not in (".xml", ".mjcf", ".urdf"):
    raise ToolError(f"{name}: expected an MJCF or URDF file (.xml, .mjcf, .urdf)")
  if path.stat().st_size > MAX_MODEL_BYTES:
    raise ToolError(f"{name}: {path.stat().st_size} bytes, more than {MAX_MODEL_BYTES}")
  return path


def load_model(name: str) -> mujoco.MjModel:
  """Loads a model given by name or path; one from a path is first tried in a process of its own.

  Returns:
    The compiled model.

  Raises:
    ToolError: with MuJoCo's reason, or that loading it crashed or took too much memory or time.
  """
  path = find_model(name)
  if path.parent != models_dir():
    _try_to_load(path)
  try:
    return mujoco.MjModel.from_xml_path(str(path))
  except (ValueError, RuntimeError) as error:
    raise ToolError(f"{path}: {error}") from error


def _try_to_load(path: pathlib.Path) -> None:
  command = [sys.executable, "-c", _TRIAL, str(path), str(LOAD_MEMORY_BYTES)]
  try:
    trial = subprocess.run(
      command, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False
    )
  except subprocess.TimeoutExpired as error:
    raise ToolError(f"{path}: not loaded after {LOAD_SECONDS} s") from error
  if trial.returncode < 0:
    raise ToolError(f"{path}: MuJoCo crashed while loading it (signal {-trial.returncode})")
  if trial.returncode:
    raise ToolError(f"{path}: {trial.stderr.strip() or 'MuJoCo cannot load it'}")


def load_array(path: pathlib.Path, name: str) -> np.ndarray:
  """The array of a name in an npz file, or that of an npy file; pickles are refused.

  Raises:
    ToolError: the file cannot be read, or has no such array.
  """
  try:
    with path.open("rb") as file:
      content = np.load(file, allow_pickle=False)
      array = content if isinstance(content, np.ndarray) else content[name]
      return np.asarray(array, np.float32)
  except ValueError as error:  # of which NumPy says how to read it all the same
    raise ToolError(f"{path}: no npz or npy file of numbers; pickles are not read") from error
  except (OSError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
    raise ToolError(f"{path}: {error}") from error


def check_output(path: pathlib.Path | None, *suffixes: str) -> None:
  """Checks, before the work is done, that a file can be written.

  Raises:
    ToolError: its folder does not exist, it is one itself, or its name ends otherwise.
  """
  if path is None:
    return
  if suffixes and path.suffix.lower() not in suffixes:
    raise ToolError(f"{path}: expected a name that ends in {' or '.join(suffixes)}")
  if not path.parent.is_dir() or path.is_dir():
    raise ToolError(f"{path}: is a folder, or lies in one that does not exist")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
  """Keeps the examples' line breaks and appends the defaults."""

  def _get_help_string(self, action: argparse.Action) -> str | None:
    text = action.help
    if action.default in (None, False, argparse.SUPPRESS) or not action.option_strings:
      return text
    return f"{text} (default: %(default)s)"


def make_parser(name: str, text: str | None) -> argparse.ArgumentParser:
  """A parser whose help is a tool's docstring, examples included."""
  return argparse.ArgumentParser(
    prog=name, description=textwrap.dedent(text or "").strip(), formatter_class=HelpFormatter
  )


def positive(text: str) -> int:
  """An argument type: an integer of at least one."""
  value = int(text)
  if value < 1:
    raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
  return value


def port(text: str) -> int:
  """An argument type: a network port."""
  value = int(text)
  if not 0 < value < 2**16:
    raise argparse.ArgumentTypeError(f"expected 1 to 65535, got {value}")
  return value


def make_progress(console: rich.console.Console) -> rich.progress.Progress:
  """A progress bar with the time left, silent where the output is no terminal."""
  return rich.progress.Progress(
    rich.progress.TextColumn("{task.description}"),
    rich.progress.BarColumn(),
    rich.progress.MofNCompleteColumn(),
    rich.progress.TimeRemainingColumn(),
    rich.progress.TextColumn("{task.fields[note]}"),
    console=console,
  )


def device_name() -> str:
  """The device that JAX computes on by default, in words."""
  device = jax.devices()[0]
  return f"{device.device_kind} ({device.platform})"


def run_tool(body, argv: Sequence[str] | None) -> int:
  """Calls a tool's body, with Warp quiet, and turns what is no fault of its own into a line.

  That is a `ToolError`, a feature without support or gradient, and an interrupt.

  Returns:
    The exit status: what `body` returns, 2 after an error, 130 after an interrupt.
  """
  wp.config.log_level = wp.LOG_ERROR  # the kernels it loads would tear the progress bar
  try:
    return body(argv)
  except (ToolError, NotImplementedError) as error:
    text = rich.markup.escape(str(error))
    rich.console.Console(stderr=True).print(f"[bold red]error:[/] {text}", highlight=False)
    return 2
  except KeyboardInterrupt:
    return 130
