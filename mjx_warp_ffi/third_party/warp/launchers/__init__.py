"""How a Python function runs in a call: staged in a graph or directly, on which buffers."""
