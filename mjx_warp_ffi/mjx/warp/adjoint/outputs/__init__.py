"""Cotangents of the fields of Data."""
