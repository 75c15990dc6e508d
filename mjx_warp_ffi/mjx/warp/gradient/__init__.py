"""The rules that JAX asks for: reverse mode, and differences."""
