"""The backward pass of a MuJoCo Warp step: kernels and their order, without JAX."""
