"""The linear solves, and the integrators."""
