"""Shell scripts and other places that start programs: which commands they run, with which words."""
