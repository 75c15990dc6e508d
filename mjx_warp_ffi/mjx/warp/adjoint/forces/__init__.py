"""Forces that need no actuator and no constraint row."""
