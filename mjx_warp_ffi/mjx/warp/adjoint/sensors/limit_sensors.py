"""Cotangents of the sensors of limits: their positions, velocities and forces.

Such a sensor reads the one row of its joint's or tendon's limit, and zero where there is none. The
cotangents of sensors are collected by joint and by tendon before each backward pass.
"""

import functools
from collections.abc import Collection

import mujoco
import warp as wp
from mujoco_warp._src.types import ConstraintState, ConstraintType, SensorType

from mjx_warp_ffi.mjx.warp.adjoint.constraints import law
from mjx_warp_ffi.mjx.warp.adjoint.constraints.law import (
  TOUCH,
  Constraints,
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
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.kinematics import Kinematics
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import State
from mjx_warp_ffi.mjx.warp.adjoint.tape.part import Part
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording, of_kinds

# In this order: their numbers follow each other.
JOINT = (SensorType.JOINTLIMITPOS, SensorType.JOINTLIMITVEL, SensorType.JOINTLIMITFRC)
TENDON = (SensorType.TENDONLIMITPOS, SensorType.TENDONLIMITVEL, SensorType.TENDONLIMITFRC)
KINDS = (*JOINT, *TENDON)
PART = Part(sensors=KINDS)


@wp.kernel(enable_backward=False)
def _collect(
  # Model:
  sensor_type: wp.array[int],
  sensor_objid: wp.array[int],
  sensor_adr: wp.array[int],
  # In:
  which: wp.array[int],
  first: int,
  weights: wp.array2d[float],
  # Out:
  seeds: wp.array2d[wp.vec3],
):
  """The cotangents of position, velocity and force by joint or tendon, a thread a world.

  `first` is the type of the sensors of position; those of velocity and force follow it.
  """
  world = wp.tid()
  for i in range(seeds.shape[1]):
    seeds[world, i] = wp.vec3(0.0)
  for it in range(which.shape[0]):
    k = which[it]
    x = weights[world, sensor_adr[k]]
    y = wp.vec3(x, 0.0, 0.0)
    if sensor_type[k] == first + 1:
      y = wp.vec3(0.0, x, 0.0)
    elif sensor_type[k] == first + 2:
      y = wp.vec3(0.0, 0.0, x)
    i = sensor_objid[k]
    seeds[world, i] = seeds[world, i] + y


@wp.kernel(module="unique")
def _joint_power(
  # In:
  rows: Rows,
  joints: JointRows,
  state: State,
  coords: wp.array3d[float],
  seeds: wp.array2d[wp.vec3],
  # Out:
  power: wp.array2d[float],
):
  """Limits of joints, a thread per world and row."""
  world, r = wp.tid()
  p = wp.float32(0.0)
  if r < rows.nefc[world]:
    if rows.type[world, r] == ConstraintType.LIMIT_JOINT:
      j = rows.id[world, r]
      c = seeds[world, j]
      pos, jv, ja, _jw = limited_joint(rows, joints, state, coords, world, j)
      p = c[0] * pos + c[1] * jv
      if rows.state[world, r] == ConstraintState.QUADRATIC:
        solref, solimp, weight = joint_limit_law(joints, world, j)
        force = quadratic_power(rows, world, r, TOUCH, solref, solimp, weight, pos, jv, ja, c[2])
        p = p + force
  power[world, r] = p


@wp.kernel(module="unique")
def _tendon_power(
  # In:
  rows: Rows,
  limits: TendonRows,
  rates: Rates,
  seeds: wp.array2d[wp.vec3],
  # Out:
  power: wp.array2d[float],
):
  """Limits of tendons, a thread per world and row."""
  world, r = wp.tid()
  p = wp.float32(0.0)
  if r < rows.nefc[world]:
    if rows.type[world, r] == ConstraintType.LIMIT_TENDON:
      t = rows.id[world, r]
      c = seeds[world, t]
      pos, jv, ja, _jw = limited_tendon(rows, limits, rates, world, t)
      p = c[0] * pos + c[1] * jv
      if rows.state[world, r] == ConstraintState.QUADRATIC:
        solref, solimp, weight = tendon_limit_law(limits, world, t)
        force = quadratic_power(rows, world, r, TOUCH, solref, solimp, weight, pos, jv, ja, c[2])
        p = p + force
  power[world, r] = p


def wanted(mjm: mujoco.MjModel, outputs: Collection[str]) -> bool:
  """Whether sensors of limits are among the outputs.

  Args:
    mjm: the model.
    outputs: names of what has a cotangent.
  """
  return "sensordata" in outputs and len(of_kinds(mjm, KINDS)) > 0


def _seeds(
  rec: Recording, kinds: tuple[SensorType, ...], *, count: int, weights: wp.array
) -> wp.array:
  """The cotangents by joint or tendon, collected after each recompute."""
  m, out = rec.m, wp.zeros((rec.d.nworld, count), dtype=wp.vec3)
  inputs = [m.sensor_type, m.sensor_objid, m.sensor_adr]
  inputs += [rec.constant(rec.sensors(kinds)), int(kinds[0]), weights]
  rec.tape.when_recomputed(
    functools.partial(wp.launch, _collect, rec.d.nworld, inputs=inputs, outputs=[out])
  )
  return out


def record(rec: Recording, kin: Kinematics, constraints: Constraints, *, weights: wp.array) -> None:
  """Records the sensors of limits.

  Args:
    rec: the recording.
    kin: where everything is and how it moves.
    constraints: the rows, among them those of limits.
    weights: the cotangents of sensordata, zero where a sensor is at its cutoff.
  """
  tape, m, rows = rec.tape, rec.m, constraints.rows
  dim = (tape.nworld, law.bound(rec))
  if len(rec.sensors(JOINT)):
    inputs = [rows, law.make_joint_rows(rec), kin.state, kin.coords]
    inputs.append(_seeds(rec, JOINT, count=m.njnt, weights=weights))
    tape.power(_joint_power, dim, inputs=inputs)
  if len(rec.sensors(TENDON)):
    rates = tendons.find_rates(rec, kin, kin.carried)
    inputs = [rows, law.make_tendon_rows(rec), rates]
    inputs.append(_seeds(rec, TENDON, count=m.ntendon, weights=weights))
    tape.power(_tendon_power, dim, inputs=inputs)
