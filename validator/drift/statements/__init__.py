"""Statements that a change took out, moved or weakened."""
