"""Signatures and results that a change altered, and the calls that fitted before."""
