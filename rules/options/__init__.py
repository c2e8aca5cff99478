"""Rules about command-line options: read but not defined, defined but not read."""
