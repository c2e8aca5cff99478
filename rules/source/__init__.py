"""Files that cannot be read as Python, and the comments that silence findings."""
