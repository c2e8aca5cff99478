"""Which attention kernel is the fastest here: what each needs, and how fast it is. `bench attention` measures them."""
