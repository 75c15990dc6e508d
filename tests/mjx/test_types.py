"""What Model and Data show of themselves, and what they say of names that they lack."""

import jax
import jax.numpy as jnp
import mujoco
import pytest

from mjx_warp_ffi import mjx
from support.helpers import model_path


@pytest.fixture(scope="module")
def m() -> mjx.Model:
  return mjx.put_model(mujoco.MjModel.from_xml_path(str(model_path("hopper"))))


def test_a_model_shows_its_name_sizes_and_what_is_batched(m):
  one = "Model('hopper', nq=6, nv=6, nu=3, nbody=5, ngeom=5, gradient='analytic'"
  assert repr(m) == f"{one})"
  masses, gravity = jnp.ones((4, m.nbody)), jnp.zeros((4, 3))
  batch = m.replace(body_mass=masses).tree_replace({"opt.gravity": gravity})
  assert repr(batch) == f"{one}, batch (4,) of body_mass, opt.gravity)"
  assert repr(mjx.model_axes(batch)) == f"{one}, axis 0 of body_mass, opt.gravity)"
  every = jax.tree.map(lambda x: x[None], m)
  assert repr(every).startswith(f"{one}, batch (1,) of ") and repr(every).endswith(" more)")


def test_a_data_shows_its_sizes_and_batch_in_a_line_also_when_traced(m):
  d = mjx.make_data(m, nconmax=5, njmax=20)
  one = "Data(nq=6, nv=6, nu=3, na=0, nconmax=5, njmax=20"
  assert repr(d) == f"{one})"
  assert repr(d.contact) == "Contact(nconmax=5)"
  worlds = jax.vmap(lambda x: d.replace(qpos=d.qpos + x))(jnp.arange(4.0))
  assert repr(worlds) == f"{one}, batch (4,))"
  assert repr(worlds.contact) == "Contact(nconmax=5, batch (4,))"
  seen = []
  jax.eval_shape(jax.vmap(lambda d: seen.append(repr(d))), worlds)
  assert seen == [f"{one})"]  # the world that a mapped function sees
  assert repr(jax.tree.map(lambda x: None, d)).startswith("Data(nq=?")


@pytest.mark.parametrize(
  ("of", "names", "message"),
  [
    ("m", {"body_masss": 1}, "body_masss; did you mean body_mass"),
    ("m", {"mass": 1}, r"mass; did you mean body_mass\?"),
    ("m", {"gravity": 1}, r"tree_replace\({'opt.gravity': ...}\)"),
    ("m", {"iterations": 1}, "'opt.iterations'"),
    ("m", {"opt.grvity": 1}, r"grvity; did you mean gravity\?"),
    ("m", {"nv": 1}, "part of the model's structure"),
    ("d", {"ncons": 1}, r"ncons; did you mean ncon\?"),
    ("d", {"contact.dit": 1}, "dit; did you mean dist"),
    ("d", {"zzz": 1}, "zzz; `vars` of it has the valid names"),
  ],
)
def test_a_wrong_name_gets_the_nearest_right_ones_and_no_list_of_all(m, of, names, message):
  with pytest.raises(ValueError, match=message) as caught:
    {"m": m, "d": mjx.make_data(m)}[of].tree_replace(names)
  assert len(str(caught.value)) < 160
