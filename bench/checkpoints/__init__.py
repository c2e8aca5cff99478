"""What strategies save, and how any of them, or Hugging Face, reads it."""
