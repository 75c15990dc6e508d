"""Says what of this installation works, what does not, and how to mend it.

Looks at the versions, the NVIDIA driver, what JAX and Warp see, memory settings and the kernel
cache, and then steps a small model on each kind of device.

Examples:
  mjx-warp-doctor              # the findings, with what to do about each
  mjx-warp-doctor --json       # the same for a bug report
  mjx-warp-doctor --no-trial   # without compiling and stepping a model
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import rich.console
import rich.markup
import warp as wp

from mjx_warp_ffi import _versions as versions
from mjx_warp_ffi.cli import common

OLDEST_DRIVER = (12, 4)
OPTIONAL = {
  "matplotlib": "pictures: pip install 'mjx-warp-ffi[demo]'",
  "mujoco-mjx": "the drop-in and the comparisons: pip install 'mjx-warp-ffi[peers]'",
}


@dataclasses.dataclass(frozen=True)
class Finding:
  """One line of the diagnosis.

  Attributes:
    status: "ok", "note" for what works with a limit, or "bad" for what does not work.
    subject: what was looked at.
    found: what was found.
    remedy: what to do about it; empty when nothing.
  """

  status: str
  subject: str
  found: str
  remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Facts:
  """What the machine says, apart from what it means."""

  python: tuple[int, ...]
  versions: dict[str, str]  # of the packages needed and of the optional ones, if installed
  bounds: dict[str, str]  # of the packages needed, such as ">=1.19,<1.20"
  system: str
  wsl: bool
  nvidia_gpu: bool  # a GPU's device file exists, whatever the libraries say
  driver: tuple[int, ...]  # the CUDA version that the driver supports; empty without one
  jax_platforms: tuple[str, ...]
  warp_devices: tuple[str, ...]
  settings: dict[str, str]  # environment variables
  cache: str
  cache_writable: bool


def gather() -> Facts:
  """Asks the machine."""
  bounds = versions.required()
  wp.init()
  cache = pathlib.Path(wp.config.kernel_cache_dir)
  return Facts(
    python=sys.version_info[:3],
    versions=versions.installed({**bounds, **OPTIONAL}),
    bounds=bounds,
    system=platform.platform(),
    wsl="microsoft" in platform.release().lower(),
    nvidia_gpu=any(pathlib.Path(p).exists() for p in ("/dev/nvidia0", "/dev/dxg")),
    driver=tuple(wp.get_cuda_driver_version() or ()) if wp.is_cuda_available() else (),
    jax_platforms=tuple(sorted({_platform(d) for d in _jax_devices()})),
    warp_devices=tuple(str(d) for d in wp.get_devices()),
    settings={k: v for k, v in os.environ.items() if k.startswith(("XLA_", "JAX_", "CUDA_VIS"))},
    cache=str(cache),
    cache_writable=os.access(next(p for p in [cache, *cache.parents] if p.exists()), os.W_OK),
  )


def _jax_devices() -> list[jax.Device]:
  try:
    return [*jax.devices(), *jax.devices("cpu")]
  except RuntimeError:  # a platform that was asked for is not there
    return []


def _platform(device: jax.Device) -> str:
  return "cuda" if device.platform == "gpu" else device.platform


def diagnose(facts: Facts) -> Iterator[Finding]:
  """What the facts mean, without running anything."""
  status = "ok" if facts.python >= (3, 11) else "bad"
  yield Finding(
    status,
    "Python",
    ".".join(map(str, facts.python)),
    "" if status == "ok" else "Python 3.11 or newer is needed",
  )
  yield from _packages(facts)
  yield from _gpu(facts)
  if not facts.cache_writable:
    remedy = "kernels are compiled anew each time; set WARP_CACHE_PATH to a folder of yours"
    yield Finding("bad", "kernel cache", f"{facts.cache} cannot be written", remedy)
  else:
    yield Finding("ok", "kernel cache", facts.cache)


def _packages(facts: Facts) -> Iterator[Finding]:
  for name, bounds in facts.bounds.items():
    version = facts.versions.get(name)
    install = f"pip install '{name}{bounds}'"
    if version is None:
      yield Finding("bad", name, "not installed", install)
    elif not versions.is_within(version, bounds):
      yield Finding("bad", name, f"{version}, tested with {bounds}", install)
    else:
      yield Finding("ok", name, version)
  for name, remedy in OPTIONAL.items():
    version = facts.versions.get(name)
    yield Finding("ok", name, version) if version else Finding("note", name, "no", remedy)


def _gpu(facts: Facts) -> Iterator[Finding]:
  warp_cuda = any(name.startswith("cuda") for name in facts.warp_devices)
  jax_cuda = "cuda" in facts.jax_platforms
  if facts.system.startswith("macOS"):
    yield Finding("note", "GPU", "macOS has no CUDA", "everything runs on the CPU")
    return
  if not facts.jax_platforms:
    remedy = "unset JAX_PLATFORMS, or install what it names"
    yield Finding("bad", "JAX", f"does not start with {facts.settings}", remedy)
  if not warp_cuda and not jax_cuda:
    yield _no_gpu(facts)
  elif not jax_cuda:
    remedy = "pip install 'mjx-warp-ffi[cuda13]', or [cuda12] with a driver older than 580"
    if "cpu" in facts.settings.get("JAX_PLATFORMS", ""):
      remedy = "unset JAX_PLATFORMS"
    yield Finding("bad", "GPU", "Warp sees it, JAX does not", remedy)
  elif not warp_cuda:
    remedy = "the driver must support CUDA 12.4 or later: update it"
    yield Finding("bad", "GPU", "JAX sees it, Warp does not", remedy)
  else:
    yield Finding("ok", "GPU", ", ".join(d for d in facts.warp_devices if d != "cpu"))
  if facts.driver:
    found = f"supports CUDA {'.'.join(map(str, facts.driver))}"
    if facts.driver < OLDEST_DRIVER:
      remedy = "MuJoCo Warp's step uses conditional graphs: update to 12.4 (550) or later"
      yield Finding("bad", "driver", found, remedy)
    else:
      yield Finding("ok", "driver", found)
  if warp_cuda and jax_cuda:
    yield _preallocation(facts)


def _no_gpu(facts: Facts) -> Finding:
  if facts.settings.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
    remedy = "unset CUDA_VISIBLE_DEVICES to use the GPUs"
  elif facts.wsl:
    remedy = "in WSL the driver is Windows's: update it there, install none inside, use WSL 2"
  elif facts.nvidia_gpu:
    remedy = "there is one: install or reload NVIDIA's driver (does nvidia-smi run?)"
  else:
    remedy = "everything runs on the CPU"
  return Finding("note", "GPU", "none seen", remedy)


def _preallocation(facts: Facts) -> Finding:
  if facts.settings.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in ("false", "0"):
    return Finding("ok", "GPU memory", "JAX takes it as needed")
  share = facts.settings.get("XLA_PYTHON_CLIENT_MEM_FRACTION", ".75")
  return Finding(
    "note",
    "GPU memory",
    f"JAX takes {float(share):.0%} at its start; Warp's buffers need the rest",
    "if Warp runs out of memory: export XLA_PYTHON_CLIENT_PREALLOCATE=false",
  )


def trials() -> Iterator[Finding]:
  """Steps a small model on each kind of device, against C MuJoCo."""
  mj_model = common.load_model("double_pendulum")
  mj_data = mujoco.MjData(mj_model)
  mj_data.qpos[:] = 0.3
  mujoco.mj_step(mj_model, mj_data)
  for device in {_platform(d): d for d in _jax_devices()}.values():
    subject = f"a step on {_platform(device)}"
    try:
      from mjx_warp_ffi import mjx  # here: that it cannot be imported is a finding too

      with jax.default_device(device):
        m = mjx.put_model(mj_model)
        d = mjx.make_data(m).replace(qpos=jnp.full(mj_model.nq, 0.3, jnp.float32))
        qpos = np.asarray(jax.jit(mjx.step)(m, d).qpos)
      error = float(np.abs(qpos - mj_data.qpos).max())
      # one step in float32: a few units in the last place of 0.3
      status = "ok" if error < 1e-5 else "bad"
      remedy = "" if status == "ok" else "please report this"
      yield Finding(status, subject, f"differs from C MuJoCo by {error:.0e}", remedy)
    except Exception as error:  # whatever is wrong with the installation is the finding
      last = str(error).strip().splitlines()[-1:] or [""]
      yield Finding("bad", subject, f"{type(error).__name__}: {last[0]}", "see the findings above")


def show(findings: Sequence[Finding], console: rich.console.Console) -> None:
  """Prints the findings, each with its remedy beneath it."""
  colour = {"ok": "green", "note": "yellow", "bad": "red"}
  for finding in findings:
    mark = f"[{colour[finding.status]}]{finding.status:<5}[/]"
    console.print(f"{mark} {finding.subject:<16} {rich.markup.escape(finding.found)}")
    if finding.remedy:
      console.print(f"{'':6}{'':16} -> {rich.markup.escape(finding.remedy)}")


def make_parser() -> argparse.ArgumentParser:
  """The parser of the doctor's arguments."""
  parser = common.make_parser("mjx-warp-doctor", __doc__)
  parser.add_argument("--json", action="store_true", help="print the facts and findings as JSON")
  parser.add_argument("--no-trial", action="store_true", help="do not step a model")
  return parser


def _run(argv: Sequence[str] | None) -> int:
  args = make_parser().parse_args(argv)
  console = rich.console.Console(highlight=False, soft_wrap=True)
  facts = gather()
  findings = list(diagnose(facts))
  if not args.no_trial:
    findings += trials()
  if args.json:
    content: dict[str, Any] = {"facts": dataclasses.asdict(facts)}
    content["findings"] = [dataclasses.asdict(finding) for finding in findings]
    console.print_json(json.dumps(content))
  else:
    show(findings, console)
  return int(any(finding.status == "bad" for finding in findings))


def main(argv: Sequence[str] | None = None) -> int:
  """The entry point of `mjx-warp-doctor`.

  Returns:
    The exit status: 0 when nothing is broken.
  """
  return common.run_tool(_run, argv)


if __name__ == "__main__":
  sys.exit(main())
