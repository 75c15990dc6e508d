"""mujoco_warp's Model and Data for one batch of worlds, in buffers that never move."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import sleep as mjw_sleep

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.fields import lookup
from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.data.warp_enums import DisableBit, EnableBit, EqType, IntegratorType
from mjx_warp_ffi.mjx.warp.staging import static_geoms, world_contacts
from mjx_warp_ffi.mjx.warp.staging.autoreset import AutoReset
from mjx_warp_ffi.mjx.warp.staging.counts import COUNTS
from mjx_warp_ffi.mjx.warp.staging.fork import Side
from mjx_warp_ffi.mjx.warp.staging.plan import Plan
from mjx_warp_ffi.mjx.warp.staging.watch import Watch

# Results that are final when the collisions are.
EARLY = frozenset(
  "xpos xquat xmat xipos ximat xanchor xaxis geom_xpos geom_xmat site_xpos site_xmat cam_xpos"
  " cam_xmat light_xpos light_xdir subtree_com cinert cdof ten_length flexvert_xpos"
  " flexedge_length".split()
) | {f"contact.{f.name}" for f in fields.contact_fields() if f.name != "efc_address"}

# Contacts, and the pairs that may touch, live in pools that all worlds share. The places of this
# many worlds more, as many as there are at most, keep a few worlds with too many contacts from
# taking those of the others. A world alone needs spare places for its pairs only.
_SPARE_WORLDS = 32


class Workspace:
  """Buffers on the current Warp device.

  Attributes:
    m: mujoco_warp's Model.
    d: mujoco_warp's Data.
    contacts: contacts by world.
    watch: bad states and full capacities.
    memo: arrays that a function prepares in its first run, before it is captured.
  """

  def __init__(self, plan: Plan, *, hand_out: Callable[[], None] = lambda: None):
    """Allocates the buffers; `hand_out` launches the copies of the results in `EARLY`."""
    self.plan = plan
    self._hand_out = hand_out
    self.memo: dict[str, wp.array] = {}
    mj_model = plan.mj_model()
    self.m = _make_model(plan, mj_model)
    pairs = _pairs(self.m)
    self.d = _make_data(plan, pairs, mj_model=mj_model)
    converted = {n: lookup(self.m, target) for n, target in fields.CONVERTED.items()}
    self._raw = {n: wp.zeros_like(x) for n, x in converted.items()}
    self._static_geoms = static_geoms.StaticGeoms(mj_model)
    self.contacts = world_contacts.WorldContacts(self.d, plan.sizes.nconmax)
    peaks = COUNTS.of(plan.sizes, plan.nworld, device=self.d.qpos.device.alias)
    fixed = [(self.leaf(n), values) for n, values in plan.spec.fixed().items()]
    self.watch = Watch(self.d, self.contacts, peaks=peaks, fixed=fixed)
    self.m.callback.contactfilter = self._collided
    bodies = np.isin(mj_model.eq_type, (EqType.CONNECT, EqType.WELD))
    self._rows_need_rates = bool(np.any(bodies))
    self._autoreset = AutoReset(self.m, self.d, self.watch) if plan.autoreset else None
    self._touches = pairs > 0
    if not self._touches:
      self.contacts.launch()  # the padding, once for all calls
    # Launches what follows from the collisions alone, until that is done.
    self._waiting: Callable[[], None] | None = None
    self._side = Side() if self.d.qpos.device.is_cuda else None

  def leaf(self, name: str) -> wp.array:
    """The array that holds a leaf of Model."""
    return self._raw[name] if name in self._raw else lookup(self.m, name)

  def field(self, name: str) -> wp.array:
    """The array that holds a field of Data, or of its contacts under `contact.`."""
    if name.startswith("contact."):
      return self.contacts.arrays[name.removeprefix("contact.")]
    own = {"ncon": self.contacts.ncon, "warning": self.watch.warning}
    return own[name] if name in own else getattr(self.d, name)

  def begin(self) -> None:
    """Brings what follows from the leaves and the sleeping trees up to date; can be captured."""
    static_geoms.convert_options(
      self.m, impratio=self._raw["opt.impratio"], tolerance=self._raw["opt.tolerance"]
    )
    self._static_geoms.launch(self.m, self.d)
    if self.m.opt.enableflags & EnableBit.SLEEP:
      mjw_sleep.update_sleep(self.m, self.d)

  def run(self, function: Callable[[mjw.Model, mjw.Data], None], times: int = 1) -> None:
    """Runs a function of mujoco_warp, several times in a row, and what belongs around it.

    It can be captured. The calls in between leave no contacts by world behind, only their number.
    """
    self.begin()
    for _ in range(times - 1):
      self._run_once(function, self._count)
    self._run_once(function, self._view)
    if self._touches:
      self.contacts.find_rows()

  def _count(self) -> None:
    """Launches what `watch.end` wants to know."""
    if self._touches:
      self.contacts.count()
    self.watch.leaves()

  def _view(self) -> None:
    """The same, and what makes and hands out the results in `EARLY`."""
    if self._touches:
      self.contacts.launch()
    self.watch.leaves()
    self._hand_out()

  def _run_once(
    self, function: Callable[[mjw.Model, mjw.Data], None], afterwards: Callable[[], None]
  ) -> None:
    self.watch.begin()
    if self._rows_need_rates and not _collides(self.m, self.d):
      mjw.kinematics(self.m, self.d)
      mjw.com_pos(self.m, self.d)
      mjw.com_vel(self.m, self.d)
    self._waiting = afterwards
    if self._side is not None and self._comes_by_once(function):
      self.m.callback.control = self._join
    if self._autoreset is not None and function is mjw.step:
      function = self._autoreset.step
    function(self.m, self.d)
    self.m.callback.control = None
    if self._waiting is not None:
      self._waiting()
    self.watch.end()

  def _comes_by_once(self, function: Callable[[mjw.Model, mjw.Data], None]) -> bool:
    """Whether a function runs one collision detection and then calls `callback.control`."""
    return (
      function in (mjw.step, mjw.forward)
      and self._autoreset is None
      and self.m.opt.integrator != IntegratorType.RK4
      and not self.m.opt.disableflags & DisableBit.ACTUATION
      and not self.m.opt.enableflags & EnableBit.SLEEP  # what wakes makes it look again
    )

  def _fork(self) -> None:
    """Launches what waits beside what the current stream gets until it joins.

    That is the making of rows and the velocity stage, which do not change what is read here. They
    leave most of the device to it, unless there are very many worlds; and the solver must not come
    in between, since its loop can only be captured when all streams have joined.
    """
    waiting, self._waiting = self._waiting, None
    with self._side.fork():  # pyright: ignore
      waiting()  # pyright: ignore

  def _join(self, m: mjw.Model, d: mjw.Data) -> None:
    """Waits for what was forked; a callback of mujoco_warp."""
    if self._waiting is None:
      self._side.join()  # pyright: ignore

  def _collided(self, m: mjw.Model, d: mjw.Data) -> None:
    """What belongs between the collisions and the constraint rows."""
    self.watch.collided(m, d)
    if self._rows_need_rates:
      # mujoco_warp computes them after the rows that read them, which would see another state's
      mjw.com_vel(m, d)
    if m.callback.control is not None:
      self._fork()


def _collides(m: mjw.Model, d: mjw.Data) -> bool:
  """Whether mujoco_warp looks for collisions, at the end of which it calls back."""
  off = m.opt.disableflags & (DisableBit.CONSTRAINT | DisableBit.CONTACT)
  return bool(d.naconmax and m.opt.run_collision_detection and not off)


def _make_model(plan: Plan, mj_model: mujoco.MjModel) -> mjw.Model:
  statics = plan.statics
  m = mjw.put_model(mj_model)
  for name in statics._fields:
    value = getattr(m.opt, name)
    setattr(m.opt, name, type(value)(getattr(statics, name)))
  for name in plan.spec.switches:
    setattr(m, name, True)
  # compiled in wherever the feature could exist: these cost nothing while they are zero
  m.has_tendon_stiffness = m.has_tendon_damping = mj_model.ntendon > 0
  m.has_efm_actuator = m.has_efm_actuator or bool(
    np.any(mj_model.actuator_gaintype == mujoco.mjtGain.mjGAIN_AFFINE)
    or np.any(mj_model.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE)
  )
  for name in plan.batched:
    path = fields.CONVERTED.get(name, name)
    old = lookup(m, path)
    rows = wp.empty((plan.nworld, *old.shape[1:]), dtype=old.dtype)
    owner = m.opt if path.startswith("opt.") else m
    setattr(owner, path.removeprefix("opt."), rows)
    rows._is_batched = True
  return m


def _pairs(m: mjw.Model) -> float:
  """The most pairs of geoms of a world that may touch; unbounded where vertices of flexes may."""
  return np.inf if m.nflex else len(m.nxn_geom_pair_filtered)


def pool_size(sizes: Sizes, nworld: int, *, pairs: float) -> int:
  """Contacts of all worlds together that a workspace can hold, and pairs that may touch."""
  size = sizes.nconmax * spread(nworld)
  if nworld == 1:
    size = max(sizes.nconmax, int(min(size, pairs)))
  return sizes.naconmax or size


def spread(nworld: int) -> int:
  """The number of worlds whose `nconmax` pairs a pool for `nworld` can hold."""
  return nworld + min(nworld, _SPARE_WORLDS)


def _make_data(plan: Plan, pairs: float, *, mj_model: mujoco.MjModel) -> mjw.Data:
  sizes, nworld = plan.sizes, plan.nworld
  naconmax = pool_size(sizes, nworld, pairs=pairs)
  nccdmax = sizes.nccdmax
  naccdmax = sizes.naccdmax or (None if nccdmax is None else min(naconmax, nccdmax * nworld))
  return mjw.make_data(
    mj_model,
    nworld=nworld,
    nconmax=sizes.nconmax,
    njmax=sizes.njmax,
    njmax_nnz=sizes.njmax_nnz,
    naconmax=naconmax,
    naccdmax=naccdmax,
    nvmax=sizes.nvmax,
  )
