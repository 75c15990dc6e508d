"""Gradients of motors, and of limits of forces, against differences of C MuJoCo."""

import mujoco
import numpy as np
import pytest

from support import adjoint_models as models
from support.adjoint_case import SMOOTH, STIFF, Case, load, random_states, settled_states
from support.adjoint_oracle import OUTPUTS

INTEGRATOR = mujoco.mjtIntegrator
INTEGRATORS = ("EULER", "IMPLICITFAST", "DISCRETE")
PARAMETERS = tuple(f"actuator_{f}" for f in "gear gainprm biasprm dynprm".split())
REFLECTED = tuple(f"actuator_{f}" for f in "damping dampingpoly armature forcerange".split())
LENGTHS = ("body_gravcomp", "tendon_actfrcrange", "jnt_actfrcrange", "body_mass", "opt.timestep")


def load_at(text, integrator):
  m = load(text, integrator=getattr(INTEGRATOR, f"mjINT_{integrator}"))
  m.opt.tolerance = 1e-14  # C's conjugate gradients divide by zero with none at all
  return m


def motor_states(m, count=3):
  """Warm motors with some current."""
  states = random_states(m, count, seed=2)
  rng = np.random.default_rng(0)
  for state in states:
    state["act"][:] = (0.05 * rng.normal(size=m.na)).astype(np.float32)
    state["ctrl"][:] = (2 * state["ctrl"]).astype(np.float32)
  return states


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_motors_have_the_gradient_of_differences(integrator):
  m = load_at(models.MOTORS, integrator)
  case = Case(m, motor_states(m), outputs=("act_dot",), wrt=(*PARAMETERS, "opt.timestep"))
  case.adjoint.launch()
  # a zero among them means that a motor lacks a state
  case.check(SMOOTH, nonzero=("actuator_gainprm", "actuator_biasprm", "actuator_dynprm"))


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_limited_and_reflected_forces_have_the_gradient_of_differences(integrator):
  m = load_at(models.LIMITED, integrator)
  case = Case(m, random_states(m, 4, seed=1, spread=1.0), wrt=PARAMETERS[:3] + REFLECTED + LENGTHS)
  case.adjoint.launch()
  force = case.forward.qfrc_actuator.numpy()
  at_limit = np.isclose(np.abs(force[:, 0]), 1.2)
  assert at_limit.any() and not at_limit.all()
  case.check(SMOOTH, nonzero=("actuator_biasprm",))  # zero is a kink of the discrete step


def test_activations_of_motors_are_refused_with_runge_kutta():
  m = load_at(models.MOTORS, "RK4")
  with pytest.raises(NotImplementedError, match="RK4 with activations of DC motors"):
    Case(m, motor_states(m))


def test_servos_of_angles_have_the_gradient_of_differences():
  m = load(models.AROUND)
  states = random_states(m, 3, seed=1, spread=1.0)
  for state, sign in zip(states, (1, -1, 1), strict=True):
    state["act"][:] = np.float32(4.0) * sign
    state["ctrl"][:] = np.float32(5.0) * sign
  # not of gains: what is no servo any more does not go around
  case = Case(m, states, wrt=("actuator_gear", "actuator_dynprm"))
  case.adjoint.launch()
  case.check(SMOOTH, nonzero=("actuator_dynprm",))


@pytest.mark.parametrize("name", ["qfrc_passive", "qfrc_actuator", "actuator_force"])
def test_forces_with_compensation_by_actuators_have_the_gradient_of_differences(name):
  m = load_at(models.LIMITED, "EULER")
  case = Case(m, random_states(m, 4, seed=1, spread=1.0), outputs=(name,), wrt=("body_gravcomp",))
  case.leave_out(*OUTPUTS)  # so that the report's part is not a small one
  case.adjoint.launch()
  case.check(SMOOTH)


def test_sensors_of_joints_whose_actuators_compensate_for_gravity_have_the_gradient():
  sensors = '<sensor><jointactuatorfrc joint="h0"/><jointactuatorfrc joint="h1"/></sensor>'
  m = load_at(models.WRAPPED.replace("</mujoco>", f"{sensors}</mujoco>"), "EULER")
  states = random_states(m, 2, spread=0.1)
  case = Case(m, states, outputs=("sensordata",), wrt=("body_gravcomp", "body_mass"))
  case.adjoint.launch()
  case.check(SMOOTH)


@pytest.mark.parametrize("cone", [mujoco.mjtCone.mjCONE_PYRAMIDAL, mujoco.mjtCone.mjCONE_ELLIPTIC])
@pytest.mark.parametrize("integrator", ["EULER", "DISCRETE"])
def test_adhesion_has_the_gradient_of_differences(integrator, cone):
  m = load_at(models.ADHESION.format(condim=3), integrator)
  m.opt.cone = cone
  states = settled_states(m)
  for state in states:
    state["ctrl"][:] = np.abs(state["ctrl"]).astype(np.float32)
  # in float32 the forward solve of the cones stops short, by what would be 3e-3 in the gradient
  case = Case(m, states, wrt=("actuator_gainprm", "geom_size", "geom_pos"), polish=True)
  case.adjoint.launch()
  gaps = case.d.contact.dist.numpy() >= case.d.contact.includemargin.numpy()
  assert gaps[: case.d.nacon.numpy()[0]].any()  # contacts without a row stick too
  case.check(STIFF, names=("qpos", "qvel", "ctrl", "qfrc_applied"))
