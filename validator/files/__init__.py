"""Files that somebody else wrote: which there are, how they are read and written, and what they are called."""
