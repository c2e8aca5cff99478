"""Recorded inputs taken once each through a model."""
