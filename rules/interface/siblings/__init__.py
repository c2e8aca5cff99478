"""Classes that stand in for each other."""
