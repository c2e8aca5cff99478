"""Calls against what they call."""
