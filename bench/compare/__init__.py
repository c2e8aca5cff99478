"""Do runs train alike, and is one slower? Losses step by step, times over processes."""
