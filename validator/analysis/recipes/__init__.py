"""Configuration files of programs: how they are put together, and which keys code asks for at which level."""
