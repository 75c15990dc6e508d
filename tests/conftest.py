"""What every test starts from: platform, dtype promotion, seeds, and a quiet Warp."""

import functools
import os
import random

import jax
import numpy as np
import pytest
import warp as wp

wp.config.log_level = wp.LOG_WARNING  # the banner and the module loads are not warnings
# With 64 bits, what numpy hands to JAX is float64: strictness would only ask for casts in tests.
if not jax.config.jax_enable_x64:
  jax.config.update("jax_numpy_dtype_promotion", "strict")
if not wp.is_cuda_available():
  jax.config.update("jax_platforms", "cpu")  # or an installed CUDA plugin complains first
# Several workers share a GPU, so none may take three quarters of it. Read when JAX starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@functools.cache
def _missing_gpu() -> str:
  """Why the `gpu` tests cannot run here; empty where they can."""
  if not wp.is_cuda_available():
    return "Warp sees no CUDA device"
  try:
    jax.devices("cuda")
  except RuntimeError as error:
    return f"JAX sees no CUDA device: {error}"
  return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
  """Skips `gpu` tests, with the reason, where there is no CUDA device."""
  if item.get_closest_marker("gpu") and _missing_gpu():
    pytest.skip(_missing_gpu())


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
  """The same global random numbers for every test, whatever ran before it."""
  random.seed(0)
  np.random.seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
  """A generator with a fixed seed, for tests that draw their inputs."""
  return np.random.default_rng(0)
