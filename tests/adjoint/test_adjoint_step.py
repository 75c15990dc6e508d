"""Gradients of one step against float64 central differences of C MuJoCo."""

import contextlib
import re

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.mjx.warp.adjoint.request import Settings
from mjx_warp_ffi.mjx.warp.adjoint.step import REPORTS, StepAdjoint
from support import adjoint_models as models
from support.adjoint_case import (
  ELLIPTIC,
  SMOOTH,
  STIFF,
  Case,
  assert_close,
  load,
  random_states,
  settled_states,
)
from support.adjoint_oracle import OUTPUTS

INERTIAL = tuple(f"body_{f}" for f in "mass inertia ipos iquat pos quat gravcomp".split())
JOINTS = ("jnt_pos", "jnt_axis", "jnt_stiffness", "jnt_stiffnesspoly", "qpos0", "qpos_spring")
DOFS = ("dof_armature", "dof_damping", "dof_dampingpoly", "opt.gravity", "opt.timestep")
ACTUATORS = tuple(f"actuator_{f}" for f in "gear gainprm biasprm dynprm".split())
TENDONS = ("tendon_stiffness", "tendon_damping", "tendon_lengthspring", "tendon_armature")
ROWS = ("jnt_solref", "jnt_solimp", "jnt_range", "jnt_margin", "eq_data", "eq_solref", "eq_solimp")
CONTACTS = tuple(f"geom_{f}" for f in "friction solref solimp size pos quat".split())
CONTACTS += ("body_mass", "opt.timestep", "opt.impratio")
ROWS += ("tendon_range", "tendon_solref_lim", "body_invweight0", "dof_invweight0")


INTEGRATORS = dict(
  euler=dict(integrator=mujoco.mjtIntegrator.mjINT_EULER),
  implicitfast=dict(integrator=mujoco.mjtIntegrator.mjINT_IMPLICITFAST),
  implicit=dict(integrator=mujoco.mjtIntegrator.mjINT_IMPLICIT),
)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_trees_springs_and_dampers_have_the_gradient_of_differences(integrator):
  m = load(models.SMOOTH, **INTEGRATORS[integrator])
  case = Case(m, random_states(m), wrt=INERTIAL + JOINTS + DOFS)
  case.adjoint.launch()
  case.check(SMOOTH)


@pytest.mark.parametrize("text", [models.SMOOTH, models.ACTUATED], ids=["smooth", "actuated"])
def test_runge_kutta_has_the_gradient_of_differences(text):
  # C MuJoCo's stages advance an exact filter linearly, MJWarp's exactly
  text = text.replace("filterexact", "filter")
  m = load(text, integrator=mujoco.mjtIntegrator.mjINT_RK4)
  case = Case(m, random_states(m, seed=1), wrt=("body_mass", "dof_damping", "qpos_spring"))
  case.adjoint.launch()
  case.check(SMOOTH)


def test_explicit_damping_has_the_gradient_of_differences():
  m = load(models.SMOOTH)
  m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP)
  case = Case(m, random_states(m))
  case.adjoint.launch()
  case.check(SMOOTH)


def test_forward_alone_has_the_gradient_of_differences():
  m = load(models.SMOOTH)
  case = Case(m, random_states(m), integrate=False)
  case.adjoint.launch()
  case.check(SMOOTH)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_actuators_and_tendons_have_the_gradient_of_differences(integrator):
  m = load(models.ACTUATED, **INTEGRATORS[integrator])
  case = Case(m, random_states(m, seed=1), wrt=ACTUATORS + TENDONS + ("site_pos", "opt.timestep"))
  case.adjoint.launch()
  case.check(SMOOTH)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_wrapped_tendons_have_the_gradient_of_differences(integrator):
  m = load(models.WRAPPED, **INTEGRATORS[integrator])
  case = Case(m, random_states(m, 3, spread=0.2), wrt=("site_pos", "geom_size", "geom_pos"))
  case.adjoint.launch()
  bent = case.d.ten_wrapnum.numpy()
  assert np.all(bent.max(axis=0) >= [4, 6, 4])  # every geom has a tendon around it
  case.check(SMOOTH)


@pytest.mark.parametrize(
  "jacobian", [mujoco.mjtJacobian.mjJAC_DENSE, mujoco.mjtJacobian.mjJAC_SPARSE]
)
def test_limits_friction_and_equalities_have_the_gradient_of_differences(jacobian):
  m = load(models.CONSTRAINED, jacobian=jacobian)
  case = Case(m, random_states(m, 3, spread=0.3, seed=1), wrt=ROWS)
  case.adjoint.launch()
  case.check(STIFF)


