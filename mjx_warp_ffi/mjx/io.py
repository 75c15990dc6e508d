"""Between MuJoCo and JAX: put_model, make_data, put_data, get_data, get_data_into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi.mjx import fetch
from mjx_warp_ffi.mjx.data import checks, fields, options, types
from mjx_warp_ffi.mjx.data.smoothing import ContactSmoothing
from mjx_warp_ffi.mjx.data.spec import Sizes, Spec
from mjx_warp_ffi.mjx.data.types import Contact, Data, Model
from mjx_warp_ffi.mjx.warp.models import acceptance


def _check_impl(impl: Any) -> None:
  name = str(getattr(impl, "value", impl) or "warp").lower()
  if name != "warp":
    raise ValueError(f"impl={impl!r}: the only implementation is impl='warp', the default")


def _check_device(device: Any) -> None:
  if isinstance(device, str):
    raise TypeError(f"device={device!r}: expected a jax.Device; did you mean impl={device!r}?")


# What mujoco.mjx takes besides, and has no meaning here.
_IGNORED = frozenset({"keepalive_refs", "_full_compat", "dummy_arg_for_batching"})


_IGNORED_OF_MODEL = frozenset({"graph_mode", "keepalive_refs", "batch_sizes"})


def _check_smoothing(smoothing: Any, gradient: str) -> None:
  if smoothing is None:
    return
  if not isinstance(smoothing, ContactSmoothing):
    kind = type(smoothing).__name__
    raise TypeError(f"contact_smoothing takes a mjx.ContactSmoothing, got {kind}")
  if gradient != "analytic":
    raise ValueError(f"contact_smoothing belongs to gradient='analytic', got {gradient!r}")


def put_model(
  m: mujoco.MjModel,
  device: jax.Device | None = None,
  *,
  impl: Any = None,
  gradient: str = "analytic",
  contact_smoothing: ContactSmoothing | None = None,
  autoreset: bool = False,
  **ignored: Any,
) -> Model:
  """Puts a MuJoCo model into JAX.

  Args:
    m: the model; it is copied.
    device: where the leaves are put; JAX's default device if None.
    impl: "warp" or None.
    gradient: how `step` is differentiated: "analytic", "fd" (central differences) or "none".
    contact_smoothing: lets the analytic gradient, and nothing else, feel contacts before bodies
      touch, and softens friction; None leaves the gradient exact.
    autoreset: reset worlds whose state becomes bad (NaN, huge), as mj_step does.
    **ignored: `graph_mode`, `keepalive_refs` and `batch_sizes` of mujoco.mjx, which have no meaning
      here: every call replays a graph on buffers that stay, nothing outside JAX is referred to, and
      every leaf may get batch axes later.

  Returns:
    The Model.

  Raises:
    NotImplementedError: if MuJoCo Warp lacks a feature that the model uses; the text names it.
    TypeError: if `m` is no MjModel, `contact_smoothing` no ContactSmoothing, or for an unknown
      argument.
    ValueError: for another `impl` or an unknown `gradient`, or if contacts are to be smoothed for
      another gradient than the analytic one.
  """
  _check_impl(impl)
  _check_device(device)
  unknown = sorted(set(ignored) - _IGNORED_OF_MODEL)
  if unknown:
    raise TypeError(f"put_model takes no argument {', '.join(unknown)}")
  if not isinstance(m, mujoco.MjModel):
    raise TypeError(f"put_model takes a mujoco.MjModel, got {type(m).__name__}")
  checks.check_gradient(gradient)
  _check_smoothing(contact_smoothing, gradient)
  settings = dict(gradient=gradient, contact_smoothing=contact_smoothing, autoreset=autoreset)
  statics = acceptance.check_and_options(m)
  model = types.model_of(acceptance.AcceptedSpec.of(m), statics, **settings)
  return model if device is None else jax.device_put(model, device)


def _sizes(
  mjm: mujoco.MjModel, capacities: dict[str, int | None], *, structure: str, mj_data: Any = None
) -> Sizes:
  """Capacities with defaults, checked."""
  for name, value in capacities.items():
    if value is not None and (int(value) != value or value < 0):
      raise ValueError(f"{name} must be a non-negative integer or None, got {value!r}")
  given = {k: None if v is None else int(v) for k, v in capacities.items()}
  for world, pool in (("nconmax", "naconmax"), ("nccdmax", "naccdmax")):
    if given.get(world) is not None and given.get(pool) is not None:
      raise ValueError(f"give {world} (for each world) or {pool} (for all worlds), not both")
  if given["nconmax"] is None:
    given["nconmax"] = acceptance.default_nconmax(mjm, mj_data)
    if given.get("naconmax") is not None:
      given["nconmax"] = min(given["nconmax"], given["naconmax"])
  if given["njmax"] is None:
    given["njmax"] = acceptance.default_njmax(mjm, mj_data)
  return Sizes(structure, **given)


def make_data(
  m: Model | mujoco.MjModel,
  device: jax.Device | None = None,
  *,
  impl: Any = None,
  nconmax: int | None = None,
  njmax: int | None = None,
  **capacities: int | None,
) -> Data:
  """A Data at the model's default state; results are zero until `forward` or `step`.

  Capacities hold for one world, whatever the batch size later is.

  Args:
    m: the model.
    device: where the arrays are put; JAX's default device if None.
    impl: "warp" or None.
    nconmax: contacts of one world.
    njmax: constraint rows of one world.
    **capacities: `nccdmax`, `njmax_nnz`, `nvmax` for one world, `naconmax`, `naccdmax` for all
      worlds together (instead of `nconmax`, `nccdmax`). `keepalive_refs`, `_full_compat` and
      `dummy_arg_for_batching` of mujoco.mjx are ignored.

  Returns:
    The Data of one world.

  Raises:
    ValueError: for capacities that are negative, unknown or contradict one another.
  """
  _check_impl(impl)
  _check_device(device)
  spec = m.spec if isinstance(m, Model) else Spec.of(m)
  mjm = options.with_options(spec.mj_model, m.opt.statics) if isinstance(m, Model) else m
  given = dict(nconmax=nconmax, njmax=njmax, **_known(capacities))
  sizes = _sizes(mjm, given, structure=spec.structure)
  data = at_default(spec, sizes)
  data = with_defaults_of(m, data) if isinstance(m, Model) else data
  return data if device is None else jax.device_put(data, device)


def at_default(spec: Spec, sizes: Sizes) -> Data:
  """A Data at the default state of the MjModel behind a spec."""
  return _from_mujoco(spec.mj_model, mujoco.MjData(spec.mj_model), sizes)


def with_defaults_of(m: Model, d: Data) -> Data:
  """A Data with the parts of the default state that follow from leaves of the Model."""
  mj_model = m.spec.mj_model
  values: dict[str, jax.Array] = {"qpos": jnp.copy(m.qpos0)}
  if mj_model.nmocap:
    bodies = np.argsort(mj_model.body_mocapid)[-mj_model.nmocap :]  # in the order of their ids
    values |= {"mocap_pos": m.body_pos[..., bodies, :], "mocap_quat": m.body_quat[..., bodies, :]}
  if mj_model.nplastic:
    values["plastic"] = _springs_at_rest(m)
  return d.replace(**values)


def _springs_at_rest(m: Model) -> jax.Array:
  """The initial references of plastic springs: the rest poses that the leaves hold."""
  mj_model = m.spec.mj_model
  at = np.full(mj_model.nplastic, mj_model.nq + 2 * mj_model.ntendon)  # a zero, unless found below
  for joint in np.flatnonzero(mj_model.jnt_plasticadr >= 0):
    first, source = mj_model.jnt_plasticadr[joint], mj_model.jnt_qposadr[joint]
    count = 4 if mj_model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_BALL else 1
    at[first : first + count] = source + np.arange(count)
  for tendon in np.flatnonzero(mj_model.tendon_plasticadr >= 0):
    first = mj_model.tendon_plasticadr[tendon]
    at[first : first + 2] = mj_model.nq + 2 * tendon + np.arange(2)
  lengths = m.tendon_lengthspring.reshape(*m.tendon_lengthspring.shape[:-2], -1)
  batch = np.broadcast_shapes(m.qpos_spring.shape[:-1], lengths.shape[:-1])
  parts = [
    jnp.broadcast_to(x, (*batch, x.shape[-1]))
    for x in (m.qpos_spring, lengths, jnp.zeros(1, jnp.float32))
  ]
  return jnp.concatenate(parts, axis=-1)[..., at]


def put_data(
  m: mujoco.MjModel,
  d: mujoco.MjData,
  device: jax.Device | None = None,
  *,
  impl: Any = None,
  nconmax: int | None = None,
  njmax: int | None = None,
  **capacities: int | None,
) -> Data:
  """Puts an MjData into JAX: state, inputs, results and contacts.

  Args:
    m: the model that `d` belongs to.
    d: the data.
    device: where the arrays are put; JAX's default device if None.
    impl: "warp" or None.
    nconmax: contacts of one world.
    njmax: constraint rows of one world.
    **capacities: as for `make_data`.

  Returns:
    The Data of one world.

  Raises:
    ValueError: as `make_data`, or if `d` has more contacts or rows than the capacities.
  """
  _check_impl(impl)
  _check_device(device)
  given = dict(nconmax=nconmax, njmax=njmax, **_known(capacities))
  sizes = _sizes(m, given, structure=Spec.of(m).structure, mj_data=d)
  if d.ncon > sizes.nconmax:
    raise ValueError(f"the MjData has {d.ncon} contacts: pass nconmax={d.ncon} or more")
  if d.nefc > sizes.njmax:
    raise ValueError(f"the MjData has {d.nefc} constraint rows: pass njmax={d.nefc} or more")
  data = _from_mujoco(m, d, sizes)
  return data if device is None else jax.device_put(data, device)


def _known(capacities: dict[str, Any]) -> dict[str, Any]:
  """The capacities, without the arguments that are ignored."""
  valid = set(Sizes._fields) - {"structure"}
  unknown = set(capacities) - valid - _IGNORED
  if unknown:
    raise ValueError(
      f"unknown capacity {', '.join(sorted(unknown))}; valid names are {', '.join(sorted(valid))}"
    )
  return {k: v for k, v in capacities.items() if k in valid}


def _from_mujoco(m: mujoco.MjModel, d: mujoco.MjData, sizes: Sizes) -> Data:
  values = {}
  for field in fields.data_fields():
    shape = field.shape(m)
    source: Any = 0 if field.name == "overflow" else getattr(d, field.name)
    if field.name == "solver_niter":
      source = np.sum(source[: max(1, d.nisland)])
    if np.size(source) != np.prod(shape, dtype=int):
      source = np.zeros(shape)
    values[field.name] = jnp.array(np.asarray(source).reshape(shape), field.dtype)
  return Data(
    **values,
    contact=_contact_from_mujoco(d, sizes.nconmax),
    ncon=jnp.array(d.ncon, jnp.int32),
    warning=jnp.array(0, jnp.int32),
    sizes=sizes,
  )


def _contact_from_mujoco(d: mujoco.MjData, nconmax: int) -> Contact:
  values = {}
  for field in fields.contact_fields():
    rows = (nconmax, *field.item)
    value = np.full(rows, fields.PADDING.get(field.name, 0), field.dtype)
    if d.ncon and hasattr(d.contact, field.name):
      value[: d.ncon] = np.asarray(getattr(d.contact, field.name)).reshape(d.ncon, *field.item)
    values[field.name] = jnp.array(value)
  return Contact(**values)


def get_data(
  m: mujoco.MjModel,
  d: Data,
  keepalive_refs: Any = None,
  *,
  before: Data | None = None,
) -> mujoco.MjData | list[Any]:
  """MjData with the values of a Data: one, or (nested) lists of them for a batch.

  Args:
    m: the model.
    d: one world, or a batch of worlds with leading axes.
    keepalive_refs: ignored, as nothing outside JAX is referred to.
    before: as for `get_data_into`.

  Returns:
    An MjData, or a list for each batch axis.
  """
  if jnp.ndim(d.time) == 0:
    result = mujoco.MjData(m)
    get_data_into(result, m, d, before=before)
    return result
  host, earlier = jax.device_get((d, before))
  return [get_data(m, _world(i, host), before=_world(i, earlier)) for i in range(d.time.shape[0])]


def _world(i: Any, d: Any) -> Any:
  return jax.tree.map(lambda x: x[i], d)


def get_data_into(
  result: mujoco.MjData | Sequence[mujoco.MjData],
  m: mujoco.MjModel,
  d: Data,
  keepalive_refs: Any = None,
  *,
  world: int | tuple[int, ...] | None = None,
  before: Data | None = None,
) -> None:
  """Writes a Data into MjData that exists already.

  What a Data does not hold (constraint rows, the inertia matrix, moments) MuJoCo computes from its
  state. A step leaves a Data at the next state with the results of the one before it, as mj_step
  does: pass `before`, and the rows are those that the step solved.

  Args:
    result: the MjData to overwrite, or a list of them for a batch.
    m: the model.
    d: one world or a batch.
    keepalive_refs: ignored, as nothing outside JAX is referred to.
    world: index of the one world of a batch to fetch; the others are not moved from the device.
    before: the Data that was stepped to give `d`.

  Raises:
    ValueError: if `result` and the batch of `d` do not match.
  """
  if world is not None:
    d, before = _world(world, d), _world(world, before)
  batch = jnp.shape(d.time)
  many = isinstance(result, Sequence)
  if many != bool(batch) or (isinstance(result, Sequence) and len(result) != batch[0]):
    got = f"{len(result)} MjData" if isinstance(result, Sequence) else "one MjData"
    raise ValueError(
      f"the Data has batch shape {batch} but result is {got}; pass world=i to fetch one world"
    )
  host, earlier = jax.device_get((d, before))
  if isinstance(result, Sequence):
    for i, one in enumerate(result):
      get_data_into(one, m, _world(i, host), before=_world(i, earlier))
    return
  _check_structure(m, d)
  fetch.into_mujoco(result, m, d=host, before=earlier)


def _check_structure(m: mujoco.MjModel, d: Data) -> None:
  for field in fields.data_fields():
    expected, got = field.shape(m), np.shape(getattr(d, field.name))
    if expected != got:
      raise ValueError(
        f"this Data belongs to another model: {field.name} has shape {got}, expected {expected}"
      )
