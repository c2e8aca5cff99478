"""Methods that replace those of a base."""
