"""Gradients from other results of a step of Runge and Kutta's method."""

import mujoco
import pytest

from support import adjoint_models as models
from support.adjoint_case import SMOOTH, Case, load, random_states
from support.adjoint_oracle import OUTPUTS


def case_of(text, outputs):
  m = load(text, integrator=mujoco.mjtIntegrator.mjINT_RK4)
  case = Case(m, random_states(m, seed=1), outputs=outputs, wrt=("body_pos", "dof_damping"))
  case.leave_out(*OUTPUTS)  # so that the report's part is not a small one
  return case


# C MuJoCo's stages advance an exact filter linearly, MJWarp's exactly
ACTUATED = models.ACTUATED.replace("filterexact", "filter")


@pytest.mark.parametrize(
  "name", ["xpos", "site_xmat", "ten_length", "actuator_force", "qfrc_bias", "qfrc_actuator"]
)
def test_a_result_is_that_of_the_last_stage(name):
  case = case_of(ACTUATED, (name,))
  case.adjoint.launch()
  case.check(SMOOTH)


def test_sensors_are_those_of_the_first_stage():
  case = case_of(ACTUATED.replace("</mujoco>", models.SENSORS), ("sensordata",))
  case.adjoint.launch()
  case.check(SMOOTH)


def test_a_result_without_a_rule_is_named():
  with pytest.raises(NotImplementedError, match="cacc of a step of RK4"):
    case_of(ACTUATED, ("cacc",))
