"""Rules that compare two revisions of a project."""
