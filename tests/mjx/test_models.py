"""The MJCF files in models/ load, cover what they are for, and stay stable."""

import functools
import importlib.util

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
from mujoco import mjtCone, mjtEq, mjtGeom, mjtIntegrator, mjtJoint, mjtSolver, mjtTrn, mjtWrap

from support.helpers import MODELS

NAMES = sorted(path.stem for path in MODELS.glob("*.xml"))


def script(name):
  """Imports a script of models/, which is no package."""
  spec = importlib.util.spec_from_file_location(name, MODELS / f"{name}.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


measure = script("measure")


@functools.cache
def load(name):
  return mujoco.MjModel.from_xml_path(str(MODELS / f"{name}.xml"))


@functools.cache
def readme_table():
  """The table of sizes in the README, as a dict from model to a dict of texts."""
  rows = {}
  for line in (MODELS / "README.md").read_text().splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) == len(measure.COLUMNS) and cells[0] in NAMES:
      rows[cells[0]] = dict(zip(measure.COLUMNS, cells, strict=True))
  return rows


def values_of(field):
  """Every value of an array field, over all models."""
  return {value for name in NAMES for value in np.ravel(getattr(load(name), field)).tolist()}


def options_of(field):
  return {getattr(load(name).opt, field) for name in NAMES}


def codes(enum, names):
  return {int(getattr(enum, name)) for name in names.split()}


def test_the_readme_lists_every_model():
  assert list(readme_table()) == NAMES
  text = (MODELS / "README.md").read_text()
  assert all(f"| `{name}` |" in text for name in NAMES)


def test_the_assets_are_what_the_script_makes():
  made = script("make_assets").make_assets()
  kept = {p.name: p.read_bytes() for p in (MODELS / "assets").iterdir() if p.suffix != ".xml"}
  assert kept == made


@pytest.mark.parametrize(
  ("enum", "names", "field"),
  [
    (mjtIntegrator, "mjINT_EULER mjINT_RK4 mjINT_IMPLICIT mjINT_IMPLICITFAST", "integrator"),
    (mjtIntegrator, "mjINT_DISCRETE", "integrator"),
    (mjtCone, "mjCONE_PYRAMIDAL mjCONE_ELLIPTIC", "cone"),
    (mjtSolver, "mjSOL_CG mjSOL_NEWTON", "solver"),
  ],
)
def test_every_option_occurs(enum, names, field):
  assert codes(enum, names) <= options_of(field)


@pytest.mark.parametrize(
  ("enum", "names", "field"),
  [
    (mjtJoint, "mjJNT_FREE mjJNT_BALL mjJNT_SLIDE mjJNT_HINGE", "jnt_type"),
    (mjtGeom, "mjGEOM_PLANE mjGEOM_HFIELD mjGEOM_SPHERE mjGEOM_CAPSULE", "geom_type"),
    (mjtGeom, "mjGEOM_ELLIPSOID mjGEOM_CYLINDER mjGEOM_BOX mjGEOM_MESH", "geom_type"),
    (mjtEq, "mjEQ_CONNECT mjEQ_WELD mjEQ_JOINT mjEQ_TENDON", "eq_type"),
    (mjtWrap, "mjWRAP_JOINT mjWRAP_PULLEY mjWRAP_SITE", "wrap_type"),
    (mjtWrap, "mjWRAP_SPHERE mjWRAP_CYLINDER", "wrap_type"),
    (mjtTrn, "mjTRN_JOINT mjTRN_JOINTINPARENT mjTRN_SLIDERCRANK", "actuator_trntype"),
    (mjtTrn, "mjTRN_TENDON mjTRN_SITE mjTRN_BODY", "actuator_trntype"),
    (mujoco.mjtDyn, "mjDYN_NONE mjDYN_INTEGRATOR mjDYN_FILTER", "actuator_dyntype"),
    (mujoco.mjtDyn, "mjDYN_FILTEREXACT mjDYN_MUSCLE", "actuator_dyntype"),
    (
      mujoco.mjtGain,
      "mjGAIN_FIXED mjGAIN_AFFINE mjGAIN_MUSCLE mjGAIN_DCMOTOR",
      "actuator_gaintype",
    ),
    (mujoco.mjtBias, "mjBIAS_NONE mjBIAS_AFFINE mjBIAS_MUSCLE mjBIAS_DCMOTOR", "actuator_biastype"),
  ],
)
def test_every_type_occurs(enum, names, field):
  assert codes(enum, names) <= values_of(field)


