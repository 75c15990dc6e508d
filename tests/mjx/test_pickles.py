"""Model and Data come back from pickles and copies, also from those of earlier versions."""

import copy
import gzip
import inspect
import pathlib
import pickle
import pickletools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjx_warp_ffi import mjx
from mjx_warp_ffi.mjx.data.pickles import VERSION
from support.helpers import assert_same, assert_same_leaves, model_path

FOLDER = pathlib.Path(__file__).parent / "pickles"
LACKING = {"opt.solver": mjx.SolverType.PGS}  # an option that MuJoCo Warp does not have


def _through_pickle(x):
  return pickle.loads(pickle.dumps(x))


WAYS = (_through_pickle, copy.copy, copy.deepcopy)


@pytest.fixture(scope="module")
def m() -> mjx.Model:
  mjm = mujoco.MjModel.from_xml_path(str(model_path("cartpole")))
  smoothing = mjx.ContactSmoothing(width=0.01)
  return mjx.put_model(mjm, autoreset=True, contact_smoothing=smoothing)


@pytest.fixture(scope="module")
def d(m) -> mjx.Data:
  return mjx.make_data(m, nconmax=2, njmax=6).replace(qpos=jnp.array([0.1, 0.3]))


@pytest.fixture(scope="module")
def old() -> dict:
  """What the package pickled before its classes were moved to `data/`, with MuJoCo 4.0.

  A Model and a Data, a batch of two worlds of both, members of enums, and `qpos` a step later.
  """
  return pickle.loads(gzip.decompress((FOLDER / "version_1.pickle.gz").read_bytes()))


def _batch(m, d):
  worlds = m.replace(body_mass=m.body_mass * jnp.array([[1.0], [1.5]]))
  return worlds, jax.vmap(lambda x: d.replace(qpos=d.qpos + x))(jnp.array([0.0, 0.05]))


def _steps(worlds, d):
  return jax.jit(jax.vmap(mjx.step, (mjx.model_axes(worlds), 0)))(worlds, d)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_and_a_data_come_back_and_step_to_the_same_bits(m, d, way):
  again = way((m, d)) if way is not copy.copy else (copy.copy(m), copy.copy(d))
  assert jax.tree.structure(again) == jax.tree.structure((m, d))
  assert_same_leaves(again, (m, d))
  assert_same_leaves(jax.jit(mjx.step)(*again), jax.jit(mjx.step)(m, d))


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_comes_back_and_steps_to_the_same_bits(m, d, way):
  worlds, batch = _batch(m, d)
  again = way(worlds), way(batch)
  assert repr(again) == repr((worlds, batch))
  assert_same_leaves(_steps(*again), _steps(worlds, batch))


def test_what_is_static_comes_back(m, d):
  model, data = _through_pickle((m, d))
  assert model.opt.statics == m.opt.statics and data.sizes == d.sizes
  assert (model.gradient, model.autoreset) == (m.gradient, True)
  assert model.contact_smoothing == m.contact_smoothing
  assert model.spec == m.spec and model.spec.mj_model is not m.spec.mj_model
  with pytest.raises(ValueError, match="read-only"):
    model.jnt_type[0] = 0


def test_a_tree_of_axes_comes_back(m, d):
  axes = mjx.model_axes(_batch(m, d)[0])
  assert repr(_through_pickle(axes)) == repr(axes)


def test_old_pickles_step_to_the_bits_of_a_new_model(old):
  m, d = old["model"], old["data"]
  settings = dict(autoreset=m.autoreset, contact_smoothing=m.contact_smoothing)
  new = mjx.put_model(m.spec.mj_model, **settings).tree_replace({"opt.iterations": 7})
  assert jax.tree.structure(m) == jax.tree.structure(new)
  assert_same_leaves(m, new)
  after = jax.jit(mjx.step)(m, d)
  assert_same_leaves(after, jax.jit(mjx.step)(new, d))
  # the processor that wrote the file may have rounded otherwise
  np.testing.assert_allclose(after.qpos, old["qpos"], rtol=1e-6)


def test_old_pickles_of_batches_step(old):
  worlds, batch = old["models"], old["datas"]
  assert repr(worlds).endswith(", batch (2,) of body_mass)")
  after = _steps(worlds, batch)
  for i in range(2):
    one = worlds.replace(body_mass=worlds.body_mass[i])
    alone = jax.jit(mjx.step)(one, jax.tree.map(lambda x, i=i: x[i], batch))
    assert_same(after.qpos[i], alone.qpos)
  np.testing.assert_allclose(after.qpos, old["qposes"], rtol=1e-6)


def test_old_pickles_of_enums_are_the_members_of_today(old):
  assert old["solver"] is mjx.SolverType.NEWTON
  assert old["joint"] is mjx.JointType.HINGE
  assert old["flags"] == mjx.DisableBit.CONTACT


def test_options_are_checked_after_loading_as_before(m, old):
  for loaded in (_through_pickle(m), copy.deepcopy(m), old["model"], _through_pickle(old["model"])):
    with pytest.raises(NotImplementedError, match="PGS"):
      loaded.tree_replace(LACKING)
    cg = loaded.tree_replace({"opt.solver": mjx.SolverType.CG})
    assert cg.opt.solver == mjx.SolverType.CG
    heavy = loaded.replace(body_mass=2 * loaded.body_mass).tree_replace({"opt.density": 1.0})
    with pytest.raises(NotImplementedError, match="PGS"):
      heavy.tree_replace(LACKING)


@pytest.mark.parametrize("of", ["model", "option", "spec", "data", "contact", "smoothing"])
def test_an_unknown_version_is_refused_with_both_versions(m, d, of):
  x = dict(
    model=m, option=m.opt, spec=m.spec, data=d, contact=d.contact, smoothing=m.contact_smoothing
  )[of]
  _, values = x.__getstate__()
  with pytest.raises(ValueError, match=rf"in version 99 .* up to {VERSION}: load it with .*put_mo"):
    object.__new__(type(x)).__setstate__((99, values))


def test_other_fields_are_refused_by_name(d):
  version, values = d.__getstate__()
  values["qposs"] = values.pop("qpos")
  with pytest.raises(ValueError, match="this Data, .* lacks qpos and has qposs, .* make it anew"):
    object.__new__(mjx.Data).__setstate__((version, values))


def test_every_public_class_is_of_the_public_module():
  classes = {n: x for n, x in vars(mjx).items() if inspect.isclass(x)}
  assert {"Model", "Data", "Option", "Contact", "GeomType", "Trajectory"} <= set(classes)
  assert {n: x.__module__ for n, x in classes.items()} == dict.fromkeys(classes, mjx.__name__)
  assert all(pickle.loads(pickle.dumps(x)) is x for x in classes.values())


def test_pickles_name_no_module_that_may_move(m, d):
  text = pickle.dumps((m, d, m.opt.statics, d.sizes, mjx.GeomType.BOX), protocol=4)
  words = {arg for _, arg, _ in pickletools.genops(text) if isinstance(arg, str)}
  ours = {word for word in words if word.startswith("mjx_warp_ffi")}
  assert ours == {f"mjx_warp_ffi.mjx{place}" for place in ("", ".spec", ".types")}
