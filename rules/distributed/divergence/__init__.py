"""Ranks that part: collectives that some ranks reach and others do not, or in another order or shape."""
