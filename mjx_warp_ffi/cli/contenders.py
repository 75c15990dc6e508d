"""The ways to step a model, prepared for timing side by side in one process.

Each contender starts from the same states and runs the same number of steps in one timed call,
so that it meets the same contacts.
"""

import copy
import dataclasses
import functools
import os
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import peers

NO_CAPACITIES: Mapping[str, int | None] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Workload:
  """What is timed.

  Attributes:
    mj_model: the model.
    qpos: where each world starts, (worlds, nq), float32.
    steps: the steps in one timed call.
    substeps: how many of them make one iteration of the scan.
    nconmax: contacts a world; None leaves it to `make_data`.
    njmax: constraint rows a world; None leaves it to `make_data`.
  """

  mj_model: mujoco.MjModel
  qpos: np.ndarray
  steps: int
  substeps: int = 1
  nconmax: int | None = None
  njmax: int | None = None

  @property
  def worlds(self) -> int:
    """The number of worlds."""
    return len(self.qpos)


@dataclasses.dataclass(frozen=True)
class Prepared:
  """A contender, compiled and run once.

  Attributes:
    run: runs the workload's steps from its states, waits for them and returns where they end.
    reset: goes back to those states; called before `run` and not timed.
    lower_seconds: to trace and lower; None where nothing is traced.
    first_seconds: of everything up to the end of the first run.
  """

  run: Callable[[], Any]
  reset: Callable[[], None]
  lower_seconds: float | None
  first_seconds: float


def make_workload(
  mj_model: mujoco.MjModel,
  worlds: int,
  *,
  steps: int,
  substeps: int = 1,
  noise: float = 0.05,
  capacities: Mapping[str, int | None] = NO_CAPACITIES,
) -> Workload:
  """A workload of different worlds around the model's default state.

  Args:
    mj_model: the model.
    worlds: how many.
    steps: the steps in one timed call; a multiple of `substeps`.
    substeps: the steps in one iteration of the scan.
    noise: the standard deviation of the positions' perturbation, in radians and metres.
    capacities: nconmax and njmax a world; those not given are the ones that our `make_data`
      chooses, so that all contenders have the same.

  Returns:
    The workload.

  Raises:
    ValueError: `steps` is no multiple of `substeps`.
  """
  if steps % substeps:
    raise ValueError(f"steps={steps} must be a multiple of substeps={substeps}")
  rng = np.random.default_rng(0)
  qpos = np.tile(mj_model.qpos0, (worlds, 1))
  for row in qpos:
    mujoco.mj_integratePos(mj_model, row, noise * rng.normal(size=mj_model.nv), 1.0)
  sizes = mjx.make_data(mj_model, **capacities).sizes
  return Workload(
    mj_model,
    qpos.astype(np.float32),
    steps=steps,
    substeps=substeps,
    nconmax=sizes.nconmax,
    njmax=sizes.njmax,
  )


def prepare_scan(step: Callable, m: Any, *, d: Any, work: Workload) -> Prepared:
  """A contender that is a JAX step, vmapped, in a jitted scan.

  Args:
    step: `step(m, d) -> d` of one world.
    m: its model.
    d: its data, with a leading axis of worlds.
    work: the workload.

  Returns:
    The prepared contender.
  """

  def several(m, d):
    for _ in range(work.substeps):
      d = step(m, d)
    return d

  return _prepare_loop(several, m, d=d, work=work)


def _prepare_loop(several: Callable, m: Any, *, d: Any, work: Workload) -> Prepared:
  vmapped = jax.vmap(several, in_axes=(None, 0))

  @jax.jit
  def run(m, d):
    count = work.steps // work.substeps
    return jax.lax.scan(lambda d, _: (vmapped(m, d), None), d, length=count)[0]

  return prepare_run(run, m, d)


