"""Gradients of steps in a fluid against differences of C MuJoCo."""

import mujoco
import numpy as np
import pytest

from support import adjoint_models as models
from support.adjoint_case import SMOOTH, STIFF, Case, load, load_discrete, random_states

FLUID = ("opt.density", "opt.viscosity", "opt.wind", "opt.timestep")
SHAPES = ("body_mass", "body_inertia", "body_ipos", "geom_size", "geom_pos", "geom_quat")


@pytest.mark.parametrize("integrator", ["EULER", "IMPLICITFAST", "RK4"])
def test_forces_of_a_fluid_have_the_gradient_of_differences(integrator):
  m = load(models.FLUID, integrator=getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}"))
  wrt = FLUID[: 3 if integrator == "RK4" else 4]
  case = Case(m, random_states(m), wrt=wrt + SHAPES)
  case.adjoint.launch()
  case.check(SMOOTH)


def test_boxes_of_inertia_have_the_gradient_of_differences_with_implicit():
  text = models.FLUID.replace('fluidshape="ellipsoid"', "").replace(
    'fluidcoef=".6 .3 1.4 .9 1.1"', ""
  )
  m = load(text, integrator=mujoco.mjtIntegrator.mjINT_IMPLICIT)
  case = Case(m, random_states(m), wrt=FLUID + SHAPES[:3])
  case.adjoint.launch()
  case.check(SMOOTH)


def test_forces_of_a_fluid_have_the_gradient_of_differences_with_discrete():
  m = load_discrete(models.FLUID)
  m.dof_damping[m.jnt_dofadr[m.njnt - 1] :] = 0  # a free body that turns as MuJoCo solves it alone
  case = Case(m, random_states(m), wrt=FLUID + SHAPES)
  case.adjoint.launch()
  case.check(SMOOTH)


def test_constraints_in_a_fluid_have_the_gradient_of_differences_with_discrete():
  """Drag is in the inertia that rescales them."""
  fluid = 'density="300" viscosity="2" wind=".5 -.3 .2"'
  text = models.CONSTRAINED.replace("<option", f"<option {fluid}", 1)
  text = text.replace('type="box"', 'type="box" fluidshape="ellipsoid"', 2)
  m = load_discrete(text)
  assert m.geom_fluid[:, 0].any() and not m.geom_fluid[:, 0].all()
  case = Case(m, random_states(m, 3, spread=0.3, seed=1), wrt=FLUID + ("body_mass", "jnt_solref"))
  case.adjoint.launch()
  case.check(STIFF)


def test_fluid_shapes_are_refused_with_implicit():
  m = load(models.FLUID, integrator=mujoco.mjtIntegrator.mjINT_IMPLICIT)
  with pytest.raises(NotImplementedError, match="IMPLICIT with fluid shapes"):
    Case(m, random_states(m))


def test_a_body_at_rest_in_a_fluid_has_a_gradient():
  m = load(models.FLUID)
  m.opt.wind[:] = 0
  states = random_states(m)
  for state in states:
    state["qvel"][:] = 0
  case = Case(m, states)
  case.adjoint.launch()
  case.check(SMOOTH)
  assert all(np.all(np.isfinite(x.numpy())) for x in case.adjoint.gradients.values())