@pytest.mark.parametrize("condim", [1, 3, 6])
@pytest.mark.parametrize("cone", [mujoco.mjtCone.mjCONE_PYRAMIDAL, mujoco.mjtCone.mjCONE_ELLIPTIC])
def test_contacts_have_the_gradient_of_differences(cone, condim):
  m = load(models.CONTACTS.format(condim=condim), cone=cone, impratio=2.0)
  case = Case(m, settled_states(m), wrt=CONTACTS)
  case.adjoint.launch()
  assert case.d.nacon.numpy()[0] > 10
  tolerance = ELLIPTIC if cone == mujoco.mjtCone.mjCONE_ELLIPTIC else STIFF
  case.check(tolerance, names=("qpos", "qvel", "qfrc_applied"))


@pytest.mark.parametrize("solref", [".02 1", "-800 -30"])
def test_geoms_of_the_same_friction_share_its_gradient(solref):
  """The larger of two equal values has a kink; central differences see half on either side."""
  text = models.CONTACTS.format(condim=4)
  head, body = text.split("<worldbody>")
  body = re.sub(r' (friction|solref|solimp)="[^"]*"', "", body)
  m = load(re.sub(r'solref="[^"]*"', f'solref="{solref}"', head) + "<worldbody>" + body)
  assert np.all(m.geom_friction == m.geom_friction[0]) and np.all(m.geom_solref == m.geom_solref[0])
  case = Case(m, settled_states(m), wrt=("geom_friction", "geom_solref", "geom_solmix"))
  case.adjoint.launch()
  assert np.abs(case.adjoint.gradients["geom_friction"].numpy()).max() > 1e-3
  case.check(STIFF, names=("qvel",))


_ELSEWHERE = {"sensordata", "qfrc_constraint", "cfrc_int", "cfrc_ext"}  # in test_adjoint_outputs.py
_ELSEWHERE |= {"contact.dist", "contact.pos", "contact.frame"}  # in test_contact_outputs.py


@pytest.mark.parametrize("name", sorted({*REPORTS} - _ELSEWHERE))
def test_a_report_has_the_gradient_of_differences(name):
  m = load(models.ACTUATED)
  case = Case(m, random_states(m, seed=1), outputs=(name,), wrt=("body_pos", "body_ipos"))
  case.leave_out(*OUTPUTS)  # so that the report's part is not a small one
  case.adjoint.launch()
  case.check(SMOOTH)


@pytest.mark.parametrize(
  ("text", "states"),
  [
    (models.CONSTRAINED, lambda m: random_states(m, spread=0.3, seed=1)),
    (models.CONTACTS.format(condim=3), settled_states),
  ],
  ids=["rows", "contacts"],
)
def test_the_force_of_constraints_has_the_gradient_of_differences(text, states):
  m = load(text)
  outputs = ("qfrc_constraint", "qfrc_smooth")
  case = Case(m, states(m), outputs=outputs, wrt=("body_mass",))
  case.leave_out(*OUTPUTS)
  case.adjoint.launch()
  case.check(STIFF, names=("qpos", "qvel", "qfrc_applied"))


def test_sensors_have_the_gradient_of_differences():
  m = load(models.ACTUATED.replace("</mujoco>", models.SENSORS))
  wrt = ("site_pos", "body_ipos", "opt.magnetic")
  case = Case(m, random_states(m, seed=1), outputs=("sensordata",), wrt=wrt)
  case.adjoint.launch()
  case.check(SMOOTH)


def test_a_captured_launch_replays_with_other_inputs():
  m = load(models.CONTACTS.format(condim=3))
  case = Case(m, settled_states(m))
  case.adjoint.launch()
  with wp.ScopedCapture(case.d.qpos.device) as capture:
    case.adjoint.launch()
  for seed in (2, 3):
    case.set_inputs(settled_states(m, seed=seed))
    for x in case.adjoint.gradients.values():
      x.fill_(np.nan)
    wp.capture_launch(capture.graph)
    case.check(STIFF, names=("qpos", "qvel"))


_MODELS = {
  "contacts": (models.CONTACTS.format(condim=3), settled_states, CONTACTS),
  "rows": (models.CONSTRAINED, lambda m: random_states(m, spread=0.3, seed=1), ROWS),
  "actuated": (models.ACTUATED, random_states, (*INERTIAL, *JOINTS, *DOFS, *ACTUATORS)),
}


@pytest.mark.parametrize("integrator", ["euler", "implicit"])
@pytest.mark.parametrize("name", _MODELS)
def test_both_layouts_of_the_intermediate_arrays_agree(name, integrator):
  text, states, wrt = _MODELS[name]
  m = load(text, **INTEGRATORS[integrator])
  case = Case(m, states(m), wrt=wrt)
  case.adjoint.launch()
  other = _beside(case, wrt=wrt, settings=Settings(world_fastest=True))
  other.launch()
  # the sums of the two layouts round otherwise, which stiff rows amplify
  _assert_agree(case.adjoint, other, STIFF if name == "rows" else 2e-5)


