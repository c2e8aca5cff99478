"""Splitting one model's work over ranks: tensor and sequence parallelism, rings of attention."""
