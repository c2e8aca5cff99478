"""Values reduced over ranks: sums, counts, means and gradients."""
