"""What a workspace hands out before a step has ended, and what it packs together."""

import contextlib

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
from mujoco_warp._src import solver as mjw_solver

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data import fields
from mjx_warp_ffi.mjx.data.types import replace_leaves
from mjx_warp_ffi.mjx.warp import ffi
from mjx_warp_ffi.mjx.warp.staging.packing import Packing
from mjx_warp_ffi.mjx.warp.staging.plan import Plan
from mjx_warp_ffi.mjx.warp.staging.workspace import EARLY, Workspace
from support import helpers, worlds


def _moving_workspace(name, rng):
  """A workspace whose worlds move, touch and are driven."""
  mj_model = mujoco.MjModel.from_xml_path(str(helpers.model_path(name)))
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m)
  w = Workspace(Plan(m.spec, m.opt.statics, d.sizes, 2, frozenset()))
  for leaf in fields.model_leaves():
    if leaf.name in fields.CONVERTED:  # `begin` reads these where JAX's values are staged
      w.leaf(leaf.name).fill_(float(fields.lookup(m, leaf.name)))
  if mj_model.nkey:
    w.d.qpos.assign(np.tile(mj_model.key_qpos[0].astype(np.float32), (2, 1)))
  w.d.qvel.assign(rng.normal(size=(2, mj_model.nv)).astype(np.float32))
  w.d.ctrl.assign(rng.normal(size=(2, mj_model.nu)).astype(np.float32))
  return w


@pytest.mark.parametrize("name", sorted(p.stem for p in helpers.MODELS.glob("*.xml")))
def test_what_is_handed_out_early_is_final(name, rng):
  w = _moving_workspace(name, rng)
  early = sorted(EARLY & set(ffi.FIELDS))
  assert set(early) == EARLY
  seen = {}

  def note(m, d):
    collided(m, d)
    w.contacts.launch()
    seen.update({n: w.field(n).numpy().copy() for n in early})
    w.contacts.ncon.zero_()

  if w.m.opt.integrator == mjx.IntegratorType.RK4:
    pytest.skip("RK4 hands nothing out: it comes by here four times")
  collided, w.m.callback.contactfilter = w.m.callback.contactfilter, note
  for _ in range(20):
    seen.clear()
    w.run(mjw.step)
    for n in early if seen else ():
      np.testing.assert_array_equal(w.field(n).numpy(), seen[n], err_msg=n)
  quiet = w.m.opt.disableflags & mjx.DisableBit.CONTACT or not w.d.naconmax
  assert seen or quiet


class _FakeSide:
  """Notes when work is forked and joined; on the CPU it runs at once."""

  def __init__(self):
    self.forks, self.is_open = 0, False

  @contextlib.contextmanager
  def fork(self):
    assert not self.is_open
    self.forks, self.is_open = self.forks + 1, True
    yield

  def join(self):
    assert self.is_open
    self.is_open = False


@pytest.mark.parametrize(
  ("flags", "forks"),
  [
    ("", 2),
    ('<option integrator="RK4"/>', 0),
    ('<option integrator="implicitfast"/>', 2),
    ('<option><flag sleep="enable"/></option>', 0),
    ('<option><flag actuation="disable"/></option>', 0),
    ('<option><flag contact="disable"/></option>', 0),
    ('<option><flag constraint="disable"/></option>', 0),
  ],
)
def test_what_is_forked_has_joined_before_the_solver_begins(flags, forks, monkeypatch):
  """The loop of the solver cannot be captured while another stream is at work."""
  xml = f"""<mujoco>{flags}<worldbody><geom type="plane" size="1 1 1"/>
    <body pos="0 0 0.09"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>"""
  m = mjx.put_model(mujoco.MjModel.from_xml_string(xml))
  d = mjx.make_data(m)
  w = Workspace(Plan(m.spec, m.opt.statics, d.sizes, 2, frozenset()))
  w._side = side = _FakeSide()

  def solve(*args, **kwargs):
    assert not side.is_open
    return original(*args, **kwargs)

  original = mjw_solver.solve
  monkeypatch.setattr(mjw_solver, "solve", solve)
  for function in (mjw.step, mjw.forward):
    w.run(function)
    assert not side.is_open
  assert side.forks == forks
  w.run(mjw.fwd_position)
  assert side.forks == forks


def test_a_call_passes_what_all_worlds_share_as_one_argument():
  m = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path("hopper"))))
  leaves = tuple(f.name for f in fields.model_leaves() if fields.lookup(m, f.name).size)
  single = [n for n in leaves if fields.lookup(m, n).dtype == np.float32]
  packing = Packing(leaves, {"body_mass"})
  arguments = packing.arguments([fields.lookup(m, n) for n in leaves])
  assert len(packing) == len(arguments) == 2 + len(leaves) - len(single)
  size = sum(fields.lookup(m, n).size for n in single if n != "body_mass")
  assert arguments[0].shape == (size,)


def test_a_loop_makes_no_leaf_of_a_model_anew():
  m = mjx.put_model(mujoco.MjModel.from_xml_path(str(helpers.model_path("hopper"))))
  d = worlds.repeat(mjx.make_data(m), 2)

  def closed_over(d):
    step = jax.vmap(mjx.step, in_axes=(None, 0))
    return jax.lax.scan(lambda d, _: (step(m, d), None), d, length=3)[0]

  def passed(leaves, d):
    step = jax.vmap(mjx.step, in_axes=(None, 0))
    other = replace_leaves(m, leaves)
    return jax.lax.scan(lambda d, _: (step(other, d), None), d, length=3)[0]

  leaves = {n: fields.lookup(m, n) for n in ("body_mass", "geom_pos", "dof_damping")}
  for compiled in (
    jax.jit(closed_over).lower(d).compile(),
    jax.jit(passed).lower(jax.tree.map(jnp.asarray, leaves), d).compile(),
  ):
    parts = compiled.as_text().split("\n\n")
    (body,) = (part for part in parts if "custom-call(" in part)
    call = body[body.index("custom-call(") :]
    assert call.split(")")[0].count(",") < 40
    # XLA for GPUs leaves one kernel in the loop, that of the concatenation
    assert jax.default_backend() != "cpu" or "concatenate" not in body
    assert body.count(" fusion(") < 10
