"""Meshes and plans of tensor parallelism."""
