"""Tests that sizes divide, and divisions without one."""
