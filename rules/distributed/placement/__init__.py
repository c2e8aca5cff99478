"""Sharded and wrapped models: what holds the whole, what holds a part, and in which order they are made."""
