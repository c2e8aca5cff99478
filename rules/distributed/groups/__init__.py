"""Process groups: who is in them, and numbers of ranks that belong to another one."""
