"""Sums over the paths and subtrees of a model's nodes, beside numpy's."""

import mujoco
import numpy as np
import pytest
import warp as wp

from mjx_warp_ffi.mjx.numerics.topology import topology
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.path_sums import PathSums
from mjx_warp_ffi.mjx.warp.adjoint.tape.tape import Tape


def forest(rng):
  """Trees of bodies with up to three joints."""
  spec = mujoco.MjSpec()
  bodies = [spec.worldbody]
  for _ in range(25):
    parent = bodies[rng.choice([0, -1, rng.integers(len(bodies))], p=[0.1, 0.5, 0.4])]
    body = parent.add_body(mass=1.0, inertia=[1.0, 1.0, 1.0], pos=[0.1, 0.0, 0.0])
    for axis in np.eye(3)[: rng.integers(4)]:
      body.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE, axis=axis)
    bodies.append(body)
  return spec.compile()


def chain(length):
  """A chain of bodies with a hinge each."""
  spec = mujoco.MjSpec()
  body = spec.worldbody
  for _ in range(length):
    body = body.add_body(mass=1.0, inertia=[1.0, 1.0, 1.0], pos=[0.1, 0.0, 0.0])
    body.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE)
  return spec.compile()


def make(m, *, world_fastest):
  top = topology(m)
  tape = Tape(3, "cpu", world_fastest=world_fastest)
  none = [wp.empty((3, top.count), dtype=kind, device="cpu") for kind in (wp.vec3, wp.quat)]
  sums = PathSums(top, tape, points=none[0], turns=none[1])
  tape.finish()
  return top, sums


@pytest.mark.parametrize("world_fastest", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_numpy(seed, world_fastest):
  rng = np.random.default_rng(seed)
  top, sums = make(forest(rng), world_fastest=world_fastest)
  assert sums.walks != world_fastest
  n, parent = top.count, top.arrays["parent"]
  on_path = np.zeros((n, n))  # of the row's node
  for i in range(1, n):
    on_path[i] = on_path[parent[i]]
    on_path[i, i] = 1
  terms, before = rng.normal(size=(2, 2, 3, n, 6)).astype(np.float32)
  terms[:, :, 0] = 0  # of the world
  with wp.ScopedDevice("cpu"):
    given, start, got = (
      wp.array(x, dtype=wp.spatial_vector) for x in (terms, before, np.zeros_like(terms))
    )
    sums.sum_paths(given, got)
    sums.add_subtrees(given, start)
  expected = np.einsum("nk,rwkc->rwnc", on_path, terms)
  np.testing.assert_allclose(got.numpy()[:, :, 1:], expected[:, :, 1:], atol=1e-5)
  expected = before + np.einsum("kn,rwkc->rwnc", on_path, terms)
  np.testing.assert_allclose(start.numpy()[:, :, 1:], expected[:, :, 1:], atol=1e-5)


def test_the_nodes_of_a_deep_tree_are_walked():
  assert make(chain(100), world_fastest=True)[1].walks
  assert not make(chain(40), world_fastest=True)[1].walks
