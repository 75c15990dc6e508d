"""What the whole process shares: locks, modules that are loaded early, rehearsals."""
