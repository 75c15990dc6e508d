"""Cotangents of sensordata, a file for each family of sensors."""
