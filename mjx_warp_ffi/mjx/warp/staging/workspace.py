"""mujoco_warp's Model and Data for one batch of worlds, in buffers that never move."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import sleep as mjw_sleep

from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.enums import DisableBit, EnableBit, EqType, IntegratorType
from mjx_warp_ffi.mjx.data.fields import lookup
from mjx_warp_ffi.mjx.data.spec import Sizes
from mjx_warp_ffi.mjx.warp.staging import static_geoms, world_contacts
from mjx_warp_ffi.mjx.warp.staging.autoreset import AutoReset
from mjx_warp_ffi.mjx.warp.staging.counts import COUNTS
from mjx_warp_ffi.mjx.warp.staging.fork import SideStream
from mjx_warp_ffi.mjx.warp.staging.plan import Plan
from mjx_warp_ffi.mjx.warp.staging.watch import Watch

# Results that are final once collisions are detected.
EARLY = frozenset(
  "xpos xquat xmat xipos ximat xanchor xaxis geom_xpos geom_xmat site_xpos site_xmat cam_xpos"
  " cam_xmat light_xpos light_xdir subtree_com cinert cdof ten_length flexvert_xpos"
  " flexedge_length".split()
) | {f"contact.{f.name}" for f in fields.contact_fields() if f.name != "efc_address"}

# Contacts, and the pairs of geoms that may touch, live in pools that all worlds share. A pool has
# places for this many worlds more than there are (at most for twice as many), so that a few worlds
# with too many contacts do not take the places of the others. A single world needs spare places for
# its pairs only.
_SPARE_WORLDS = 32


class Workspace:
  """Buffers on the current Warp device.

  Attributes:
    m: mujoco_warp's Model.
    d: mujoco_warp's Data.
    contacts: contacts by world.
    watch: bad states and full capacities.
    memo: what a function prepares in its first run, which no graph captures, for the later ones.
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
    # Launches what needs nothing but the collisions; None once it was launched.
    self._waiting: Callable[[], None] | None = None
    self._side = SideStream() if self.d.qpos.device.is_cuda else None

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
    """Updates what depends on the leaves alone, and which trees sleep; can be captured."""
    static_geoms.convert_options(
      self.m, impratio=self._raw["opt.impratio"], tolerance=self._raw["opt.tolerance"]
    )
    self._static_geoms.launch(self.m, self.d)
    if self.m.opt.enableflags & EnableBit.SLEEP:
      mjw_sleep.update_sleep(self.m, self.d)

  def run(self, function: Callable[[mjw.Model, mjw.Data], None], times: int = 1) -> None:
    """Runs a function of mujoco_warp, several times in a row, and what belongs around it.

    It can be captured. Only the last run leaves contacts by world behind; the ones before it leave
    their number alone.
    """
    self.begin()
    for _ in range(times - 1):
      self._run_once(function, self._count)
    self._run_once(function, self._hand_out_contacts)
    if self._touches:
      self.contacts.find_rows()

  def _count(self) -> None:
    """Counts the contacts of each world, and looks for leaves that are ignored."""
    if self._touches:
      self.contacts.count()
    self.watch.leaves()

  def _hand_out_contacts(self) -> None:
    """As `_count`, and fills the contacts by world and hands out the results in `EARLY`."""
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
    """Whether a function detects collisions once, and calls `callback.control` once after it."""
    return (
      function in (mjw.step, mjw.forward)
      and self._autoreset is None
      and self.m.opt.integrator != IntegratorType.RK4
      and not self.m.opt.disableflags & DisableBit.ACTUATION
      and not self.m.opt.enableflags & EnableBit.SLEEP  # what wakes makes it look again
    )

  def _fork(self) -> None:
    """Launches what waits for the collisions on the side stream, until `_join`.

    The current stream makes constraint rows and runs the velocity stage meanwhile. They change
    nothing that the side stream reads, and leave most of the device to it unless there are very
    many worlds. The streams join before the solver, whose loop can only be captured when no other
    stream is at work.
    """
    waiting, self._waiting = self._waiting, None
    assert self._side is not None and waiting is not None
    with self._side.fork():
      waiting()

  def _join(self, m: mjw.Model, d: mjw.Data) -> None:
    """Waits for the side stream; mujoco_warp's `callback.control`."""
    if self._waiting is None:
      assert self._side is not None
      self._side.join()

  def _collided(self, m: mjw.Model, d: mjw.Data) -> None:
    """What runs between collisions and constraint rows; mujoco_warp's `callback.contactfilter`."""
    self.watch.collided(m, d)
    if self._rows_need_rates:
      # mujoco_warp computes them after the rows that read them, which would see another state's
      mjw.com_vel(m, d)
    if m.callback.control is not None:
      self._fork()


def _collides(m: mjw.Model, d: mjw.Data) -> bool:
  """Whether mujoco_warp detects collisions, after which it calls `callback.contactfilter`."""
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
