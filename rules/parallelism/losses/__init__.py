"""Losses and gradients: how often they are divided."""
