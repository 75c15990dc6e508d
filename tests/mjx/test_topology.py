"""Which bodies and nodes hang on which, against walks from each to the root."""

import mujoco
import numpy as np
import pytest

from mjx_warp_ffi.mjx.numerics import topology
from support.helpers import model_path


def _above(parent, i):
  """An element of a tree and those above it, up to the root."""
  found = {int(i)}
  while i > 0:
    i = parent[i]
    found.add(int(i))
  return found


@pytest.fixture(scope="module", params=["arm", "gyroscope", "humanoid", "pile", "quadruped"])
def mj_model(request):
  return mujoco.MjModel.from_xml_path(str(model_path(request.param)))


@pytest.fixture(scope="module")
def nodes(mj_model):
  return topology.topology(mj_model)


def test_subtrees_are_the_bodies_that_reach_a_body_on_their_way_up(mj_model):
  above = [_above(mj_model.body_parentid, i) for i in range(mj_model.nbody)]
  bodies = range(mj_model.nbody)
  expected = [[float(b in above[i]) for i in bodies] for b in bodies]
  got = topology.subtrees(mj_model)
  np.testing.assert_array_equal(got, expected)
  assert got.dtype == np.float32
  ends = [max(i for i in bodies if b in above[i]) + 1 for b in bodies]
  np.testing.assert_array_equal(topology.body_ends(mj_model), ends)


def test_a_dof_moves_the_bodies_and_nodes_below_its_joint(mj_model, nodes):
  bodies = [_above(mj_model.body_parentid, i) for i in range(mj_model.nbody)]
  expected = [[dof in bodies[b] for dof in mj_model.dof_bodyid] for b in range(mj_model.nbody)]
  np.testing.assert_array_equal(topology.moves(mj_model), expected)
  own = topology.dof_nodes(mj_model, nodes)
  np.testing.assert_array_equal(nodes.arrays["jnt"][own], mj_model.dof_jntid)
  above = [_above(nodes.arrays["parent"], n) for n in range(nodes.count)]
  moved = [[n in above[k] for k in range(nodes.count)] for n in own]
  np.testing.assert_array_equal(topology.moved_nodes(mj_model, nodes), moved)


def test_the_common_node_is_the_deepest_above_both(mj_model, nodes):
  above = [_above(nodes.arrays["parent"], n) for n in range(nodes.count)]
  for i in range(nodes.count):
    for j in range(nodes.count):
      assert topology.common_node(nodes, (i, j)) == max(above[i] & above[j])
