"""What is checked: one module per rule in the folder of its family, found by itself, and the data they use."""