def prepare_run(run: Any, *args: Any) -> Prepared:
  """A contender that is a jitted function of states, compiled and run once.

  Args:
    run: the function.
    *args: its arguments, those of every run.

  Returns:
    The prepared contender.
  """
  start = time.perf_counter()
  lowered = run.lower(*args)
  lower_seconds = time.perf_counter() - start
  compiled = lowered.compile()
  jax.block_until_ready(compiled(*args))
  return Prepared(
    run=lambda: jax.block_until_ready(compiled(*args)),
    reset=lambda: None,  # the arguments are the states
    lower_seconds=lower_seconds,
    first_seconds=time.perf_counter() - start,
  )


def ours(work: Workload, **options: Any) -> Prepared:
  """`mjx.step` of this package.

  Args:
    work: the workload.
    **options: what `mjx.put_model` is given.

  Returns:
    The prepared contender.
  """
  m, d = put(work, **options)
  return _prepare_loop(functools.partial(mjx.step, substeps=work.substeps), m, d=d, work=work)


def put(work: Workload, **options: Any) -> tuple[mjx.Model, mjx.Data]:
  """The workload's Model and worlds.

  Args:
    work: the workload.
    **options: what `mjx.put_model` is given.

  Returns:
    The Model, and the Data with a leading axis of worlds.
  """
  m = mjx.put_model(work.mj_model, **options)
  d = mjx.make_data(m, nconmax=work.nconmax, njmax=work.njmax)
  return m, _batch(d, work)


def _batch(d: Any, work: Workload) -> Any:
  # mujoco-mjx in JAX computes in float64 with jax_enable_x64
  return jax.vmap(lambda qpos: d.replace(qpos=qpos))(jnp.asarray(work.qpos, d.qpos.dtype))


def prepare_gradient(step: Callable, m: Any, *, d: Any, work: Workload) -> Prepared:
  """Value and gradient of a rollout, for each world's controls and first velocities.

  The loss is the squared length of the last positions and velocities; the states that the
  backward pass needs are what `jax.grad` of a scan keeps.

  Args:
    step: `step(m, d) -> d` of one world.
    m: its model.
    d: its data, with a leading axis of worlds.
    work: the workload.

  Returns:
    The prepared contender; its run returns the loss and the gradient.
  """
  vmapped = jax.vmap(step, in_axes=(None, 0))

  @jax.jit
  def run(m, d, inputs):
    def loss(inputs):
      start = d.replace(ctrl=inputs[0], qvel=inputs[1])
      last = jax.lax.scan(lambda d, _: (vmapped(m, d), None), start, length=work.steps)[0]
      return jnp.sum(jnp.square(last.qpos)) + jnp.sum(jnp.square(last.qvel))

    return jax.value_and_grad(loss)(inputs)

  return prepare_run(run, m, d, (d.ctrl, d.qvel))


def ours_gradient(work: Workload, **options: Any) -> Prepared:
  """`prepare_gradient` of `mjx.step`.

  Args:
    work: the workload.
    **options: what `mjx.put_model` is given.

  Returns:
    The prepared contender.
  """
  m, d = put(work, **options)
  return prepare_gradient(mjx.step, m, d=d, work=work)


