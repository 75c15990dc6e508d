"""The handler in machine code, which serves calls without Python."""
