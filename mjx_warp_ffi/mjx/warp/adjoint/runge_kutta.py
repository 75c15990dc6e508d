"""The backward pass of a step of Runge and Kutta's fourth-order method.

The step is q' = q (+) h sum b_i u_i, v' = v + h sum b_i a_i over four evaluations of the dynamics,
a_i at q_i = q (+) h c_i u_{i-1}, v_i = v + h c_i a_{i-1}. u_i is v_i for a slide or hinge; for a
rotation it is the rate of the rotation vector h c_i u_{i-1} at the angular velocity v_i (Munthe-
Kaas, High order Runge-Kutta methods on manifolds, 1999). The backward pass evaluates the stages
once more, for its residual is the state alone, and goes through them in reverse.

MJWarp reads delayed controls at the time of the step in all four, C MuJoCo at that of each.
"""

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import forward, math
from mujoco_warp._src.types import DynType, vec10

from mjx_warp_ffi.mjx.numerics.topology import BALL, FREE
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.spatial import quat_at, vec_at
from mjx_warp_ffi.mjx.warp.adjoint.request import OUTPUTS, RATES
from mjx_warp_ffi.mjx.warp.adjoint.solve.integration import turned_adjoint
from mjx_warp_ffi.mjx.warp.adjoint.stage import StageAdjoint
from mjx_warp_ffi.mjx.warp.adjoint.tape.leaves import of_world
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import part_of
from mjx_warp_ffi.mjx.warp.adjoint.tape.warp_types import struct

# A step returns what its last stage found, but for what sensors make, which see the first alone.
_OF_SENSORS = ("sensordata", "subtree_linvel", "subtree_angmom", "history")
# of either, by other settings, and a mean of the stages
_REFUSED = ("energy", "cacc", "cfrc_int", "cfrc_ext", "contact", "act_dot")

C = (0.0, 0.5, 0.5, 1.0)
B = (1 / 6, 1 / 3, 1 / 3, 1 / 6)


@struct
class Joints:
  """The joints, and the timestep."""

  timestep: wp.array[float]
  jnt_type: wp.array[int]
  jnt_qposadr: wp.array[int]
  jnt_dofadr: wp.array[int]


@wp.kernel(enable_backward=False)
def _displaced_adjoint(
  joints: Joints,
  scale: float,
  qpos: wp.array2d[float],
  rate: wp.array2d[float],
  cot_qpos: wp.array2d[float],
  grad_qpos: wp.array2d[float],
  grad_rate: wp.array2d[float],
):
  """The adjoint of qpos (+) h scale rate: adds to both gradients, a thread per joint."""
  world, j = wp.tid()
  h = scale * of_world(joints.timestep, world)
  kind = joints.jnt_type[j]
  i = joints.jnt_qposadr[j]
  d = joints.jnt_dofadr[j]
  num = wp.int32(1)
  if kind == BALL:
    num = 0
  elif kind == FREE:
    num = 3
  for k in range(num):
    grad_qpos[world, i + k] = grad_qpos[world, i + k] + cot_qpos[world, i + k]
    grad_rate[world, d + k] = grad_rate[world, d + k] + h * cot_qpos[world, i + k]
  if kind == FREE or kind == BALL:
    i += num
    d += num
    r = h * vec_at(rate, world, d)
    g, turn = turned_adjoint(quat_at(qpos, world, i), r, quat_at(cot_qpos, world, i))
    for k in range(4):
      grad_qpos[world, i + k] = grad_qpos[world, i + k] + g[k]
    for k in range(3):
      grad_rate[world, d + k] = grad_rate[world, d + k] + h * turn[k]


