"""Names, keys and choices that a change took away or exchanged, and who still goes by them."""
