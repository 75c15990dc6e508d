"""Static options that replace those of a model act as if the model had been put with them."""

import jax
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx

_BALLS = "".join(
  f"<body pos='{0.15 * i} 0 .09'><freejoint/><geom size='.1'/></body>" for i in range(6)
)
BALLS = f"""<mujoco><worldbody><geom type="plane" size="9 9 1"/>{_BALLS}</worldbody></mujoco>"""
# a body that overlaps its parent, which collides with it only if asked to
PARENT = """<mujoco><worldbody><body pos="0 0 1"><freejoint/><geom size=".1"/>
  <body pos=".15 0 0"><joint axis="0 1 0" damping=".1"/><geom size=".1"/></body></body>
  </worldbody></mujoco>"""
FILTER = int(mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
CASES = {
  "parents that collide": (PARENT, {}, {"disableflags": FILTER}),
  "parents that do not": (PARENT, {"disableflags": FILTER}, {"disableflags": 0}),
  "sleeping": (BALLS, {}, {"enableflags": int(mujoco.mjtEnableBit.mjENBL_SLEEP)}),
  "Newton": (BALLS, {"solver": mjx.SolverType.CG}, {"solver": mjx.SolverType.NEWTON}),
  "pyramids": (BALLS, {"cone": mjx.ConeType.ELLIPTIC}, {"cone": mjx.ConeType.PYRAMIDAL}),
  "discrete": (BALLS, {}, {"integrator": mjx.IntegratorType.DISCRETE}),
}
STEPS = 20


def _compiled(xml, options):
  mj_model = mujoco.MjModel.from_xml_string(xml)
  for name, value in options.items():
    setattr(mj_model.opt, name, int(value))
  return mj_model


def _replaced(m, options):
  return m.tree_replace({f"opt.{name}": value for name, value in options.items()})


@pytest.mark.parametrize("name", CASES)
def test_an_option_that_replaces_another_acts_as_one_that_was_put(name):
  xml, before, after = CASES[name]
  mj_model = _compiled(xml, {**before, **after})
  mj_data = mujoco.MjData(mj_model)
  mj_data.qvel[:] = np.random.default_rng(0).normal(size=mj_model.nv)
  start = mj_data.qvel.copy()
  for _ in range(STEPS):
    mujoco.mj_step(mj_model, mj_data)
  replaced = _replaced(mjx.put_model(_compiled(xml, before)), after)
  # the one that was put comes second: it must not get what was made for the other
  for m in (replaced, mjx.put_model(mj_model)):
    d = mjx.make_data(m).replace(qvel=start)
    d = jax.jit(lambda m, d: jax.lax.fori_loop(0, STEPS, lambda _, d: mjx.step(m, d), d))(m, d)
    mjx.check_overflow(d)
    # float32 through twenty steps with contacts
    np.testing.assert_allclose(d.qvel, mj_data.qvel, atol=1e-3)


@pytest.mark.parametrize(
  ("options", "error", "message"),
  [
    ({"solver": mjx.SolverType.PGS}, NotImplementedError, "mjSOL_PGS is unsupported"),
    (
      {"disableflags": int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)},
      NotImplementedError,
      "mjDSBL_MIDPHASE is unsupported",
    ),
    (
      {"enableflags": int(mujoco.mjtEnableBit.mjENBL_FWDINV)},
      NotImplementedError,
      "mjENBL_FWDINV is unsupported",
    ),
    (
      {"integrator": mjx.IntegratorType.DISCRETE, "noslip_iterations": 1},
      NotImplementedError,
      "noslip solver not implemented",
    ),
    (
      {"iterations": 2.5},
      ValueError,
      "opt.iterations is compiled into the step and must be an int",
    ),
    ({"integrator": "RK4"}, ValueError, "must be an integer, got 'RK4'; enumerations are in mjx"),
    ({"graph_conditional": 2}, ValueError, "must be True or False, got 2"),
  ],
  ids=lambda x: "-".join(x) if isinstance(x, dict) else "",
)
def test_an_option_that_put_model_refuses_replaces_none(options, error, message):
  with pytest.raises(error, match=message):
    _replaced(mjx.put_model(mujoco.MjModel.from_xml_string(PARENT)), options)


def test_a_traced_static_option_is_refused():
  m = mjx.put_model(mujoco.MjModel.from_xml_string(PARENT))
  with pytest.raises(ValueError, match="opt.iterations is compiled into the step"):
    jax.jit(lambda n: m.opt.replace(iterations=n).tolerance)(3)


def test_parts_of_another_kind_replace_nothing():
  m = mjx.put_model(mujoco.MjModel.from_xml_string(PARENT))
  with pytest.raises(ValueError, match="gradient must be one of analytic, fd, none, got 'exact'"):
    m.replace(gradient="exact")
  with pytest.raises(TypeError, match="opt must be of type Option, got dict; .*'opt.<field>'"):
    m.tree_replace({"opt": {"gravity": [0, 0, 0]}})
  with pytest.raises(TypeError, match="contact must be of type Contact, got NoneType"):
    mjx.make_data(m).replace(contact=None)
