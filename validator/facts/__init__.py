"""Source text to facts: pure functions, one module per language, no knowledge of any rule."""