def ours_rollout_gradient(work: Workload, *, checkpoint_every: int | None = None) -> Prepared:
  """Value and gradient by `mjx.rollout`, for the controls of every step.

  Args:
    work: the workload.
    checkpoint_every: what `mjx.rollout` is given.

  Returns:
    The prepared contender.
  """
  m, d = put(work)
  rollout = functools.partial(
    mjx.rollout, substeps=work.substeps, checkpoint_every=checkpoint_every
  )

  @jax.jit
  def run(m, d, ctrl):
    def loss(ctrl):
      last = jax.vmap(rollout, in_axes=(None, 0, 0))(m, d, ctrl)[1]
      return jnp.sum(jnp.square(last.qpos)) + jnp.sum(jnp.square(last.qvel))

    return jax.value_and_grad(loss)(ctrl)

  ctrl = jnp.zeros((work.worlds, work.steps // work.substeps, work.mj_model.nu), jnp.float32)
  return prepare_run(run, m, d, ctrl)


def mjwarp(work: Workload) -> Prepared:
  """MuJoCo Warp's step, captured once and replayed: the limit."""
  start = time.perf_counter()
  m = mjw.put_model(work.mj_model)
  d = mjw.make_data(work.mj_model, nworld=work.worlds, nconmax=work.nconmax, njmax=work.njmax)

  def reset():
    mjw.reset_data(m, d)
    d.qpos.assign(work.qpos)
    wp.synchronize_device()

  def run():
    for _ in range(work.steps):
      wp.capture_launch(graph)
    wp.synchronize_device()
    return d.qpos

  mjw.step(m, d)  # loads the kernels, which a capture must not
  with wp.ScopedCapture() as capture:
    mjw.step(m, d)
  graph = capture.graph
  reset()
  run()
  return Prepared(run, reset, lower_seconds=None, first_seconds=time.perf_counter() - start)


def peer(work: Workload, *, impl: str) -> Prepared:
  """mujoco-mjx's step with the given implementation.

  Raises:
    ToolError: it is not installed, or refuses the model or the device.
  """
  pool = None if work.nconmax is None else max(work.nconmax * work.worlds, 1)
  step, m, d = peers.make(work.mj_model, impl, naconmax=pool, njmax=work.njmax)
  return prepare_scan(step, m, d=_batch(d, work), work=work)


def with_one_iteration(work: Workload) -> Workload:
  """The workload with one solver iteration, the most that mujoco-mjx can differentiate in JAX.

  JAX has no reverse mode through the `while_loop` that more iterations take.
  """
  mj_model = copy.copy(work.mj_model)
  mj_model.opt.iterations = 1
  mj_model.opt.ls_iterations = min(mj_model.opt.ls_iterations, 4)
  return dataclasses.replace(work, mj_model=mj_model)


def peer_gradient(work: Workload) -> Prepared:
  """`prepare_gradient` of mujoco-mjx's step in JAX, with one solver iteration.

  Raises:
    ToolError: it is not installed, or refuses the model.
  """
  work = with_one_iteration(work)
  step, m, d = peers.make(work.mj_model, "jax", naconmax=None, njmax=None)
  return prepare_gradient(step, m, d=_batch(d, work), work=work)


def c_mujoco(work: Workload) -> Prepared:
  """C MuJoCo by `mujoco.rollout`, in double precision on all cores."""
  from mujoco import rollout

  start = time.perf_counter()
  threads = len(os.sched_getaffinity(0))
  pool = rollout.Rollout(nthread=threads)
  data = [mujoco.MjData(work.mj_model) for _ in range(threads)]
  spec = mujoco.mjtState.mjSTATE_FULLPHYSICS
  state = np.zeros((work.worlds, mujoco.mj_stateSize(work.mj_model, spec)))
  for row, qpos in zip(state, work.qpos, strict=True):
    data[0].qpos[:] = qpos
    mujoco.mj_getState(work.mj_model, data[0], row, spec)

  def run():
    pool.rollout([work.mj_model] * work.worlds, data, state, nstep=work.steps)

  run()
  return Prepared(run, lambda: None, lower_seconds=None, first_seconds=time.perf_counter() - start)


CONTENDERS: dict[str, Callable[[Workload], Prepared]] = {
  "mjx_warp_ffi": ours,
  "mjwarp captured": mjwarp,
  "mujoco-mjx warp": functools.partial(peer, impl="warp"),
  "mujoco-mjx jax": functools.partial(peer, impl="jax"),
  "C MuJoCo": c_mujoco,
}
GRADIENTS: dict[str, Callable[[Workload], Prepared]] = {
  "rollout alone": ours,
  "gradient by scan": ours_gradient,
  "gradient by scan (1 iteration)": lambda work: ours_gradient(with_one_iteration(work)),
  "gradient by mjx.rollout": ours_rollout_gradient,
  "gradient by checkpoints": functools.partial(ours_rollout_gradient, checkpoint_every=10),
  "differences": functools.partial(ours_gradient, gradient="fd"),
  "mujoco-mjx jax (1 iteration)": peer_gradient,
}
