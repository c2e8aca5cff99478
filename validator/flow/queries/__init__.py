"""What rules ask of the flow of values."""
