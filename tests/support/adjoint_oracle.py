"""Gradients of a C MuJoCo step by central differences in float64, for the tests of the adjoint."""

import dataclasses

import mujoco
import numpy as np

INPUTS = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat")
OUTPUTS = ("qpos", "qvel", "act", "qacc")
PAST = ("history", "time")  # inputs of a model with delays too


def tighten(m: mujoco.MjModel) -> mujoco.MjModel:
  """Makes the solver converge to the last digit, so that differences of it mean something."""
  m.opt.tolerance = 0
  m.opt.iterations = 100
  m.opt.ls_iterations = 200
  m.opt.ls_tolerance = 1e-12
  return m


@dataclasses.dataclass
class Oracle:
  """The gradient of sum(cotangents . outputs) of one step (or of `mj_forward`)."""

  m: mujoco.MjModel
  inputs: dict[str, np.ndarray]
  cotangents: dict[str, np.ndarray]
  integrate: bool = True

  def __post_init__(self):
    self.d = mujoco.MjData(self.m)

  def value(self) -> float:
    """The scalar at the inputs."""
    d = self.d
    mujoco.mj_resetData(self.m, d)
    for name, x in self.inputs.items():
      if name == "time":
        d.time = x[0]
      else:
        getattr(d, name)[:] = x
    mujoco.mj_forward(self.m, d)
    qacc = d.qacc.copy()
    mujoco.mj_subtreeVel(self.m, d)
    mujoco.mj_rnePostConstraint(self.m, d)
    mujoco.mj_energyPos(self.m, d)
    mujoco.mj_energyVel(self.m, d)
    reports = {k: getattr(d, k).copy() for k in self.cotangents if k not in OUTPUTS}
    if self.integrate:
      d.qacc_warmstart[:] = qacc
      mujoco.mj_step(self.m, d)
      if self.m.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        qacc = d.qacc.copy()  # the mean over the stages
        reports = {k: getattr(d, k).copy() for k in reports}  # of the last stage
      out = dict(qpos=d.qpos, qvel=d.qvel, act=d.act, qacc=qacc)
    else:
      out = dict(qpos=d.qpos, qvel=d.qvel, act=d.act, qacc=qacc)
    out |= reports | dict(history=d.history)
    given = self.cotangents
    return sum(float(np.sum(given[k].ravel() * v.ravel())) for k, v in out.items() if k in given)

  def along(self, change, eps: float = 1e-6) -> float:
    """The derivative of the scalar along change(eps), which sets the inputs and undoes them."""
    saved = {k: v.copy() for k, v in self.inputs.items()}
    values = []
    for sign in (1, -1):
      change(sign * eps)
      values.append(self.value())
      for k, v in saved.items():
        self.inputs[k][:] = v
    return (values[0] - values[1]) / (2 * eps)

  def gradient(self, name: str, eps: float = 1e-6) -> np.ndarray:
    """The gradient with respect to every entry of an input, in coordinates."""
    x = self.inputs[name]
    out = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):

      def change(e, i=i):
        x[i] += e

      out[i] = self.along(change, eps)
    return out

  def parameter(self, name: str, eps: float = 1e-6, *, nonzero: bool = False) -> np.ndarray:
    """The gradient with respect to a field of the model, 0 for zeros in it if `nonzero`."""
    owner = self.m.opt if name.startswith("opt.") else self.m
    field = name.removeprefix("opt.")
    x = np.atleast_1d(getattr(owner, field)).astype(float)
    if getattr(getattr(owner, field), "dtype", None) == np.float32:
      eps = 2.0**-20  # which float32 adds exactly to numbers of this size
    out = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
      if nonzero and x[i] == 0:
        continue
      values = []
      for sign in (1, -1):
        y = x.copy()
        y[i] += sign * eps
        self._set(owner, field, y)
        values.append(self.value())
      self._set(owner, field, x)
      out[i] = (values[0] - values[1]) / (2 * eps)
    return out

  def _set(self, owner, field, x):
    if np.ndim(getattr(owner, field)):
      getattr(owner, field)[:] = x
    else:
      setattr(owner, field, x[0])
    if field == "body_mass":  # what C sums when it compiles
      for body in range(self.m.nbody):
        self.m.body_subtreemass[body] = 0.0
      for body in range(self.m.nbody - 1, -1, -1):
        self.m.body_subtreemass[body] += x[body]
        if body:
          self.m.body_subtreemass[self.m.body_parentid[body]] += self.m.body_subtreemass[body]


def random_state(m: mujoco.MjModel, rng: np.random.Generator, spread: float = 0.5) -> dict:
  """Random inputs, rounded to float32 so that both sides see the same numbers."""
  d = mujoco.MjData(m)
  mujoco.mj_forward(m, d)
  out = dict(
    qpos=m.qpos0.copy(),
    qvel=rng.normal(size=m.nv),
    act=rng.uniform(0.1, 0.9, size=m.na),
    ctrl=rng.uniform(-0.8, 0.8, size=m.nu),
    qfrc_applied=rng.normal(size=m.nv),
    xfrc_applied=rng.normal(size=(m.nbody, 6)),
    mocap_pos=d.mocap_pos + 0.1 * rng.normal(size=d.mocap_pos.shape),
    mocap_quat=d.mocap_quat + 0.1 * rng.normal(size=d.mocap_quat.shape),
  )
  out["xfrc_applied"][0] = 0
  mujoco.mj_integratePos(m, out["qpos"], spread * rng.normal(size=m.nv), 1.0)
  return {k: v.astype(np.float32).astype(np.float64) for k, v in out.items()}
