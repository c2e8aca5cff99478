"""Which combinations of backend, attention, compilation and packing work, each run for real."""
