"""Interfaces: what classes must offer, what callers pass, and what the libraries underneath really accept."""
