"""What `python -m bench doctor` looks at: the machine, the packages, and whether ranks reach each other."""
