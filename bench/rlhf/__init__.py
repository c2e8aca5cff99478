"""The memory of a whole RLHF job: every model, the engine that generates, and who is on a GPU at which moment."""
