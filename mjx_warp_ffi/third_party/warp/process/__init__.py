"""What the whole process shares: its locks, and the modules that are loaded ahead of a call."""
