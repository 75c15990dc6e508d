"""Borders to third-party packages."""