@wp.kernel(module="unique")
def _corrected(
  joints: Joints,
  scale: float,
  before: wp.array2d[float],
  qvel: wp.array2d[float],
  after: wp.array2d[float],
):
  """The rate u_i from u_{i-1} and v_i, a thread per joint."""
  world, j = wp.tid()
  h = scale * of_world(joints.timestep, world)
  kind = joints.jnt_type[j]
  d = joints.jnt_dofadr[j]
  if kind == FREE:
    for k in range(3):
      after[world, d + k] = qvel[world, d + k]
    u = math.deriv_expmap(h * vec_at(before, world, d + 3), vec_at(qvel, world, d + 3))
    for k in range(3):
      after[world, d + 3 + k] = u[k]
  elif kind == BALL:
    u = math.deriv_expmap(h * vec_at(before, world, d), vec_at(qvel, world, d))
    for k in range(3):
      after[world, d + k] = u[k]
  else:
    after[world, d] = qvel[world, d]


@struct
class Activations:
  """How activations advance."""

  timestep: wp.array[float]
  dyntype: wp.array[int]
  actadr: wp.array[int]
  actlimited: wp.array[bool]
  actrange: wp.array2d[wp.vec2]
  dynprm: wp.array2d[vec10]


@wp.kernel(enable_backward=False)
def _activation_adjoint(
  s: Activations,
  scale: float,
  limit: bool,
  act: wp.array2d[float],
  act_dot: wp.array2d[float],
  cot: wp.array2d[float],
  grad_act: wp.array2d[float],
  grad_act_dot: wp.array2d[float],
):
  """The adjoint of the advance of activations by scale act_dot: adds to both gradients."""
  world, i = wp.tid()
  j = s.actadr[i]
  if j < 0:
    return
  k = of_world(s.timestep, world)
  if s.dyntype[i] == int(DynType.FILTEREXACT):
    tau = wp.max(1.0e-15, of_world(s.dynprm, world, i)[0])
    k = tau * (1.0 - wp.exp(-k / tau))
  g = cot[world, j]
  if limit and s.actlimited[i]:
    x = act[world, j] + scale * k * act_dot[world, j]
    bounds = of_world(s.actrange, world, i)
    if x < bounds[0] or x > bounds[1]:
      g = 0.0
  grad_act[world, j] = grad_act[world, j] + g
  grad_act_dot[world, j] = grad_act_dot[world, j] + scale * k * g


@wp.kernel(enable_backward=False)
def _add_scaled(
  timestep: wp.array[float], scale: float, x: wp.array2d[float], out: wp.array2d[float]
):
  """Adds h scale x."""
  world, i = wp.tid()
  out[world, i] = out[world, i] + of_world(timestep, world) * scale * x[world, i]


@wp.kernel(enable_backward=False)
def _axpy(scale: float, x: wp.array2d[float], out: wp.array2d[float]):
  """Adds scale x."""
  world, i = wp.tid()
  out[world, i] = out[world, i] + scale * x[world, i]


@wp.kernel(enable_backward=False)
def _accumulate(x: wp.array[float], out: wp.array[float]):
  """Adds a flat array to another."""
  i = wp.tid()
  out[i] = out[i] + x[i]


def refused(m: mjw.Model, outputs: tuple[str, ...]) -> list[str]:
  """Names of the outputs of a step that have no rule."""
  found = [name for name in outputs if name.startswith(_REFUSED)]
  # those of the first stage stay then
  kept = {"actuator_length": m.has_actuator_wrap, "actuator_velocity": m.has_actuator_dcmotor}
  return found + [name for name, stays in kept.items() if m.na and stays and name in outputs]


