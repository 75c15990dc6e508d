"""Capacities: overflow bits, exact worlds without them, peaks, advice, suggestions, defaults."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mujoco_warp import OverflowType

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.warp.staging import workspace
from support import helpers, worlds

_NAMES = sorted(p.stem for p in helpers.MODELS.glob("*.xml"))
_LOST = int(OverflowType.ALL & ~(OverflowType.ITERATIONS | OverflowType.LS_ITERATIONS))

# Balls on a floor: a ball below 0.1 touches it, so that the state says how many contacts there are.
_BALLS = (
  "<mujoco><option timestep='.001'/><worldbody><geom type='plane' size='5 5 .1'/>"
  + "".join(
    f"<body pos='{i} 0 1'><freejoint/><geom size='.1' condim='3'/></body>" for i in range(6)
  )
  + "</worldbody></mujoco>"
)


@functools.cache
def _balls():
  return mjx.put_model(mujoco.MjModel.from_xml_string(_BALLS))


@functools.cache
def _step():
  return jax.jit(jax.vmap(mjx.step, (None, 0)))


@functools.cache
def _forward():
  return jax.jit(jax.vmap(mjx.forward, (None, 0)))


def _worlds(touching, **sizes):
  """A batch in which as many balls of each world touch the floor as `touching` says."""
  m = _balls()
  d = mjx.make_data(m, **sizes)
  d = worlds.repeat(d, len(touching))
  z = np.where(np.arange(6) < np.array(touching)[:, None], 0.09, 1.0)
  return d.replace(qpos=d.qpos.at[:, 2::7].set(jnp.asarray(z, jnp.float32)))


# Where to look: which capacity is small, and the bit that says so.
_CASES = {
  "rows": (dict(nconmax=8, njmax=12), OverflowType.NEFC),
  "contacts": (dict(nconmax=3, njmax=64), OverflowType.NARROWPHASE),
  "pool": (dict(njmax=64, naconmax=10), OverflowType.BROADPHASE),
}


@pytest.mark.parametrize("function", [_step, _forward], ids=["step", "forward"])
@pytest.mark.parametrize("case", _CASES)
def test_one_world_of_eight_overflows_and_every_world_without_the_bit_is_exact(case, function):
  sizes, bit = _CASES[case]
  touching = [1, 2, 0, 6, 1, 2, 1, 0]
  got = function()(_balls(), _worlds(touching, **sizes))
  ample = _worlds(touching, nconmax=got.sizes.nconmax, njmax=64)
  exact = function()(_balls(), ample)
  lost = np.asarray(got.overflow) & _LOST
  assert lost[3] & int(bit), lost
  if case != "pool":  # there, any world may have lost something
    assert (lost != 0).sum() == 1, lost
  whole = np.flatnonzero(lost == 0)
  for name in ("qpos", "qvel", "qacc", "xpos", "sensordata", "qfrc_constraint", "nefc", "ncon"):
    np.testing.assert_array_equal(getattr(got, name)[whole], getattr(exact, name)[whole], name)
  for x, y in zip(jax.tree.leaves(got.contact), jax.tree.leaves(exact.contact), strict=True):
    np.testing.assert_array_equal(x[whole], y[whole])


def test_a_pool_full_of_contacts_sets_the_bit_in_every_world():
  boxes = _BALLS.replace("size='.1'", "type='box' size='.1 .1 .1'")
  m = mjx.put_model(mujoco.MjModel.from_xml_string(boxes))
  d = mjx.make_data(m, njmax=128, naconmax=60)  # 48 pairs, of four contacts each
  d = worlds.repeat(d, 8)
  got = _forward()(m, d.replace(qpos=d.qpos.at[:, 2::7].set(0.09)))
  np.testing.assert_array_equal(got.overflow & _LOST, np.full(8, OverflowType.NARROWPHASE))
  assert 0 < got.ncon.sum() <= 60


def test_pairs_that_do_not_touch_can_fill_the_pool_too():
  capsules = _BALLS.replace("size='.1'", "type='capsule' size='.01 .9' euler='0 90 0'")
  m = mjx.put_model(mujoco.MjModel.from_xml_string(capsules))
  d = mjx.make_data(m, nconmax=1, njmax=64)
  d = d.replace(qpos=d.qpos.at[2::7].set(jnp.arange(6, dtype=jnp.float32) * 0.1 + 0.5))
  d = jax.jit(mjx.forward)(m, d)
  assert int(d.overflow) & _LOST == int(OverflowType.BROADPHASE) and d.ncon == 0
  with pytest.raises(ValueError, match="nconmax="):
    mjx.check_overflow(d)


def test_a_world_alone_has_places_for_its_contacts_and_for_all_its_pairs():
  sizes = mjx.make_data(_balls(), nconmax=8, njmax=64).sizes
  sizes_of_pools = [workspace.pool_size(sizes, 1, pairs=pairs) for pairs in (0, 5, 12, 21, np.inf)]
  assert sizes_of_pools == [8, 8, 12, 16, 16]
  assert workspace.pool_size(sizes, 2, pairs=0) == 32  # contacts of one may take places of another


@pytest.mark.parametrize("substeps", [1, 3])
def test_contacts_of_a_model_in_which_nothing_can_touch_are_padding(substeps):
  m = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path("double_pendulum"))))
  step = jax.jit(lambda d: mjx.step(m, d, substeps=substeps))
  d = step(step(mjx.make_data(m)))
  assert d.ncon == 0 and np.all(d.contact.dist == 1) and np.all(d.contact.geom == -1)


def test_bits_stay_until_a_reset():
  d = _worlds([6, 0], nconmax=8, njmax=12)
  d = _step()(_balls(), d)
  d = d.replace(qpos=d.qpos.at[:, 2::7].set(1.0))
  d = _step()(_balls(), d)
  assert np.asarray(d.overflow)[0] & int(OverflowType.NEFC)
  d = mjx.reset(_balls(), d, jnp.array([True, False]))
  assert int(d.overflow[0]) == 0


def test_peaks_are_the_largest_counts_of_all_calls():
  m = _balls()
  jax.block_until_ready(_step()(m, _worlds([0, 1], nconmax=8, njmax=64)))
  mjx.capacity_peaks(m, clear=True)
  for touching in ([1, 4], [2, 0], [5, 5]):
    jax.block_until_ready(_step()(m, _worlds(touching, nconmax=8, njmax=64)))
  assert mjx.capacity_peaks(m) == {"nconmax": 5, "njmax": 20, "naconmax": 10}
  assert mjx.capacity_peaks(m.spec.mj_model, clear=True)["njmax"] == 20
  assert mjx.capacity_peaks(m) == {"nconmax": 0, "njmax": 0, "naconmax": 0}


@pytest.mark.parametrize("case", _CASES)
def test_check_overflow_names_the_argument_and_a_number_that_suffices(case):
  m = _balls()
  mjx.capacity_peaks(m, clear=True)
  sizes, bit = dict(_CASES[case][0]), _CASES[case][1]
  touching = [1, 2, 0, 6, 1, 2, 1, 0]
  for _ in range(2):  # contacts that were dropped have no rows yet: two rounds at most
    d = _step()(m, _worlds(touching, **sizes))
    try:
      mjx.check_overflow(d)
      return
    except ValueError as error:
      message = str(error)
      assert bit.name in message, message
      for part in message.split("pass ")[1:]:
        name, number = part.split(" ")[0].split("=")
        assert name in sizes and int(number) > sizes[name]
        sizes[name] = int(number)
  mjx.check_overflow(_step()(m, _worlds(touching, **sizes)))


def _advice(d):
  with pytest.raises(ValueError, match="a capacity was too small") as error:
    mjx.check_overflow(d)
  return str(error.value)


@pytest.mark.parametrize("sizes", [dict(nconmax=1), dict(naconmax=4)], ids=["each", "pool"])
def test_check_overflow_counts_no_calls_with_more_worlds_or_other_capacities(sizes):
  m, sizes = _balls(), {**sizes, "njmax": 8}
  mjx.capacity_peaks(m, clear=True)
  d = _step()(m, _worlds([2, 3, 1], **sizes))
  alone = _advice(d)
  for other in (
    _worlds([6] * 12, **sizes),
    _worlds([6] * 3, nconmax=8, njmax=32),
    _worlds([6] * 3, njmax=32, naconmax=20),
  ):
    jax.block_until_ready(_step()(m, other))
  assert mjx.capacity_peaks(m)["naconmax"] == 72
  assert _advice(d) == alone
  assert "conmax=8 " in alone  # 3 contacts of a world, 6 in all, rounded up


def test_check_overflow_of_a_part_of_a_batch_names_what_the_batch_needed():
  m = _balls()
  mjx.capacity_peaks(m, clear=True)
  d = _step()(m, _worlds([1, 6, 1, 1, 1], nconmax=8, njmax=12))
  assert "NEFC in 1 of 1 worlds: pass njmax=24" in _advice(jax.tree.map(lambda x: x[1], d))


def test_check_overflow_is_silent_for_iterations_and_loud_under_jit():
  d = _worlds([1, 1], nconmax=8, njmax=64)
  mjx.check_overflow(d.replace(overflow=jnp.full(2, int(OverflowType.ITERATIONS), jnp.int32)))
  with pytest.raises(TypeError, match="outside of jit"):
    jax.jit(mjx.check_overflow)(d)


def test_nothing_is_printed_when_a_capacity_overflows(capfd):
  jax.block_until_ready(_step()(_balls(), _worlds([6] * 8, njmax=8, naconmax=8)))
  out, err = capfd.readouterr()
  assert "overflow" not in out + err


def test_suggested_sizes_hold_and_are_not_wasteful():
  sizes = mjx.suggest_sizes(_balls().spec.mj_model, nworld=4, nstep=600)
  assert set(sizes) == {"nconmax", "njmax"}
  assert 4 <= sizes["nconmax"] <= 16 and 16 <= sizes["njmax"] <= 48, sizes
  mjx.check_overflow(_step()(_balls(), _worlds([5] * 4, **sizes)))
  with pytest.raises(ValueError, match="ctrl has shape"):
    mjx.suggest_sizes(_balls().spec.mj_model, ctrl=np.zeros((3, 2)))


@pytest.mark.parametrize("name", _NAMES)
def test_the_default_capacities_hold_for_a_rollout_of_each_model(name, rng):
  mj_model = mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m)
  batch = worlds.repeat(d, 4)
  qvel = rng.normal(size=(4, m.nv)) * np.array([[0.0], [0.5], [1.0], [2.0]])
  batch = batch.replace(qvel=jnp.asarray(qvel, jnp.float32))
  low, high = np.clip(mj_model.actuator_ctrlrange.T, -1, 1)
  ctrl = jnp.asarray(rng.uniform(low, high, size=(10, 4, m.nu)), jnp.float32)

  def hold(d, u):
    def one(d, _):
      return jax.vmap(mjx.step, (None, 0))(m, d.replace(ctrl=u)), None

    return jax.lax.scan(one, d, None, 30)[0], None

  end = jax.jit(lambda d: jax.lax.scan(hold, d, ctrl)[0])(batch)
  mjx.check_overflow(end)
  assert jnp.isfinite(end.qpos).all()


def test_worlds_that_lose_convex_contacts_have_the_bit_and_the_others_are_exact():
  eggs = "<mujoco><worldbody>" + "".join(
    f"<body pos='{i} 0 {z}'><freejoint/><geom type='ellipsoid' size='.2 .15 .1'/></body>"
    for i in range(3)
    for z in (0, 0.19)
  )
  m = mjx.put_model(mujoco.MjModel.from_xml_string(eggs + "</worldbody></mujoco>"))

  def touching(**sizes):
    d = worlds.repeat(mjx.make_data(m, njmax=64, **sizes), 4)
    apart = np.zeros((4, m.nq), np.float32)
    apart[1:, 9] = apart[1:, 23] = 1.0  # in three worlds a single pair touches
    return d.replace(qpos=d.qpos + apart)

  got, exact = _forward()(m, touching(naccdmax=4)), _forward()(m, touching())
  lost = np.asarray(got.overflow) & _LOST
  assert (lost & int(OverflowType.CCD)).any() and not (np.asarray(exact.overflow) & _LOST).any()
  whole = np.flatnonzero(lost == 0)
  assert whole.size > 0
  for name in ("qacc", "ncon", "nefc"):
    np.testing.assert_array_equal(getattr(got, name)[whole], getattr(exact, name)[whole], name)
  with pytest.raises(ValueError, match="CCD in .* naccdmax"):
    mjx.check_overflow(got)