@pytest.mark.parametrize(
  "field",
  """
  dof_damping dof_armature dof_frictionloss jnt_stiffness jnt_limited qpos_spring body_gravcomp
  tendon_stiffness tendon_damping tendon_frictionloss tendon_limited tendon_armature
  actuator_ctrllimited actuator_forcelimited actuator_actlimited actuator_actearly actuator_delay
  geom_margin geom_gap eq_active0 key_qpos key_qvel key_act key_ctrl cam_mode light_mode
  """.split(),
)
def test_every_feature_occurs(field):
  assert any(np.any(getattr(load(name), field)) for name in NAMES)


def test_every_condim_and_both_formats_of_solref_occur():
  assert values_of("geom_condim") >= {1, 3, 4, 6}
  solref = np.concatenate([load(name).geom_solref for name in NAMES])
  assert (solref > 0).all(1).any() and (solref < 0).all(1).any()


def test_mocap_contact_pairs_fluid_and_most_sensors_occur():
  assert any(load(name).nmocap for name in NAMES)
  assert any(load(name).npair for name in NAMES)
  assert any(load(name).opt.viscosity > 0 and load(name).opt.wind.any() for name in NAMES)
  assert len(values_of("sensor_type")) > 40


def test_the_humanoid_is_as_large_as_the_usual_one():
  m = load("humanoid")
  assert m.nbody - 1 == 17 and m.nv == 27 and m.nu == 21
  types = {mjtGeom(t).name for t in m.geom_type}
  assert types == {"mjGEOM_PLANE", "mjGEOM_SPHERE", "mjGEOM_CAPSULE"}


@pytest.mark.parametrize("name", NAMES)
def test_the_sizes_are_those_of_the_readme(name):
  m, row = load(name), readme_table()[name]
  for field in ("nbody", "nq", "nv", "nu", "na"):
    assert getattr(m, field) == int(row[field])
  assert measure.option_names(m) == (row["integrator"], row["cone"], row["solver"])
  assert measure.collision_pairs(m) == int(row["pairs"]) <= int(row["nconmax"])


@pytest.mark.parametrize("name", NAMES)
def test_random_controls_keep_a_model_stable_and_within_its_capacities(name):
  m, row = load(name), readme_table()[name]
  for key in range(-1, m.nkey):
    d, contacts, rows, speed = measure.simulate(m, key, seed=9)
    assert d.time == pytest.approx(1000 * m.opt.timestep)  # no reset of a bad state
    assert np.isfinite(d.qpos).all() and not any(d.warning.number)
    assert speed < 150  # rad/s: the gyroscope's rotor is driven to 100
    assert contacts <= int(row["nconmax"]) and rows <= int(row["njmax"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_warp_keeps_four_worlds_finite_within_the_capacities_of_the_readme(name, rng):
  m, row = load(name), readme_table()[name]
  model = mjw.put_model(m)
  nconmax, njmax = int(row["nconmax"]), int(row["njmax"])
  data = mjw.make_data(m, nworld=4, nconmax=nconmax, njmax=njmax)
  low, high = measure.control_range(m)
  for _ in range(100):
    if m.nu:
      data.ctrl.assign(rng.uniform(low, high, (4, m.nu)).astype(np.float32))
    mjw.step(model, data)
  assert np.isfinite(data.qpos.numpy()).all()
  assert np.abs(data.qvel.numpy()).max() < 150
  assert not data.overflow.numpy().any()