class RungeKuttaAdjoint:
  """Gradients of a step of four stages; the attributes are those of a `StepAdjoint`.

  Args:
    m: the model.
    stage: the adjoint of one evaluation of the dynamics, in the same workspace.
  """

  def __init__(self, m: mjw.Model, stage: StageAdjoint):
    """See the class."""
    refused = {"opt.timestep", "actuator_dynprm", "actuator_actrange"} & set(stage.rec.wrt)
    if refused:
      raise NotImplementedError(f"no gradient with respect to {sorted(refused)} with RK4")
    self.m, self.stage, self.d = m, stage, stage.rec.d
    d, tape = self.d, stage.rec.tape
    self.cotangents = {name: wp.zeros_like(getattr(d, name)) for name in OUTPUTS}
    self._outputs = [name for name in stage.cotangents if name not in RATES]
    self.cotangents |= {name: wp.zeros_like(getattr(d, name)) for name in self._outputs}
    # the sum over the stages of the part of the tape's gradients that holds those of the inputs
    used = {n: tape.start_of(x) for n, x in stage.rec.inputs.items() if x.size}
    end = max(start + stage.gradients[n].capacity // 4 for n, start in used.items())
    self._flat = wp.zeros(end, dtype=float)
    self.gradients = {n: self._view(x, used.get(n, 0)) for n, x in stage.gradients.items()}
    names = ("qpos", "qvel", "act", "qacc", "act_dot")
    self._saved = [{n: wp.zeros_like(getattr(d, n)) for n in names} for _ in B]
    vector = (d.nworld, m.nv)
    self._rates = [wp.zeros(vector, dtype=float) for _ in B]
    # cotangents of the stages' rates, accelerations and activation rates
    self._cot_rate = [wp.zeros(vector, dtype=float) for _ in B]
    self._cot_qacc = [wp.zeros(vector, dtype=float) for _ in B]
    self._cot_act_dot = [wp.zeros_like(d.act_dot) for _ in B]
    self._rate, self._cot_sum = (wp.zeros(vector, dtype=float) for _ in range(2))
    self._act_dot, self._cot_act_sum = (wp.zeros_like(d.act_dot) for _ in range(2))
    self._joints = Joints()
    self._joints.timestep = m.opt.timestep
    for name in ("jnt_type", "jnt_qposadr", "jnt_dofadr"):
      setattr(self._joints, name, getattr(m, name))
    self._activations = Activations()
    self._activations.timestep = m.opt.timestep
    for name in ("dyntype", "actadr", "actlimited", "actrange", "dynprm"):
      setattr(self._activations, name, getattr(m, f"actuator_{name}"))

  def _view(self, x: wp.array, start: int) -> wp.array:
    if x.size == 0:
      return x
    return part_of(self._flat, start, like=x)

  def launch(self) -> None:
    """Computes `gradients` from `cotangents` and the inputs in the workspace."""
    with wp.ScopedDevice(self.d.qpos.device):
      self._evaluate()
      self._flat.zero_()
      self._start()
      for i in (3, 2, 1, 0):
        self._stage(i)
      self._restore(0)

  def _evaluate(self) -> None:
    """Runs the stages forward and keeps their states."""
    m, d, saved = self.m, self.d, self._saved
    wp.copy(d.qacc_warmstart, d.qacc)  # the weighted mean of what is to be found
    first = saved[0]
    for i, c in enumerate(C):
      if i:
        start = (first["qpos"], first["qvel"], self._rates[i - 1], first["act"])
        forward._rk_perturb_state(m, d, c, *start)
      forward._forward(m, d, skip_sensor=True)
      for name, x in saved[i].items():
        wp.copy(x, getattr(d, name))
      if i:
        inputs = [self._joints, c, self._rates[i - 1], saved[i]["qvel"]]
        wp.launch(_corrected, self._per_joint, inputs=inputs, outputs=[self._rates[i]])
      else:
        wp.copy(self._rates[0], d.qvel)

  @property
  def _per_joint(self) -> tuple[int, int]:
    return self.d.nworld, self.m.njnt

  def _restore(self, i: int) -> None:
    """Puts the state of a stage into the workspace."""
    for name in ("qpos", "qvel", "act", "qacc"):
      wp.copy(getattr(self.d, name), self._saved[i][name])

  def _start(self) -> None:
    """The cotangents of all stages from those of the step's outputs."""
    m, d, cot, grad = self.m, self.d, self.cotangents, self.gradients
    vector = (d.nworld, m.nv)
    for x in (self._rate, self._cot_sum, self._act_dot, self._cot_act_sum):
      x.zero_()
    for b, rate, saved in zip(B, self._rates, self._saved, strict=True):
      wp.launch(_axpy, vector, inputs=[b, rate], outputs=[self._rate])
      wp.launch(_axpy, (d.nworld, m.na), inputs=[b, saved["act_dot"]], outputs=[self._act_dot])
    first = self._saved[0]
    inputs = [self._joints, 1.0, first["qpos"], self._rate, cot["qpos"]]
    outputs = [grad["qpos"], self._cot_sum]
    wp.launch(_displaced_adjoint, self._per_joint, inputs=inputs, outputs=outputs)
    wp.launch(_axpy, vector, inputs=[1.0, cot["qvel"]], outputs=[grad["qvel"]])
    inputs = [self._activations, 1.0, True, first["act"], self._act_dot, cot["act"]]
    outputs = [grad["act"], self._cot_act_sum]
    wp.launch(_activation_adjoint, (d.nworld, m.nactuator), inputs=inputs, outputs=outputs)
    for i, b in enumerate(B):
      for x in (self._cot_rate[i], self._cot_qacc[i], self._cot_act_dot[i]):
        x.zero_()
      wp.launch(_axpy, vector, inputs=[b, self._cot_sum], outputs=[self._cot_rate[i]])
      inputs = [m.opt.timestep, b, cot["qvel"]]
      wp.launch(_add_scaled, vector, inputs=inputs, outputs=[self._cot_qacc[i]])
      wp.launch(_axpy, vector, inputs=[b, cot["qacc"]], outputs=[self._cot_qacc[i]])
      inputs = [b, self._cot_act_sum]
      wp.launch(_axpy, (d.nworld, m.na), inputs=inputs, outputs=[self._cot_act_dot[i]])

  def _stage(self, i: int) -> None:
    """The adjoint of one stage, and the cotangents that it hands to the one before."""
    m, d, stage = self.m, self.d, self.stage
    vector = (d.nworld, m.nv)
    self._restore(i)
    wp.copy(stage.cotangents["qacc"], self._cot_qacc[i])
    wp.copy(stage.cotangents["act_dot"], self._cot_act_dot[i])
    for name in (*self._outputs, "history"):
      given = stage.cotangents[name]
      if name == "sensordata" and stage.given is not None:
        given = stage.given
      if i == (0 if name in _OF_SENSORS else 3):
        wp.copy(given, self.cotangents[name])
      else:
        given.zero_()
    stage.launch()
    grad = stage.gradients
    if i == 0:
      wp.launch(_axpy, vector, inputs=[1.0, self._cot_rate[0]], outputs=[grad["qvel"]])
    else:
      # u_i was made from v_i and u_{i-1}
      wp.launch(
        _corrected,
        self._per_joint,
        inputs=[self._joints, C[i], self._rates[i - 1], self._saved[i]["qvel"]],
        outputs=[self._rates[i]],
        adj_inputs=[Joints(), None, self._cot_rate[i - 1], grad["qvel"]],
        adj_outputs=[self._cot_rate[i]],
        adjoint=True,
      )
      first = self._saved[0]
      inputs = [self._joints, C[i], first["qpos"], self._rates[i - 1], grad["qpos"]]
      # the gradient of q_i becomes one of q: add it there, and leave none in the stage
      outputs = [self.gradients["qpos"], self._cot_rate[i - 1]]
      wp.launch(_displaced_adjoint, self._per_joint, inputs=inputs, outputs=outputs)
      grad["qpos"].zero_()
      inputs = [m.opt.timestep, C[i], grad["qvel"]]
      wp.launch(_add_scaled, vector, inputs=inputs, outputs=[self._cot_qacc[i - 1]])
      rates = self._saved[i - 1]["act_dot"]
      inputs = [self._activations, C[i], False, first["act"], rates, grad["act"]]
      outputs = [self.gradients["act"], self._cot_act_dot[i - 1]]
      wp.launch(_activation_adjoint, (d.nworld, m.nactuator), inputs=inputs, outputs=outputs)
      grad["act"].zero_()
    inputs = [stage.rec.tape.flat]
    wp.launch(_accumulate, self._flat.size, inputs=inputs, outputs=[self._flat])
