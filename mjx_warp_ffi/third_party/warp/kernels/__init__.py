"""One Warp kernel as a JAX function, its reverse mode included."""
