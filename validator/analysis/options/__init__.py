"""Options and configuration files: what parsers, data classes and YAML accept, and who reads it."""
