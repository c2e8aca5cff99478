"""What is kept of a measurement: its values, what they depend on, and the table of a run."""
