"""Models, states and the oracle for the tests of the gradients of stages."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi import mjx
from support import adjoint_oracle
from support.adjoint_case import load, random_states

# Free, ball, slide and hinge joints, a mocap body, cameras, a spatial tendon, activations, a fluid.
ZOO = """<mujoco><option timestep="0.004" density="1.2"><flag contact="disable" energy="enable"/>
  </option><worldbody><light name="sun" pos="0 0 3" dir=".1 0 -1" mode="targetbody" target="free"/>
    <camera name="world" pos="1 1 1" mode="targetbody" target="free"/>
    <body name="hand" mocap="true" pos=".5 0 1"><geom size=".02"/>
      <site name="m" pos=".1 0 0"/></body>
    <body name="free" pos="0 0 0.6"><freejoint/><geom type="capsule" size="0.1 0.2" pos=".1 0 0"/>
      <site name="s" pos="0.1 0 0" euler="170 10 0"/>
      <camera name="eye" pos="0 .1 .2" euler="10 20 30"/>
      <camera name="track" pos="0 .1 .2" euler="10 20 30" mode="track"/>
      <camera name="trackcom" pos="0 .1 .2" euler="10 20 30" mode="trackcom"/>
      <light name="lamp" pos="0 0 .2" dir=".1 .2 -1"/>
      <light name="follow" pos="0 .1 .2" dir=".1 .2 -1" mode="track"/>
      <light name="over" pos="0 .1 .2" dir=".1 .2 -1" mode="trackcom"/>
      <body name="b" pos="0.3 0 0"><joint name="ball" type="ball" pos=".01 0 .02" damping=".1"/>
        <geom size="0.1" pos="0.2 .1 0"/><site name="t" pos="0.2 0 0.1"/>
        <body name="c" pos=".2 0 .2" gravcomp=".4">
          <joint name="slide" type="slide" axis="1 .2 0" damping="0.1" stiffness="2"/>
          <joint name="hinge" axis="0 1 0" stiffness="1" armature=".02"/>
          <geom type="box" size=".05 .06 .07" euler="10 20 30"/>
          <camera name="watch" pos="0 .1 .2" mode="targetbodycom" target="free"/>
        </body></body></body></worldbody>
  <tendon><spatial name="rope" stiffness="2" damping=".1"><site site="s"/><site site="t"/></spatial>
    <spatial name="line"><site site="m"/><site site="t"/></spatial></tendon>
  <actuator><motor name="motor" joint="hinge"/><position joint="slide" kp="3" kv=".2"/>
    <general tendon="rope" gear="0.5" dyntype="filter" dynprm=".1" biastype="affine"
      biasprm="0 -1 -.3"/></actuator>
  <sensor><jointpos joint="hinge"/><gyro site="t"/><framepos objtype="site" objname="t"/>
    <accelerometer site="s"/><subtreelinvel body="b"/><actuatorfrc actuator="motor"/>
    <framelinvel objtype="xbody" objname="c" reftype="site" refname="s"/><tendonpos tendon="rope"/>
  </sensor></mujoco>"""

# Bodies that touch, adhere and reach a limit: what depends on contacts and rows before the solve.
TOUCHING = """<mujoco><option timestep="0.004"/><worldbody><geom type="plane" size="5 5 1"/>
    <body name="a" pos="0 0 .29"><joint name="turn" type="ball"/>
      <joint name="lift" type="slide" axis="0 0 1" range="-1 .3" limited="true"/>
      <geom name="egg" type="ellipsoid" size=".2 .25 .3"/><site name="s" pos=".1 0 0"/>
      <body name="b" pos=".3 0 0"><joint name="elbow" axis="0 1 0" range="-1 .2" limited="true"/>
        <geom name="ball" size=".1" pos=".2 0 0"/><site name="t" pos=".2 0 .1"/></body></body>
    <body name="pillar" pos="1 0 .3"><freejoint/><geom name="post" size=".1"/></body></worldbody>
  <tendon><spatial name="rope" range="0 .3" limited="true"><site site="s"/>
    <site site="t"/></spatial></tendon>
  <actuator><adhesion body="a" ctrlrange="0 1" gain="3"/><motor joint="elbow"/></actuator>
  <sensor><jointlimitpos joint="elbow"/><jointlimitvel joint="elbow"/>
    <tendonlimitpos tendon="rope"/>
    <distance geom1="ball" geom2="post" cutoff="3"/><framepos objtype="site" objname="t"/>
    <jointlimitfrc joint="elbow"/></sensor></mujoco>"""


INPUTS = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat")


@dataclasses.dataclass
class StageOracle(adjoint_oracle.Oracle):
  """The gradient of a random linear function of what functions of C MuJoCo compute."""

  functions: str = ""

  def value(self) -> float:
    mujoco.mj_resetData(self.m, self.d)
    for name, x in self.inputs.items():
      getattr(self.d, name)[:] = x
    for function in self.functions.split():
      getattr(mujoco, f"mj_{function}")(self.m, self.d)
    return sum(float(np.sum(c * getattr(self.d, n).ravel())) for n, c in self.cotangents.items())


@functools.cache
def zoo(gradient: str = "analytic") -> tuple[mujoco.MjModel, mjx.Model, mjx.Data, dict]:
  mj_model = load(ZOO)
  state = random_states(mj_model, count=1, seed=3)[0]
  m = mjx.put_model(mj_model, gradient=gradient)
  return mj_model, m, mjx.make_data(m).replace(**state), state


def weights(d: mjx.Data, names: tuple[str, ...], seed: int = 0) -> dict[str, np.ndarray]:
  rng = np.random.default_rng(seed)
  return {n: rng.standard_normal(np.shape(getattr(d, n))).astype(np.float32) for n in names}


def linear(stage: str, weight: dict[str, np.ndarray]):
  """A linear function of the results of a stage, of some inputs and leaves by name."""

  def function(values: dict, m: mjx.Model, d: mjx.Data) -> jax.Array:
    d = d.replace(**{n: x for n, x in values.items() if n in INPUTS})
    m = m.tree_replace({n: x for n, x in values.items() if n not in INPUTS})
    out = getattr(mjx, stage)(m, d)
    return sum(jnp.sum(w * getattr(out, n)) for n, w in weight.items())

  return function


@functools.cache
def touching() -> tuple[mjx.Model, mjx.Data]:
  mj_model = mujoco.MjModel.from_xml_string(TOUCHING)
  m = mjx.put_model(mj_model)
  d = mjx.make_data(m, nconmax=8, njmax=40)
  rng = np.random.default_rng(0)
  turn = jnp.array([0.9, 0.1, 0.2, 0.3], jnp.float32)
  qpos = d.qpos.at[:4].set(turn).at[4].set(-0.01).at[5].set(0.3)
  return m, d.replace(qpos=qpos, qvel=0.2 * rng.standard_normal(m.nv), ctrl=[0.5, 0.2])


def read(d: mjx.Data, name: str) -> jax.Array:
  return functools.reduce(getattr, name.split("."), d)
