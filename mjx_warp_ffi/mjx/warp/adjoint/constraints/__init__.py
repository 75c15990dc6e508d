"""Constraint rows and the law of their forces."""
