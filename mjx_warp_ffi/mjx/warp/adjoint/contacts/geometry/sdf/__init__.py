"""Contacts of signed distance functions of meshes."""
