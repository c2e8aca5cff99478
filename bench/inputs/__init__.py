"""Batches to train on: captured ones, synthetic ones, and how either becomes what a model takes."""

CONVERTED = "MESHPROOF_INPUTS"
"""Environment variable with the folder in which a sweep keeps converted inputs; without it nothing is kept."""
