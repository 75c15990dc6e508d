"""Arithmetic of models in JAX and NumPy: no kernel, no call into Warp."""
