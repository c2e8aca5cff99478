"""Lists of configurations: how they are written, named and run in turn, and what is kept of them."""
