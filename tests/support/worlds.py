"""Batches of equal worlds."""

import jax
import jax.numpy as jnp
import numpy as np


def repeat(tree, *shape):
  """A pytree with leading axes added to every leaf; in numpy, since eager JAX compiles each."""

  def widen(x):
    x = np.asarray(x)
    return jnp.asarray(np.ascontiguousarray(np.broadcast_to(x, (*shape, *x.shape))))

  return jax.tree.map(widen, tree)
