"""Batches to train on: captured ones, synthetic ones, and how either becomes what a model takes."""
