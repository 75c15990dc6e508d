"""The handler in machine code, which serves calls on CUDA without the handler in Python."""
