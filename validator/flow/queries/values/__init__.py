"""Questions about values: what tensors hold, what is written into, where texts come from."""
