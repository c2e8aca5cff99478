"""Results as tables, charts, fits and one self-contained page."""
