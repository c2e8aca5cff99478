"""Options of programs: what parsers, data classes and tables accept, and who reads it."""
