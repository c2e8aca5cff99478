"""Which combinations of backend, attention, compilation and packing work, each run for real."""

SCHEMA = 2
"""Of `matrix.json`. Since 2 times and speeds are those of whole steps, before they were without the optimizer."""
READ = (1, SCHEMA)
