"""Rollouts: many steps under given controls, and how much memory a gradient of them takes.

Only the state goes through the loop, so that the backward pass keeps states, not results: T of them
for T steps, or with checkpoints every k control steps T/k + k, for one more forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from mjx_warp_ffi.mjx.data import checks, fields
from mjx_warp_ffi.mjx.data.pickles import public
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.forward import advance, step
from mjx_warp_ffi.mjx.warp.gradient.reverse_only import reverse_only
from mjx_warp_ffi.mjx.warp.staging.batching import varying_alike

Outputs = Sequence[str] | Callable[[Data], Any]
State = dict[str, jax.Array]

# What a step changes of what it reads.
_STATE = (*fields.INTEGRATED, *fields.ACCUMULATED)


@public
@struct.dataclass
class Trajectory:
  """States after each control step of a rollout, with a leading axis of control steps.

  Attributes:
    time: (T,), in seconds.
    qpos: (T, nq).
    qvel: (T, nv).
    act: (T, na).
    outputs: what `rollout` was asked for besides, by name, or what its function returned; a named
      output is an attribute of the trajectory too (`trajectory.sensordata`).
  """

  time: jax.Array
  qpos: jax.Array
  qvel: jax.Array
  act: jax.Array
  outputs: Any

  def __getattr__(self, name: str) -> Any:
    """A named output."""
    outputs = {} if name.startswith("__") else self.__dict__.get("outputs")
    if isinstance(outputs, dict) and name in outputs:
      return outputs[name]
    raise AttributeError(f"this trajectory has no {name!r}: ask rollout for it by outputs=")


def rollout(
  m: Model,
  d: Data,
  ctrl: jax.Array,
  *,
  substeps: int = 1,
  checkpoint_every: int | None = None,
  outputs: Outputs = (),
) -> tuple[Trajectory, Data]:
  """Steps one world under a sequence of controls; batch it with `jax.vmap`.

  It is differentiated as `step` is, by a reverse scan over the saved states. Without checkpoints
  the backward pass keeps a state for every step (T `substeps` of them); with them, one for every
  `checkpoint_every` control steps and those of one such stretch, whose steps run once more.

  Args:
    m: the model.
    d: the initial state, and the inputs that stay as they are (`xfrc_applied`, `mocap_pos`, ...).
    ctrl: controls, (T, nu); each holds for `substeps` steps.
    substeps: steps a control.
    checkpoint_every: control steps between saved states under `grad`; about sqrt(T) takes the least
      memory. None saves every state.
    outputs: names of fields of Data to record with the states, such as ("sensordata", "xpos",
      "contact", "contact.dist"), or a function of the Data after a control step that returns a
      pytree of arrays or numbers. Results are those of the state before the last step, as `step`
      leaves them. Under `grad` what is recorded must have a gradient.

  Returns:
    The trajectory, and the Data after the last step, as T `substeps` calls of `step` leave it.

  Raises:
    ValueError: for a wrong shape of `ctrl`, an unknown output, or a count below one.
  """
  ctrl = jnp.asarray(ctrl, jnp.float32)
  _check(m, ctrl, substeps=substeps, checkpoint_every=checkpoint_every)
  record, names = _recorder(d, outputs)
  if not len(ctrl):
    return jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), record(d)), d

  def body(state: State, u: jax.Array) -> tuple[State, Trajectory]:
    before = d.replace(**state, ctrl=u)
    if names is None:
      after = step(m, before, substeps=substeps)
    else:
      after = advance(m, before, substeps=substeps, results=(*names, *_of_contacts(names)))
    return _state_of(after), record(after)

  # the last control step is outside: it alone has results that somebody sees
  state, ctrl = varying_alike((_state_of(d), ctrl), m, d)
  with reverse_only():
    state, rows = _checkpointed(body, state, ctrl[:-1], checkpoint_every)
  final = step(m, d.replace(**state, ctrl=ctrl[-1]), substeps=substeps)
  last = jax.tree.map(lambda x: x[None], record(final))
  return jax.tree.map(lambda *x: jnp.concatenate(x), *rows, last), final


def _check(m: Model, ctrl: jax.Array, **counts: int | None) -> None:
  if ctrl.ndim != 2 or ctrl.shape[1] != m.nu:
    raise ValueError(f"ctrl has shape {ctrl.shape}, expected (T, {m.nu}); batch with jax.vmap")
  for name, value in counts.items():
    if value is not None and (int(value) != value or value < 1):
      raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def _state_of(d: Data) -> State:
  return {name: getattr(d, name) for name in _STATE}


def _recorder(d: Data, outputs: Outputs) -> tuple[Callable[[Data], Trajectory], Any]:
  """What a trajectory keeps of a Data, and the names of the results that it needs, if known."""
  names = None
  if not callable(outputs):
    names = tuple(outputs) if not isinstance(outputs, str) else (outputs,)
    own = ("ncon", "warning", "contact")
    valid = [*own, *_of_contacts(own), *(f.name for f in fields.data_fields())]
    unknown = sorted(set(names) - set(valid))
    if unknown:
      hint = checks.meant(unknown, valid) or "; outputs may be " + ", ".join(sorted(valid))
      raise ValueError(f"Data has no {', '.join(unknown)}{hint}")

  def record(d: Data) -> Trajectory:
    if callable(outputs):
      more = jax.tree.map(jnp.asarray, outputs(d))
    else:
      more = {name: fields.lookup(d, name) for name in names or ()}
    return Trajectory(time=d.time, qpos=d.qpos, qvel=d.qvel, act=d.act, outputs=more)

  return record, names


def _of_contacts(names: Sequence[str]) -> list[str]:
  """The fields of contacts, if names have contacts as a whole."""
  return [f"contact.{f.name}" for f in fields.contact_fields()] if "contact" in names else []


def _checkpointed(
  body: Callable[[State, jax.Array], tuple[State, Any]],
  state: State,
  ctrl: jax.Array,
  every: int | None,
) -> tuple[State, list[Any]]:
  """A scan that saves the state now and then; its rows come in pieces, in order."""
  count = len(ctrl) // every if every else 0
  rows = []
  if count and every:
    pieces = ctrl[: count * every].reshape(count, every, -1)
    # a scan keeps its iterations apart by itself: no barrier is needed against merging them
    piece = jax.checkpoint(lambda s, u: jax.lax.scan(body, s, u), prevent_cse=False)
    state, stacked = jax.lax.scan(piece, state, pieces)
    rows.append(jax.tree.map(lambda x: x.reshape(count * every, *x.shape[2:]), stacked))
    ctrl = ctrl[count * every :]
  if len(ctrl):
    state, stacked = jax.lax.scan(body, state, ctrl)
    rows.append(stacked)
  return state, rows
