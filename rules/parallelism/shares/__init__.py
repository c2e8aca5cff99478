"""What each rank takes of a batch, a sequence or a list."""