@pytest.mark.parametrize("name", ["contacts", "rows"])
def test_what_runs_beside_the_rest_is_apart_from_it(name):
  """The order on the CPU is another one then; a GPU runs both at once."""
  text, states, wrt = _MODELS[name]
  case = Case(load(text), states(load(text)), wrt=wrt)
  case.adjoint.launch()
  other = _beside(case, wrt=wrt)
  order = []

  class Side:
    @contextlib.contextmanager
    def fork(self):
      order.append("fork")
      yield
      order.append("forked")

    def join(self):
      order.append("join")

  other.stage.rec.tape._side = Side()
  other.launch()
  assert order == ["fork", "forked", "join"]  # backwards; forwards there is nothing else
  _assert_agree(case.adjoint, other)


def test_the_poses_of_geoms_have_the_same_adjoint_with_a_gradient_of_their_offsets():
  text, states, _ = _MODELS["contacts"]
  case = Case(load(text), states(load(text)), wrt=("geom_pos", "geom_quat"))
  case.adjoint.launch()
  other = _beside(case)
  other.launch()
  _assert_agree(case.adjoint, other)


@pytest.mark.parametrize("wrt", [(), ("geom_pos",)])
def test_cotangents_may_be_as_small_as_numbers_are(wrt):
  text, states, _ = _MODELS["contacts"]
  case = Case(load(text), states(load(text)), wrt=wrt)
  case.adjoint.launch()
  expected = {k: case.adjoint.gradients[k].numpy().copy() for k in ("qpos", "qvel")}
  scale = np.float32(1e-28)
  for x in case.adjoint.cotangents.values():
    x.assign(x.numpy() * scale)
  case.d.qacc.assign(case.forward.qacc)
  case.adjoint.launch()
  for k, x in expected.items():
    assert_close(case.adjoint.gradients[k].numpy() / scale, x, 1e-4, k)


def _beside(case, **options):
  """Another adjoint on the workspace of a case, with its cotangents."""
  other = StepAdjoint(case.m, case.model, d=case.d, **options)
  for name, x in case.adjoint.cotangents.items():
    other.cotangents[name].assign(x)
  case.d.qacc.assign(case.forward.qacc)
  return other


def _assert_agree(one, other, tolerance=1e-5):
  for name in other.gradients:
    if one.gradients[name].size:
      a, b = (x.gradients[name].numpy() for x in (one, other))
      assert np.all(np.isfinite(a))
      assert_close(a, b, tolerance, name)  # the order of sums differs


def test_the_gradient_is_that_of_the_solution_where_the_forward_solve_stopped_early():
  m = load(models.CONTACTS.format(condim=3))
  case = Case(m, settled_states(m), polish=True)
  qacc = case.d.qacc.numpy()
  noise = np.random.default_rng(0).normal(size=qacc.shape)
  # unpolished, a thousandth here is several per cent in the gradient
  case.d.qacc.assign((qacc * (1 + 1e-3 * noise)).astype(np.float32))
  case.adjoint.launch()
  # the second-order rest of the Newton step
  case.check(5e-3, names=("qpos", "qvel"))


def test_a_body_at_rest_has_a_gradient_of_its_rotation():
  m = load(models.SMOOTH)
  states = random_states(m)
  for state in states:
    state["qvel"][:] = 0
    state["qpos"][:] = m.qpos0  # springs at rest, quaternions aligned
  case = Case(m, states)
  case.adjoint.launch()
  case.check(SMOOTH, names=("qvel",))


def test_a_feature_without_a_rule_is_named():
  m = load(models.SMOOTH)
  m.opt.noslip_iterations = 1
  with pytest.raises(NotImplementedError, match="noslip_iterations"):
    StepAdjoint(m, mjw.put_model(m), d=mjw.make_data(m))


@pytest.mark.parametrize(
  ("text", "name", "place"),
  [
    (models.WRAPPED, "tendon_armature", 1),
    (models.ACTUATED.replace('jointinparent="fr"', 'jointinparent="fr" biastype="affine"'), "", 92),
  ],
  ids=["tendon_armature", "actuator_biasprm"],
)
def test_a_parameter_raised_where_it_has_no_rule_makes_the_world_nan(text, name, place):
  """The rule is chosen by the values that the model was put with."""
  name = name or "actuator_biasprm"
  m = load(text, integrator=mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
  case = Case(m, random_states(m, seed=1))
  values = getattr(case.model, name).numpy()
  raised = np.concatenate([values, values]).reshape(2, -1)
  assert raised[1, place] == 0
  raised[1, place] = 0.1
  rows = wp.array(raised.reshape(2, *values.shape[1:]), dtype=getattr(case.model, name).dtype)
  setattr(case.model, name, rows)
  adjoint = StepAdjoint(m, case.model, d=case.d)
  for output, x in adjoint.cotangents.items():
    x.assign(case.adjoint.cotangents[output])
  adjoint.launch()
  for gradient in ("qpos", "ctrl"):
    got = adjoint.gradients[gradient].numpy()
    assert np.all(np.isfinite(got[0])) and np.all(np.isnan(got[1]))
