"""What one rank does: build a model, train, and measure itself."""
