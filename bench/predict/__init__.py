"""What a configuration should take of memory and time, before anything runs. No torch needed."""
