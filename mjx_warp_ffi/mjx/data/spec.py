"""What of a model is compiled into a step: topology, integer options, switches."""

from __future__ import annotations

import copy
import hashlib
from typing import Any, NamedTuple, Self

import mujoco
import numpy as np

from mjx_warp_ffi.mjx.data import fields, pickles

# Features that mujoco_warp compiles out of a step when they are zero in the MjModel, and the leaves
# that bring them back. They cost launches, so they are on only where a value asks for them.
SWITCHES = {
  "has_fluid": ("opt.wind", "opt.density", "opt.viscosity"),
  "flg_adhesion": ("geom_adhesion", "pair_adhesion"),
  "flg_surfacevel": ("geom_surfacevel",),
}


# How far a float of a leaf with a fixed value may be from it: values go through conversions.
SLACK = 1e-6

# What mj_setConst computes from masses and poses, beside leaves. It is no part of the structure, so
# that the Data of a Model fits the Model with other masses too.
_DERIVED = (
  *("body_sameframe", "geom_sameframe", "site_sameframe", "bvh_aabb"),
  *("dof_M0", "dof_length", "actuator_length0"),
)


# What makes up a Spec: the arguments of the constructor.
_CONTENT = ("mj_model", "switches", "structure")


class Spec:
  """The static part of a Model, compared and hashed by its content.

  Attributes:
    mj_model: a private copy of the MjModel.
    switches: names of the optional features that are on.
    structure: digest of topology and constants; equal for the Models a Data may be used with.
    digest: digest of `structure` and `switches`; equal for models that share a compilation.
  """

  def __init__(self, mj_model: mujoco.MjModel, switches: frozenset[str], *, structure: str):
    self.mj_model = mj_model
    self.switches = switches
    self.structure = structure
    self._views: dict[str, Any] = {}
    # of `_DERIVED` a step reads the lengths alone
    lengths = mj_model.dof_length.tobytes().hex()
    content = f"{structure} {sorted(switches)} {lengths}"
    self.digest = hashlib.sha256(content.encode()).hexdigest()[:32]

  @classmethod
  def of(cls, mj_model: mujoco.MjModel) -> Self:
    """The spec of a model, which is copied."""
    mj_model = copy.copy(mj_model)
    on = (s for s, names in SWITCHES.items() if any(_nonzero(mj_model, n) for n in names))
    return cls(mj_model, frozenset(on), structure=_structure(mj_model))

  def with_values(self, values: dict[str, Any]) -> Self:
    """The spec for a model some leaves of which get other values (perhaps traced ones).

    Raises:
      ValueError: for another inertial frame of a simple body.
    """
    for name, frame in self._frames().items():
      if name in values:
        self._check_frame(name, values[name], frame=frame)
    on = (
      s for s, names in SWITCHES.items() if any(n in values and _may_act(values[n]) for n in names)
    )
    switches = self.switches.union(on)
    if switches == self.switches:
      return self
    return type(self)(self.mj_model, switches, structure=self.structure)

  def check_options(self, statics: Any) -> None:
    """Raises if a step cannot be compiled for other static options; subclasses know whom to ask."""
    raise NotImplementedError(f"{type(self).__name__} cannot tell whether it takes {statics}")

  def fixed(self) -> dict[str, np.ndarray]:
    """The leaves that must have certain values: all floats of one row, NaN where any will do.

    Those of features that are off must be zero, and the inertial frames of simple bodies stay.
    """
    off = [n for s, names in SWITCHES.items() if s not in self.switches for n in names]
    zeros = {n: np.zeros(np.size(fields.lookup(self.mj_model, n)), np.float32) for n in off}
    return zeros | {n: frame.ravel() for n, frame in self._frames().items()}

  def _frames(self) -> dict[str, np.ndarray]:
    """The inertial frames of the bodies whose mass matrix has no place for others, else NaN."""
    m = self.mj_model
    simple = (m.body_simple == 1) & (m.body_dofnum > 1)
    if not np.any(simple):
      return {}
    frames = {n: np.array(getattr(m, n), np.float32) for n in ("body_ipos", "body_iquat")}
    for frame in frames.values():
      frame[~simple] = np.nan
    return frames

  def _check_frame(self, name: str, value: Any, *, frame: np.ndarray) -> None:
    got = _known(value)
    if got is None:  # the step looks at it
      return
    off = np.any(np.abs(got - frame) > SLACK, axis=-1).reshape(-1, self.mj_model.nbody)
    bodies = np.flatnonzero(np.any(off, axis=0))
    if len(bodies):
      body = self.mj_model.body(int(bodies[0])).name or int(bodies[0])
      raise ValueError(
        f"{name} of body {body!r} cannot change: MuJoCo compiled it as simple, with a diagonal mass"
        " matrix. Compile it with an inertial frame that is off by a little, such as"
        ' <inertial pos="1e-5 0 0" .../>'
      )

  def __getstate__(self) -> tuple[int, dict[str, Any]]:
    """The state to pickle: what the constructor takes."""
    return pickles.pack({name: getattr(self, name) for name in _CONTENT})

  def __setstate__(self, state: Any) -> None:
    """Constructs it from a pickled state."""
    values = pickles.unpack("Spec", state, names=_CONTENT)
    Spec.__init__(self, **values)

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Spec) and self.digest == other.digest

  def __hash__(self) -> int:
    return hash(self.digest)

  def __repr__(self) -> str:
    m = self.mj_model
    return f"Spec(nq={m.nq}, nv={m.nv}, nu={m.nu}, nbody={m.nbody}, digest={self.digest[:8]})"

  def attribute(self, name: str) -> Any:
    """A static attribute of the model; arrays are read-only.

    Raises:
      AttributeError: if MjModel has no such attribute.
    """
    if name not in self._views:
      value = getattr(self.mj_model, name)
      if isinstance(value, np.ndarray):
        value = value.copy()
        value.flags.writeable = False
      self._views[name] = value
    return self._views[name]


