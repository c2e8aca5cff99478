"""Values that reached where they were taken before a change, and do not reach it since."""
