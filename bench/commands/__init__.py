"""One module per command of `python -m bench`, each with a `main(arguments)` that returns the exit status."""
