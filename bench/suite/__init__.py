"""Training with several configurations from one seed checkpoint on the same data, and comparing their losses."""
