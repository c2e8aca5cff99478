"""What values are: the axes over which they differ, the objects that they may be, how they are placed."""
