"""What is checked: one module per rule, in the folder of its family, found by itself; data beside it."""