@pickles.located(pickles.ADDRESSES["spec"])
class Sizes(NamedTuple):
  """Capacities of one world, part of Data's static field.

  Attributes:
    structure: the `Spec.structure` of the model that the Data belongs to.
    nconmax: contacts that `Data.contact` shows, and contacts a world in mujoco_warp's pool.
    njmax: constraint rows of one world.
    nccdmax: contacts of one world that may come from convex collision detection.
    naconmax: contacts of all worlds together, instead of `nconmax` a world.
    naccdmax: convex contacts of all worlds together, instead of `nccdmax` a world.
    njmax_nnz: non-zeros of one world's sparse constraint Jacobian.
    nvmax: active degrees of freedom of one world, if sleeping is on.
  """

  structure: str
  nconmax: int
  njmax: int
  nccdmax: int | None = None
  naconmax: int | None = None
  naccdmax: int | None = None
  njmax_nnz: int | None = None
  nvmax: int | None = None

  def without_rows(self, nconmax: int = 0) -> Sizes:
    """The capacities of what needs no constraint rows, and this many contacts of one world."""
    contacts = dict(nconmax=nconmax, nccdmax=nconmax, naconmax=None, naccdmax=None)
    return self._replace(njmax=0, **contacts)


def _known(value: Any) -> np.ndarray | None:
  """The value of an array, None of a tracer, whose value is not known yet."""
  try:
    return np.asarray(value)
  except Exception:
    return None


def _may_act(value: Any) -> bool:
  known = _known(value)
  return known is None or bool(np.any(known))


def _nonzero(mj_model: mujoco.MjModel, name: str) -> bool:
  return bool(np.any(fields.lookup(mj_model, name)))


def _structure(mj_model: mujoco.MjModel) -> str:
  """Digest of everything that is not a leaf."""
  blank = copy.copy(mj_model)
  for leaf in fields.model_leaves():
    owner = blank.opt if leaf.name.startswith("opt.") else blank
    name = leaf.name.removeprefix("opt.")
    value = getattr(owner, name)
    if isinstance(value, np.ndarray):
      value[...] = 0
    else:
      setattr(owner, name, 0)
  for name in fields.option_statics():
    if hasattr(blank.opt, name):
      setattr(blank.opt, name, 0)
  for name in _DERIVED:
    getattr(blank, name)[...] = 0
  stat = blank.stat
  stat.meaninertia = stat.meanmass = stat.meansize = stat.extent = 0
  stat.center[:] = 0
  buffer = np.zeros(mujoco.mj_sizeModel(blank), np.uint8)
  mujoco.mj_saveModel(blank, None, buffer)
  return hashlib.sha256(buffer.tobytes()).hexdigest()[:32]
