"""Gradients of a step of the integrator `discrete` against differences of C MuJoCo."""

import mujoco
import pytest

from support import adjoint_models as models
from support.adjoint_case import SMOOTH, STIFF, Case, load_discrete, random_states, settled_states

PARAMETERS = {
  "smooth": (
    models.SMOOTH,
    ("body_mass", "body_inertia", "jnt_stiffness", "jnt_stiffnesspoly", "qpos_spring")
    + ("dof_armature", "dof_damping", "dof_dampingpoly", "opt.gravity", "opt.timestep"),
  ),
  "actuated": (
    models.ACTUATED,
    ("actuator_gear", "actuator_gainprm", "actuator_biasprm", "actuator_dynprm", "opt.timestep")
    + ("tendon_stiffness", "tendon_damping", "tendon_lengthspring", "tendon_armature", "site_pos"),
  ),
}

ROWS = ("jnt_solref", "jnt_solimp", "jnt_range", "eq_data", "eq_solref", "eq_solimp", "jnt_pos")
ROWS += ("tendon_range", "dof_invweight0", "body_mass", "jnt_axis", "body_pos", "opt.timestep")
CONTACTS = ("geom_friction", "geom_solref", "geom_solimp", "geom_size", "geom_pos", "body_inertia")
CONTACTS += ("body_mass", "opt.timestep", "opt.impratio", "dof_damping")


@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_discrete_step_has_the_gradient_of_differences(kind):
  text, wrt = PARAMETERS[kind]
  m = load_discrete(text)
  case = Case(m, random_states(m, seed=1), wrt=wrt)
  case.adjoint.launch()
  case.check(SMOOTH)


def test_forward_of_a_discrete_model_has_the_gradient_of_differences():
  m = load_discrete(models.ACTUATED)
  case = Case(m, random_states(m, seed=1), integrate=False)
  case.adjoint.launch()
  case.check(SMOOTH)


@pytest.mark.parametrize("cone", [mujoco.mjtCone.mjCONE_PYRAMIDAL, mujoco.mjtCone.mjCONE_ELLIPTIC])
def test_sensors_of_forces_have_the_gradient_with_the_discrete_step(cone):
  names = "abcde"
  sensors = "".join(f'<touch site="{n}"/><force site="{n}"/><torque site="{n}"/>' for n in names)
  sensors += '<contact body1="a" num="3" data="force dist" reduce="maxforce"/>'
  m = load_discrete(models.with_sensors(models.touching_bodies(), sensors))
  m.opt.cone = cone
  outputs = ("sensordata", "cacc", "cfrc_int", "cfrc_ext")
  case = Case(m, settled_states(m), outputs=outputs, wrt=("geom_friction", "geom_solref"))
  case.adjoint.launch()
  case.check(STIFF)


def test_sensors_of_limits_and_welds_have_the_gradient_with_the_discrete_step():
  sensors = [f'<jointlimit{x} joint="{j}"/>' for x in ("pos", "vel", "frc") for j in ("ball", "h1")]
  sensors += ['<tendonlimitfrc tendon="ft"/><force site="sa"/><torque site="sc"/>']
  m = load_discrete(models.with_sensors(models.CONSTRAINED, "".join(sensors)))
  states = random_states(m, 3, spread=0.3, seed=1)
  case = Case(m, states, outputs=("sensordata",), wrt=("jnt_solref", "jnt_range", "eq_data"))
  case.adjoint.launch()
  case.check(STIFF)


def test_sensors_of_forces_feel_spatial_tendons_with_the_discrete_step():
  sensors = "".join(f'<force site="{s}"/><torque site="{s}"/>' for s in ("sa", "sb", "sc"))
  wrt = ("tendon_stiffness", "tendon_damping", "actuator_gear", "site_pos")
  for outputs in (("sensordata",), ("cfrc_int", "cfrc_ext", "qfrc_passive")):
    m = load_discrete(models.with_sensors(models.ACTUATED, sensors))
    case = Case(m, random_states(m), outputs=outputs, wrt=wrt)
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
def test_the_force_of_constraints_has_the_gradient_with_the_discrete_step(text, states):
  m = load_discrete(text)
  outputs = ("qfrc_constraint", "qfrc_smooth", "cfrc_int")
  case = Case(m, states(m), outputs=outputs, wrt=("body_inertia", "dof_damping"))
  case.adjoint.launch()
  case.check(STIFF)


def test_a_discrete_step_without_room_for_rows_is_refused():
  m = load_discrete(models.SMOOTH)
  with pytest.raises(NotImplementedError, match="njmax=0"):
    Case(m, random_states(m), njmax=0)


@pytest.mark.parametrize(
  "jacobian", [mujoco.mjtJacobian.mjJAC_DENSE, mujoco.mjtJacobian.mjJAC_SPARSE]
)
def test_discrete_limits_friction_and_equalities_have_the_gradient_of_differences(jacobian):
  m = load_discrete(models.CONSTRAINED)
  m.opt.jacobian = jacobian
  case = Case(m, random_states(m, 3, spread=0.3, seed=1), wrt=ROWS)
  case.adjoint.launch()
  case.check(STIFF)


@pytest.mark.parametrize("condim", [1, 3, 6])
@pytest.mark.parametrize("cone", [mujoco.mjtCone.mjCONE_PYRAMIDAL, mujoco.mjtCone.mjCONE_ELLIPTIC])
def test_discrete_contacts_have_the_gradient_of_differences(cone, condim):
  m = load_discrete(models.CONTACTS.format(condim=condim))
  m.opt.cone, m.opt.impratio = cone, 2.0
  case = Case(m, settled_states(m), wrt=CONTACTS)
  case.adjoint.launch()
  assert case.d.nacon.numpy()[0] > 10
  case.check(STIFF, names=("qpos", "qvel", "qfrc_applied"))
