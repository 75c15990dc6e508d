"""The adjoint of a step beside its oracle, for the tests of the adjoint."""

import mujoco
import mujoco_warp as mjw
import numpy as np

from mjx_warp_ffi.mjx.warp.adjoint.request import Settings
from mjx_warp_ffi.mjx.warp.adjoint.step import Scope, StepAdjoint
from support import adjoint_oracle as oracle

# float32 against float64; the largest error of a gradient over its largest entry. The smooth parts
# come to 2e-5. Rows are stiff: the error of their solves is that of float32 times the condition of
# H, here a few thousand.
SMOOTH = 1e-4
STIFF = 5e-4
# With elliptic cones MJWarp's solver stops where a force of a contact is 3e-4 off C MuJoCo's.
ELLIPTIC = 1e-3


def load(text: str, **options) -> mujoco.MjModel:
  """A model whose solver converges, without C MuJoCo's shortcuts for coinciding frames."""
  m = oracle.tighten(mujoco.MjModel.from_xml_string(text))
  for name in ("body_sameframe", "geom_sameframe", "site_sameframe"):
    getattr(m, name)[:] = 0  # else C ignores changes of the offsets
  for name in ("body_simple", "dof_simplenum"):
    getattr(m, name)[:] = 0  # else C takes their part of M from constants
  for name, value in options.items():
    setattr(m.opt, name, value)
  return m


def load_discrete(text):
  """A model away from kinks: negative stiffness and damping have no implicit part."""
  m = load(text, integrator=mujoco.mjtIntegrator.mjINT_DISCRETE)
  m.opt.tolerance = 1e-14  # C's conjugate gradients divide by zero with none at all
  for name in ("jnt_stiffness", "dof_damping", "tendon_stiffness", "tendon_damping"):
    for field, value in ((name, 0.3), (f"{name}poly", 0.02)):
      x = getattr(m, field)
      x[x == 0] = value
  affine = m.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE
  slopes = m.actuator_biasprm[:, 1:3]
  slopes[affine[:, None] & (slopes == 0)] = -0.2
  return m


class Case:
  """The adjoint of a model in a few random states, and its oracle in each."""

  def __init__(self, m, states, *, integrate=True, wrt=(), outputs=(), njmax=120, **settings):
    rng = np.random.default_rng(1)
    self.m, self.states, self.wrt, self.integrate = m, states, wrt, integrate
    n = len(states)
    self.model = mjw.put_model(m)
    self.d, self.forward = (mjw.make_data(m, nworld=n, njmax=njmax, nconmax=30) for _ in range(2))
    scope = Scope.STEP if integrate else Scope.FORWARD
    options = dict(wrt=wrt, outputs=outputs, scope=scope, settings=Settings(**settings))
    self.adjoint = StepAdjoint(m, self.model, d=self.d, **options)
    self.cotangents = [
      {
        k: rng.normal(size=getattr(self.d, k).numpy().shape[1:])
        for k in (*oracle.OUTPUTS, *outputs, *(["history"] if m.nhistory else []))
      }
      for _ in states
    ]
    self.set_inputs(states)
    for name, x in self.adjoint.cotangents.items():
      if name in self.cotangents[0] and x.size:
        x.assign(np.stack([c[name] for c in self.cotangents]).astype(np.float32))

  def set_inputs(self, states):
    """Writes the states and the acceleration that MJWarp solves for in them."""
    self.states = states
    for name in states[0]:
      for data in (self.d, self.forward):
        x = getattr(data, name)
        if x.size:
          values = np.stack([s[name] for s in states]).astype(np.float32)
          x.assign(values.reshape(x.numpy().shape))
    mjw.forward(self.model, self.forward)
    self.d.qacc.assign(self.forward.qacc)

  def leave_out(self, *names, places=slice(None)):
    """Makes the cotangents of outputs zero, or those of some of their entries."""
    for name in names:
      for cotangents in self.cotangents:
        cotangents[name][places] = 0
      if (x := self.adjoint.cotangents[name]).size:
        x.assign(np.stack([c[name] for c in self.cotangents]).astype(np.float32))

  def oracles(self):
    """An oracle a world."""
    for state, cotangents in zip(self.states, self.cotangents, strict=True):
      inputs = {k: v.copy() for k, v in state.items()}
      yield oracle.Oracle(self.m, inputs, cotangents, self.integrate)

  def check(self, tolerance, names=oracle.INPUTS, *, nonzero=()):
    """Compares the gradients of the inputs and of the parameters, of some only where not zero."""
    for i, reference in enumerate(self.oracles()):
      for name in names:
        if reference.inputs[name].size:
          want = reference.gradient(name)
          got = self.adjoint.gradients[name].numpy()[i].reshape(want.shape)
          if name == "xfrc_applied":
            got[0] = 0  # on the world, which cannot move
          assert_close(got, want, tolerance, f"{name} of world {i}")
    for name in self.wrt:
      some = name in nonzero
      want = sum(reference.parameter(name, nonzero=some) for reference in self.oracles())
      got = self.adjoint.gradients[name].numpy().reshape(want.shape).copy()
      if some:
        got[getattr(self.m, name) == 0] = 0
      if name.endswith(("quat", "axis")):  # those of length one: the rest means nothing
        x = getattr(self.m, name)
        x = x / np.linalg.norm(x, axis=-1, keepdims=True)
        got, want = (g - x * np.sum(g * x, -1, keepdims=True) for g in (got, want))
      if name.startswith("body_"):
        got[0] = want[0] = 0  # the world's, which C does not read
      assert_close(got, want, tolerance, name)


def assert_close(got, want, tolerance, what):
  assert np.all(np.isfinite(got)), what
  error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-3)  # differences of zero are noise
  assert error < tolerance, f"{what}: error {error:.1e} of {np.abs(want).max():.2e}"


def random_states(m, count=2, spread=0.5, seed=0):
  rng = np.random.default_rng(seed)
  return [oracle.random_state(m, rng, spread) for _ in range(count)]


def settled_states(m, count=2, seed=1):
  """States in which bodies touch, still moving."""
  rng = np.random.default_rng(seed)
  out = []
  for _ in range(count):
    state = oracle.random_state(m, rng, 0.0)
    d = mujoco.MjData(m)
    mujoco.mj_integratePos(m, d.qpos, 0.02 * rng.normal(size=m.nv), 1.0)
    d.qvel[:] = 0.3 * rng.normal(size=m.nv)
    for _ in range(5):
      mujoco.mj_step(m, d)
    state["qpos"], state["qvel"] = (
      x.astype(np.float32).astype(np.float64) for x in (d.qpos, d.qvel)
    )
    for name in ("qfrc_applied", "xfrc_applied"):
      state[name] = (0.1 * state[name]).astype(np.float32).astype(np.float64)
    out.append(state)
  return out
