"""Cotangents of the sensors of limits: their positions, velocities and forces.

Such a sensor reads the one row of its joint's or tendon's limit, and zero where there is none. The
cotangents of sensors are collected by joint and by tendon before each backward pass.
"""

import functools

import warp as wp
from mujoco_warp._src.types import SensorType

from mjx_warp_ffi.mjx.warp.adjoint.constraints import law
from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import (
  LIMIT_JOINT,
  LIMIT_TENDON,
  QUADRATIC,
  TOUCH,
  JointRows,
  Rows,
  TendonRows,
  quadratic_power,
)
from mjx_warp_ffi.mjx.warp.adjoint.constraints.rows import (
  joint_limit_law,
  limited_joint,
  limited_tendon,
  tendon_limit_law,
)
from mjx_warp_ffi.mjx.warp.adjoint.forces import tendons
from mjx_warp_ffi.mjx.warp.adjoint.forces.lengths import Rates
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import State
from mjx_warp_ffi.mjx.warp.adjoint.tape.sensed import with_cotangent

JOINT = tuple(int(SensorType[f"JOINTLIMIT{x}"]) for x in ("POS", "VEL", "FRC"))
TENDON = tuple(int(SensorType[f"TENDONLIMIT{x}"]) for x in ("POS", "VEL", "FRC"))
KINDS = (*JOINT, *TENDON)


@wp.kernel(enable_backward=False)
def _collect(
  which: wp.array[int],
  kind: wp.array[int],
  objid: wp.array[int],
  adr: wp.array[int],
  first: int,
  weights: wp.array2d[float],
  seeds: wp.array2d[wp.vec3],
):
  """The cotangents of position, velocity and force by joint or tendon, a thread a world."""
  world = wp.tid()
  for i in range(seeds.shape[1]):
    seeds[world, i] = wp.vec3(0.0)
  for it in range(which.shape[0]):
    k = which[it]
    x = weights[world, adr[k]]
    y = wp.vec3(x, 0.0, 0.0)
    if kind[k] == first + 1:
      y = wp.vec3(0.0, x, 0.0)
    elif kind[k] == first + 2:
      y = wp.vec3(0.0, 0.0, x)
    seeds[world, objid[k]] = seeds[world, objid[k]] + y


@wp.kernel(module="unique")
def _joint_power(
  rows: Rows,
  joints: JointRows,
  state: State,
  coords: wp.array3d[float],
  seeds: wp.array2d[wp.vec3],
  power: wp.array2d[float],
):
  """Limits of joints, a thread per world and row."""
  world, r = wp.tid()
  p = wp.float32(0.0)
  if r < rows.nefc[world]:
    if rows.type[world, r] == LIMIT_JOINT:
      j = rows.id[world, r]
      c = seeds[world, j]
      pos, jv, ja, _jw = limited_joint(rows, joints, state, coords, world, j)
      p = c[0] * pos + c[1] * jv
      if rows.state[world, r] == QUADRATIC:
        solref, solimp, weight = joint_limit_law(joints, world, j)
        force = quadratic_power(rows, world, r, TOUCH, solref, solimp, weight, pos, jv, ja, c[2])
        p = p + force
  power[world, r] = p


@wp.kernel(module="unique")
def _tendon_power(
  rows: Rows,
  limits: TendonRows,
  rates: Rates,
  seeds: wp.array2d[wp.vec3],
  power: wp.array2d[float],
):
  """Limits of tendons, a thread per world and row."""
  world, r = wp.tid()
  p = wp.float32(0.0)
  if r < rows.nefc[world]:
    if rows.type[world, r] == LIMIT_TENDON:
      t = rows.id[world, r]
      c = seeds[world, t]
      pos, jv, ja, _jw = limited_tendon(rows, limits, rates, world, t)
      p = c[0] * pos + c[1] * jv
      if rows.state[world, r] == QUADRATIC:
        solref, solimp, weight = tendon_limit_law(limits, world, t)
        force = quadratic_power(rows, world, r, TOUCH, solref, solimp, weight, pos, jv, ja, c[2])
        p = p + force
  power[world, r] = p


def wanted(step) -> bool:
  """Whether a `StageAdjoint` has such outputs."""
  return bool(len(with_cotangent(step, KINDS)))


def _seeds(step, kinds: tuple[int, ...], *, count: int) -> wp.array:
  """The cotangents by joint or tendon, collected after each recompute."""
  m, out = step.m, wp.zeros((step.d.nworld, count), dtype=wp.vec3)
  inputs = [step.constant(with_cotangent(step, kinds)), m.sensor_type, m.sensor_objid, m.sensor_adr]
  inputs += [kinds[0], step.weights]
  step.after_recompute.append(
    functools.partial(wp.launch, _collect, step.d.nworld, inputs=inputs, outputs=[out])
  )
  return out


def record(step) -> None:
  """Records the sensors of limits of a `StageAdjoint`."""
  tape, m = step.tape, step.m
  bound = law.bound(step)
  if len(with_cotangent(step, JOINT)):
    inputs = [step.rows, law.make_joint_rows(step), step.state, step.sweep.coords]
    inputs.append(_seeds(step, JOINT, count=m.njnt))
    tape.power(_joint_power, (tape.nworld, bound), inputs=inputs)
  if len(with_cotangent(step, TENDON)):
    rates = tendons.find_rates(step, step.sweep.carried)
    inputs = [step.rows, law.make_tendon_rows(step), rates]
    inputs.append(_seeds(step, TENDON, count=m.ntendon))
    tape.power(_tendon_power, (tape.nworld, bound), inputs=inputs)
