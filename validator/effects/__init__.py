"""Which collectives a rank issues, in which order, and where ranks of one group part."""
