"""One run of the program: arguments, configuration, the checker, its cache, and what becomes of findings."""
