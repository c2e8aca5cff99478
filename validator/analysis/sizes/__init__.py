"""Sizes and meshes: products of parallel dimensions, divisions, and plans of tensor parallelism."""
