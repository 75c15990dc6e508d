"""MuJoCo Warp as JAX functions: jit, vmap, scan and grad, on CPU and GPU."""
