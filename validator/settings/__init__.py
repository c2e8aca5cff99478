"""Configuration files and the classes of the project whose fields they set."""
